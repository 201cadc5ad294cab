"""How many blocks each layer of a model gets, when its density is that of the whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from sparsetile.matrix import Pattern
from sparsetile.nn._budget_split import split, total_blocks
from sparsetile.nn._check import check_draw


@dataclass(frozen=True, eq=False)
class Candidate:
    """A dense weight that is about to become sparse, as budgets see it.

    Attributes:
        name: Name of its layer in the model.
        weight: Its values `[m, k]`, outputs first.
        blocksize: Shape `(r, c)` of the blocks to come.

    Examples:
        >>> import torch
        >>> Candidate("up", torch.zeros(20, 64), (16, 16)).positions
        8
    """

    name: str
    weight: Float[Tensor, "m k"]
    blocksize: tuple[int, int]

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs."""
        return self.weight.shape[0], self.weight.shape[1]

    @property
    def grid(self) -> tuple[int, int]:
        """Block rows and block columns, those that are cut off included."""
        (m, k), (r, c) = self.shape, self.blocksize
        return -(-m // r), -(-k // c)

    @property
    def positions(self) -> int:
        """How many blocks it has room for."""
        return self.grid[0] * self.grid[1]


@runtime_checkable
class Budget(Protocol):
    """What `sparsify_` asks how much of each layer to store; any object with this method will do.

    Examples:
        >>> from torch import nn
        >>> from sparsetile.nn import sparsify_
        >>> class TwoEach:
        ...     def share(self, layers):
        ...         return [2 for layer in layers]
        >>> sparsify_(nn.Sequential(nn.Linear(64, 64)), density=TwoEach(), blocksize=16)[0].nnzb
        2
    """

    def share(self, layers: Sequence[Candidate]) -> Sequence[int | Pattern | None]:
        """Say for each layer, in the order given, what it stores.

        Args:
            layers: The weights that `sparsify_` is about to replace, in the model's order.

        Returns:
            For each: a number of blocks, which blocks, or None to leave the layer dense.
        """
        ...


def shares_of(budget: Budget, layers: Sequence[Candidate]) -> Sequence[int | Pattern | None]:
    """Ask a budget, and check what it says.

    Args:
        budget: Any budget, a user's own too.
        layers: The weights to become sparse.

    Returns:
        What `Budget.share` returned.

    Raises:
        TypeError: If it returned something else for a layer.
        ValueError: If it spoke of more or fewer layers, or a number or pattern does not fit one.

    Examples:
        >>> import torch
        >>> shares_of(Uniform(0.5), [Candidate("up", torch.zeros(64, 64), (16, 16))])
        [8]
    """
    name, shares = type(budget).__name__, budget.share(layers)
    if len(shares) != len(layers):
        raise ValueError(
            f"{name}.share must return one entry for each of {len(layers)} layers, "
            f"got {len(shares)}"
        )
    for layer, share in zip(layers, shares, strict=True):
        said = f"{name}.share of layer {layer.name!r}"
        if isinstance(share, Pattern):
            if share.shape != layer.shape:
                raise ValueError(
                    f"{said} must be a pattern of the weight's shape {layer.shape}, "
                    f"got {share.shape}"
                )
        elif share is not None:
            if isinstance(share, bool) or not isinstance(share, int):
                raise TypeError(
                    f"{said} must be a number of blocks, a Pattern or None, got {share!r}"
                )
            if not min(1, layer.positions) <= share <= layer.positions:
                raise ValueError(
                    f"{said} must be 1 to {layer.positions} blocks, all it has room for, "
                    f"got {share}; return None to leave it dense"
                )
    return shares


@dataclass(frozen=True)
class _OfTheWhole:
    """A share of all block positions of a model.

    The number of blocks is exact: the whole number next to `density` times the positions of all
    layers together, ragged ones included, and one for each layer at least. A layer that would get
    more than it has room for is full, and the others share the rest.
    """

    density: float

    def __post_init__(self) -> None:
        check_draw(None, 1, self.density)

    def share(self, layers: Sequence[Candidate]) -> list[int]:
        """Split the blocks over layers.

        Args:
            layers: The weights to become sparse.

        Returns:
            Number of blocks of each.
        """
        positions = [layer.positions for layer in layers]
        filled = [i for i, most in enumerate(positions) if most]
        counts = [0] * len(layers)
        if filled:
            room = [positions[i] for i in filled]
            wanted = [self._relative_density(layers[i]) * positions[i] for i in filled]
            for i, count in zip(
                filled, split(total_blocks(room, self.density), wanted, room), strict=True
            ):
                counts[i] = count
        return counts

    def _relative_density(self, layer: Candidate) -> float:
        """Density of a layer over those of the others."""
        raise NotImplementedError


class Uniform(_OfTheWhole):
    """The same density in every layer: what a number given to `sparsify_` means.

    The number of blocks of all layers together is exact: the whole number next to `density` times
    their positions, and one for each layer at least. So layers of the same size can differ by one
    block.

    Args:
        density: Share of all block positions to store, in (0, 1].

    Raises:
        TypeError: If the density is no number.
        ValueError: If it is out of range.

    Examples:
        >>> from torch import nn
        >>> from sparsetile.nn import sparsify_
        >>> model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
        >>> model = sparsify_(model, density=Uniform(0.1), blocksize=16)
        >>> model[0].nnzb, model[2].nnzb
        (7, 6)
    """

    def _relative_density(self, layer: Candidate) -> float:
        return 1.0


class ER(_OfTheWhole):
    """Small layers are denser: the density of a layer is proportional to (m + k) / (m · k).

    These are the Erdős–Rényi densities of Mocanu et al., "Scalable training of artificial neural
    networks with adaptive sparse connectivity" (SET, 2018): the mean number of connections of a
    unit depends little on the width of its layer. As in RigL, layers that come out above 1 are full
    and the others share the rest; the number of blocks of all layers together is exact: the whole
    number next to `density` times their positions, and one for each layer at least.

    Args:
        density: Share of all block positions to store, in (0, 1].

    Raises:
        TypeError: If the density is no number.
        ValueError: If it is out of range.

    Examples:
        >>> from torch import nn
        >>> from sparsetile.nn import sparsify_
        >>> model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 32))
        >>> model = sparsify_(model, density=ER(0.1), blocksize=4)
        >>> [round(layer.density, 3) for layer in (model[0], model[2])]
        [0.072, 0.324]
    """

    def _relative_density(self, layer: Candidate) -> float:
        m, k = layer.shape
        return (m + k) / (m * k)


class ERK(ER):
    """The densities of Erdős–Rényi with kernels (Evci et al., "Rigging the Lottery", 2020).

    For a convolution they count the sides of its kernel too. The layers here have none, and without
    kernels RigL's formula is that of `ER`; this is the name under which its recipes ask for it.

    Args:
        density: Share of all block positions to store, in (0, 1].

    Raises:
        TypeError: If the density is no number.
        ValueError: If it is out of range.

    Examples:
        >>> import torch
        >>> layers = [Candidate("a", torch.zeros(64, 64), (4, 4))]
        >>> ERK(0.1).share(layers) == ER(0.1).share(layers)
        True
    """
