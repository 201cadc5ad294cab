"""The gradient of a layer's weight where nothing is stored, never the whole of it at once."""

from collections.abc import Iterator
from typing import Literal, Protocol, get_args, runtime_checkable

import torch
import torch.distributed
from jaxtyping import Float, Int64
from torch import Tensor

from sparsetile.nn import BlockSparse
from sparsetile.ops import embedding_grad, sddmm
from sparsetile.train._positions import pattern_at

Norm = Literal["l1", "l2", "max"]
NORMS = get_args(Norm)

_CHUNK = 1 << 20  # numbers of the gradient that exist at once


@runtime_checkable
class Gradient(Protocol):
    """Scores the blocks of a weight's gradient, some block rows at a time."""

    def scores(self, norm: Norm) -> Iterator[tuple[int, Float[Tensor, "rows kb"]]]:
        """Give the first block row and the scores of each chunk, negative where unknown.

        The same ones each time: constraints ask more than once.
        """
        ...


class WholeGradient:
    """Keeps the factors of a layer's gradient and scores every block of it, chunk by chunk.

    It holds inputs and output gradients of one optimizer step, as much as autograd held of them.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> whole = WholeGradient(Linear(4, 4, blocksize=2, density=0.5))
        >>> whole.see(torch.ones(4, 3), torch.ones(3, 4))
        >>> next(whole.scores("l1"))
        (0, tensor([[12., 12.],
                [12., 12.]]))
    """

    def __init__(self, layer: BlockSparse) -> None:
        self._shape, self._blocksize = layer.shape, layer.blocksize
        self._grid = layer.pattern.grid
        self._dtype, self._device = _wide(layer.values.dtype), layer.values.device
        self._factors: list[tuple[Tensor, Tensor]] = []

    def see(self, a: Tensor, b: Tensor) -> None:
        """Note the factors of one backward pass, as `ops.watch` gives them."""
        a, b = a.detach(), b.detach()
        if not a.is_floating_point():  # rows of a table
            a, b = a.flatten(), b.reshape(a.numel(), -1)
        elif a.ndim > 2:
            a, b = a.mT.flatten(0, -2).mT, b.flatten(0, -2)
        self._factors.append((a, b))

    @torch.no_grad()
    def scores(self, norm: Norm) -> Iterator[tuple[int, Float[Tensor, "rows kb"]]]:
        """Give the first block row and the scores of each chunk."""
        (m, k), (r, c), (mb, kb) = self._shape, self._blocksize, self._grid
        # A step that a gradient scaler skipped leaves factors that overflowed.
        factors = [pair for pair in self._factors if all(map(_finite, pair))]
        wide = [(a, b.to(self._dtype)) for a, b in factors]
        step = max(1, _CHUNK // max(r * k, 1))
        for first in range(0, mb, step):
            rows = slice(first * r, min((first + step) * r, m))
            count = min(step, mb - first)
            padded = torch.zeros(count * r, kb * c, dtype=self._dtype, device=self._device)
            chunk = padded[: rows.stop - rows.start, :k]
            for a, b in wide:
                if a.is_floating_point():
                    chunk.addmm_(a[rows].to(self._dtype), b)
                else:
                    here = (a >= rows.start) & (a < rows.stop)
                    chunk.index_add_(0, a[here] - rows.start, b[here])
            _sum_over_processes(padded)
            yield first, pooled(padded.view(count, r, kb, c).transpose(1, 2), norm)


class SampledGradient:
    """Sums the gradient at some blocks of a weight, by sampled products.

    Args:
        layer: The layer.
        places: Positions of the blocks, ascending.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> sampled = SampledGradient(Linear(4, 4, blocksize=2, density=0.5), torch.tensor([1]))
        >>> sampled.see(torch.ones(4, 3), torch.ones(3, 4))
        >>> next(sampled.scores("max"))
        (0, tensor([[-1.,  3.],
                [-1., -1.]]))
    """

    def __init__(self, layer: BlockSparse, places: Int64[Tensor, " n"]) -> None:
        self.places = places
        self._pattern = pattern_at(layer, places)
        values = layer.values
        dtype, shape = _wide(values.dtype), (len(places), *layer.blocksize)
        self.total: Float[Tensor, "n r c"] = torch.zeros(shape, dtype=dtype, device=values.device)

    @torch.no_grad()
    def see(self, a: Tensor, b: Tensor) -> None:
        """Add the blocks of one backward pass, of factors as `ops.watch` gives them."""
        a, b = a.detach(), b.detach()
        if not a.is_floating_point():  # rows of a table
            blocks = embedding_grad(a, b, self._pattern)
        else:
            if a.ndim > 2:
                a, b = a.mT.flatten(0, -2).mT, b.flatten(0, -2)
            blocks = sddmm(a, b, self._pattern)
        if blocks.isfinite().all():  # else of a step that a gradient scaler skips
            self.total += blocks

    def taken(self) -> Float[Tensor, "n r c"]:
        """Give the sum so far, of all processes, and begin anew."""
        total, self.total = self.total, torch.zeros_like(self.total)
        _sum_over_processes(total)
        return total

    def scores(self, norm: Norm) -> Iterator[tuple[int, Float[Tensor, "rows kb"]]]:
        """Give the first block row and the scores of each chunk, -1 where nothing was sampled."""
        total = self.total.clone()  # a constraint may ask twice
        _sum_over_processes(total)
        return spread(pooled(total, norm), self.places, self._pattern.grid)


def spread(
    scores: Float[Tensor, " n"], places: Int64[Tensor, " n"], grid: tuple[int, int]
) -> Iterator[tuple[int, Float[Tensor, "rows kb"]]]:
    """Lay scores out in chunks of block rows, -1 where there is none.

    Args:
        scores: One score for each position.
        places: The positions, ascending.
        grid: Block rows and block columns.

    Yields:
        The first block row and the scores of each chunk.

    Examples:
        >>> next(spread(torch.tensor([5.0]), torch.tensor([2]), (2, 2)))
        (0, tensor([[-1., -1.],
                [ 5., -1.]]))
    """
    mb, kb = grid
    step = max(1, _CHUNK // max(kb, 1))
    for first in range(0, mb, step):
        count = min(step, mb - first)
        chunk = scores.new_full((count * kb,), -1)
        bounds = torch.tensor([first * kb, (first + count) * kb], device=places.device)
        low, high = torch.searchsorted(places, bounds).tolist()
        chunk[places[low:high] - first * kb] = scores[low:high]
        yield first, chunk.view(count, kb)


def pooled(blocks: Float[Tensor, "*n r c"], norm: Norm) -> Float[Tensor, "*n"]:
    """Score blocks.

    Args:
        blocks: Blocks `[..., r, c]`.
        norm: Sum of magnitudes, root of the sum of squares, or largest magnitude.

    Returns:
        One score for each block.

    Examples:
        >>> pooled(torch.tensor([[[3.0, -4.0]]]), "l2")
        tensor([5.])
    """
    if blocks.shape[-2:] == (1, 1):  # every norm of one number
        return blocks[..., 0, 0].abs()
    if norm == "l1":
        return blocks.abs().sum(dim=(-2, -1))
    if norm == "l2":
        return torch.linalg.vector_norm(blocks, dim=(-2, -1))
    return blocks.abs().amax(dim=(-2, -1))


def _finite(tensor: Tensor) -> bool:
    """Say whether all numbers are finite, in one pass without a tensor of truths."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    low, high = tensor.aminmax()  # NaN if there is one
    return bool((low.isfinite() & high.isfinite()).item())


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _sum_over_processes(total: Tensor) -> None:
    """Under distributed training every process must choose by the same gradient."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(total)
