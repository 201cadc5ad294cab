"""SparseGPT: prunes from left to right and lets the columns to the right make up for it."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from sparsetile.prune._check import check_solver_dtype, checked_flag, checked_int, checked_positive
from sparsetile.prune._choose import strongest
from sparsetile.prune._layer import Kept, Layer, Needs
from sparsetile.prune._solve import inverse_factor


@dataclass(frozen=True)
class SparseGPT:
    """Removes what hurts a layer's output least, and changes what stays to make up for it.

    Frantar and Alistarh, "SparseGPT: Massive Language Models Can Be Accurately Pruned in One-Shot"
    (2023), algorithm 1. Columns are settled in groups from left to right. Within a group those
    blocks go whose removal costs least,
    `w [H⁻¹]⁻¹ wᵀ` summed over the rows of a block, where `[·]` is the part at the block's columns
    of the inverse over all columns not settled yet (the optimal brain surgeon, for a block of any
    size instead of single values). All columns to the right are then changed so that the output
    moves least.

    Args:
        damping: Share of the mean diagonal of `H = X Xᵀ` that is added to its diagonal.
        columns: Columns in a group, rounded to whole blocks. Published is 128; smaller groups
            choose by costs that are up to date, and err less on layers of up to a thousand inputs.
        equal: Every group keeps the same share of its blocks, as published. By default each keeps
            as many as it has among the costliest of the whole layer, before any column is settled:
            groups on the left lose more, since those on the right make up for it. On correlated
            inputs this halves the error of large blocks.
        dtype: Type to compute in, float64 or float32.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Examples:
        >>> from sparsetile.prune._inputs import Inputs
        >>> inputs = Inputs.of(torch.tensor([[1.0, 1.0], [2.0, 2.0]]))
        >>> weight = torch.tensor([[3.0, 4.0]])
        >>> layer = Layer(name="up", weight=weight, blocksize=(1, 1), count=1, inputs=inputs)
        >>> kept = SparseGPT(damping=1e-6).prune(layer)
        >>> kept.blocks, kept.weight.round()
        (tensor([[False,  True]]), tensor([[0., 7.]]))
    """

    damping: float = 0.01
    columns: int = 16
    equal: bool = False
    dtype: torch.dtype = torch.float64
    needs: ClassVar[Needs] = "gram"

    def __post_init__(self) -> None:
        checked_positive("damping", self.damping, fix="the paper takes 0.01")
        checked_int("columns", self.columns, fix="the paper takes 128")
        checked_flag("equal", self.equal)
        check_solver_dtype(self.dtype)

    @torch.no_grad()
    def prune(self, layer: Layer) -> Kept:
        """Choose the blocks of a layer and update what is kept.

        Args:
            layer: The layer, with its inputs.

        Returns:
            The blocks, and the weight with zeros elsewhere.

        Raises:
            ValueError: If the inputs are too degenerate to solve for.
        """
        assert layer.inputs is not None and layer.inputs.gram is not None
        (m, k), (r, c), (mb, kb) = layer.weight.shape, layer.blocksize, layer.grid
        kept = torch.zeros_like(layer.live)
        if not kept.numel():
            return Kept(kept, layer.weight)
        U, R = inverse_factor(layer.inputs.gram, self.damping, self.dtype, layer.name)
        # Padding has unit inputs of its own and zero weights: it costs and moves nothing.
        W = pad(layer.weight.to(self.dtype), (0, kb * c - k, 0, mb * r - m))
        U, R = _extended(U, kb * c), _extended(R, kb * c)
        width = max(self.columns // c, 1)
        if layer.nm is not None:
            width = max(width // layer.nm.m, 1) * layer.nm.m
        best = None if self.equal else strongest(_costs(W, R, (r, c)), layer.count, layer.live)
        groups = [slice(g, min(g + width, kb)) for g in range(0, kb, width)]
        counts = _counts(layer, groups, best)
        for group, count in zip(groups, counts, strict=True):
            cols = slice(group.start * c, group.stop * c)
            if layer.given is not None:
                kept[:, group] = layer.given[:, group]
            elif layer.nm is None:
                costs = _costs(W[:, cols], R[cols, cols], (r, c))
                kept[:, group] = strongest(costs, count, layer.live[:, group])
            error = torch.zeros_like(W[:, cols])
            for j in range(group.start, group.stop):
                if layer.nm is not None and j % layer.nm.m == 0:
                    few = slice(j, min(j + layer.nm.m, kb))
                    kept[:, few] = layer.nm.strongest(_costs(W[:, few], R[few, few], (1, 1)))
                here, rest = slice(j * c, (j + 1) * c), slice((j + 1) * c, cols.stop)
                gone = ~kept[:, j].repeat_interleave(r)[:, None]
                # w [H⁻¹]⁻¹ times the rows of H⁻¹, with both written by their triangular factors.
                mine = (W[:, here] @ R[here, here]) * gone
                error[:, j * c - cols.start : (j + 1) * c - cols.start] = mine
                W[:, here].masked_fill_(gone, 0)
                W[:, rest] -= mine @ U[here, rest]
            W[:, cols.stop :] -= error @ U[cols, cols.stop :]
        return Kept(kept, W[:m, :k].to(layer.weight.dtype))


def _counts(layer: Layer, groups: list[slice], best: Bool[Tensor, "mb kb"] | None) -> list[int]:
    """How many blocks each group keeps: its part of the best ones, or a share by its size."""
    if best is not None:
        return [int(best[:, group].sum()) for group in groups]
    room = [int(layer.live[:, group].sum()) for group in groups]
    counts: list[int] = []
    for group, most in zip(groups, room, strict=True):
        due = round(layer.count * group.stop / layer.grid[1]) - sum(counts)
        counts.append(min(max(due, 0), most))
    # What full groups could not take goes to the others.
    for i, most in enumerate(room):
        counts[i] += min(layer.count - sum(counts), most - counts[i])
    return counts


def _extended(factor: Float[Tensor, "k k"], size: int) -> Float[Tensor, "size size"]:
    extended = torch.eye(size, dtype=factor.dtype, device=factor.device)
    extended[: len(factor), : len(factor)] = factor
    return extended


def _costs(
    W: Float[Tensor, "m k"], R: Float[Tensor, "k k"], blocksize: tuple[int, int]
) -> Float[Tensor, "mb kb"]:
    """What removing each block costs, once all columns to its left are settled."""
    r, c = blocksize
    n = W.shape[1] // c
    # `w [H⁻¹]⁻¹ wᵀ = ‖w R‖²` with R at the block's own columns.
    own = R.view(n, c, n, c).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    moved = torch.einsum("mgc,gcd->mgd", W.unflatten(1, (n, c)), own)
    return moved.square().sum(2).unflatten(0, (-1, r)).sum(1)
