"""The kept weights that reproduce a layer's output best."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sparsetile.prune._check import check_solver_dtype, checked_positive
from sparsetile.prune._layer import Layer
from sparsetile.prune._solve import damped

_BYTES = 1 << 27  # of the matrices that are solved at once


@dataclass(frozen=True)
class LeastSquares:
    """Solves for the kept weights anew: least squares on the calibration data, given the pattern.

    Minimises `‖(W - Ŵ) X‖² + λ ‖W - Ŵ‖²` over the kept values of each block row, with `λ` the
    damping times the mean diagonal of `X Xᵀ`. Exact, whatever method chose the pattern, so no other
    values of the kept blocks come nearer to the dense layer on these data.

    Args:
        damping: Share of the mean diagonal; pulls towards the dense weights where data say little.
        dtype: Type to compute in, float64 or float32.

    Raises:
        TypeError: If the damping is no number.
        ValueError: If an argument is out of range.

    Examples:
        >>> from sparsetile.prune._inputs import Inputs
        >>> inputs = Inputs.of(torch.tensor([[1.0, 1.0], [2.0, 2.0]]))
        >>> weight = torch.tensor([[3.0, 4.0]])
        >>> layer = Layer(name="up", weight=weight, blocksize=(1, 1), count=1, inputs=inputs)
        >>> LeastSquares(damping=1e-9).solve(layer, torch.tensor([[True, False]])).round()
        tensor([[7., 0.]])
    """

    damping: float = 0.01
    dtype: torch.dtype = torch.float64

    def __post_init__(self) -> None:
        checked_positive("damping", self.damping, fix="0.01 suits most layers")
        check_solver_dtype(self.dtype)

    @torch.no_grad()
    def solve(self, layer: Layer, kept: Bool[Tensor, "mb kb"]) -> Float[Tensor, "m k"]:
        """Solve for the kept values of every block row.

        Args:
            layer: The dense layer, with its inputs.
            kept: Which blocks are kept.

        Returns:
            The weight, zero outside the kept blocks.

        Raises:
            ValueError: If the inputs are too degenerate to solve for.
        """
        assert layer.inputs is not None and layer.inputs.gram is not None
        (m, k), (r, c) = layer.weight.shape, layer.blocksize
        H = damped(layer.inputs.gram, self.damping, self.dtype)
        rows = -(-m // r)
        wide = torch.nn.functional.pad(layer.weight.to(self.dtype), (0, 0, 0, rows * r - m))
        wanted = (wide @ H).view(rows, r, k)
        solved = torch.zeros_like(wanted)
        sizes = kept.sum(1) * c
        order = sizes.argsort()
        first = 0
        while first < rows:
            # Rows of like size together, as many as fit.
            size = max(int(sizes[order[first]]), 1)
            here = order[first : first + max(_BYTES // (size * size * H.element_size()), 1)]
            size = min(int(sizes[here[-1]]), k)
            first += len(here)
            if size:
                columns = kept[here].repeat_interleave(c, dim=1)[:, :k]
                solved[here] = _solved(H, wanted[here], columns, size, layer.name)
        return solved.view(rows * r, k)[:m].to(layer.weight.dtype)


def _solved(
    H: Float[Tensor, "k k"],
    wanted: Float[Tensor, "n r k"],
    columns: Bool[Tensor, "n k"],
    size: int,
    name: str,
) -> Float[Tensor, "n r k"]:
    """Solve block rows at their own columns, each filled up to one size by unit equations."""
    index = (~columns).to(torch.uint8).argsort(dim=1, stable=True)[:, :size]
    valid = columns.gather(1, index)
    A = H[index[:, :, None], index[:, None, :]]
    A *= (valid[:, :, None] & valid[:, None, :]).to(A.dtype)
    A.diagonal(dim1=1, dim2=2).add_((~valid).to(A.dtype))
    spread = index[:, None, :].expand(-1, wanted.shape[1], -1)
    b = wanted.gather(2, spread) * valid[:, None, :]
    L, failed = torch.linalg.cholesky_ex(A)
    if bool(failed.any()):
        raise ValueError(
            f"the kept inputs of layer {name!r} have a singular Gram matrix; allowed: one that "
            "damping makes positive definite; raise LeastSquares(damping=…), or give more "
            "calibration data"
        )
    x = torch.cholesky_solve(b.mT, L).mT * valid[:, None, :]
    return torch.zeros_like(wanted).scatter_(2, spread, x)
