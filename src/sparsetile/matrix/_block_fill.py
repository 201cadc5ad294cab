"""How full blocks of several sizes would be: whether a sparse matrix gains from blocks at all."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._check import as_blocksize, check_dense, describe, message
from sparsetile.matrix._convert import pattern_of_elements, spell_out, to_rows
from sparsetile.matrix._pattern import Pattern

_INDEX_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class BlockFill:
    """What storing a matrix in blocks of one size comes to.

    Attributes:
        shape: Rows and columns `(m, k)` of the matrix.
        blocksize: Rows and columns `(r, c)` of a block.
        nonzeros: Elements that are not zero.
        live: Blocks that hold one, which are the blocks to store.
        blocks: All blocks.
        dtype: Type of the values that bytes are counted for.

    Examples:
        >>> block_fill(torch.eye(64), blocksizes=(16,))[0].bytes
        4132
    """

    shape: tuple[int, int]
    blocksize: tuple[int, int]
    nonzeros: int
    live: int
    blocks: int
    dtype: torch.dtype

    @property
    def share_live(self) -> float:
        """Live blocks over all blocks; 0 of none."""
        return self.live / max(self.blocks, 1)

    @property
    def fill(self) -> float:
        """Share of the stored values that are not zero; 1 if nothing is stored."""
        stored = self.live * self.blocksize[0] * self.blocksize[1]
        return self.nonzeros / stored if stored else 1.0

    @property
    def zeros(self) -> float:
        """Share of the matrix's elements that are zero; 0 of none."""
        elements = self.shape[0] * self.shape[1]
        return 1 - self.nonzeros / elements if elements else 0.0

    @property
    def bytes(self) -> int:
        """Values, column indices and row offsets of the blocks, indices as int32."""
        rows = -(-self.shape[0] // self.blocksize[0])
        values = self.live * self.blocksize[0] * self.blocksize[1] * self.dtype.itemsize
        return values + _INDEX_BYTES * (self.live + rows + 1)

    @property
    def dense_bytes(self) -> int:
        """Values of the dense matrix."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def __str__(self) -> str:
        r, c = self.blocksize
        but = "but" if self.share_live > 1.5 * (1 - self.zeros) else "and"
        size = self.bytes / max(self.dense_bytes, 1)
        return (
            f"{_percent(self.zeros)} zeros, {but} {_percent(self.share_live)} of {r}×{c} blocks "
            f"are live: {_percent(self.fill)} of what is stored is not zero, and it takes "
            f"{size:.2f}× the bytes of the dense matrix"
        )


def block_fill(
    weight: Tensor | BSR | Pattern,
    blocksizes: Sequence[int | tuple[int, int]] = (1, 4, 8, 16, 32),
    *,
    dtype: torch.dtype | None = None,
) -> tuple[BlockFill, ...]:
    """Count how many blocks of several sizes hold something, and how full they would be.

    A matrix with many zeros gains from blocks only if the zeros fill whole blocks: of random zeros
    at 90 %, nearly every block of 16×16 holds some value.

    Args:
        weight: A dense matrix `[m, k]`, or a BSR, whose stored zeros count as zeros, or a pattern,
            whose stored elements count as not zero.
        blocksizes: Blocks to try, each a side of a square or `(r, c)`; they need not divide the
            shape.
        dtype: Type of the values to count bytes for; None is the weight's, float32 of a pattern.

    Returns:
        One for each blocksize.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If a blocksize is below 1, or the weight is no matrix that holds data.

    Examples:
        >>> w = torch.zeros(64, 64)
        >>> w[::8, ::8] = 1
        >>> print(block_fill(w)[2])
        98 % zeros, but 100 % of 8×8 blocks are live: 1.6 % of what is stored is not zero, and it \
takes 1.02× the bytes of the dense matrix
    """
    if not isinstance(blocksizes, Sequence) or isinstance(blocksizes, str):
        fix = "pass several, as in blocksizes=(4, 16)"
        got = describe(blocksizes)
        raise TypeError(message("blocksizes", got=got, allowed="a list of blocksizes", fix=fix))
    sides = [as_blocksize(side, f"blocksizes[{at}]") for at, side in enumerate(blocksizes)]
    if dtype is not None and not isinstance(dtype, torch.dtype):
        fix = "leave it out for the weight's own"
        raise TypeError(message("dtype", got=describe(dtype), allowed="a torch dtype", fix=fix))
    shape, rows, cols = nonzeros_of("weight", weight)
    if dtype is None:
        dtype = torch.float32 if isinstance(weight, Pattern) else weight.dtype
    return tuple(
        BlockFill(
            shape=shape,
            blocksize=(r, c),
            nonzeros=len(rows),
            live=pattern_of_elements(shape, (r, c), rows, cols).nnzb,
            blocks=-(-shape[0] // r) * -(-shape[1] // c),
            dtype=dtype,
        )
        for r, c in sides
    )


def nonzeros_of(
    name: str, weight: object
) -> tuple[tuple[int, int], Int64[Tensor, " n"], Int64[Tensor, " n"]]:
    """List the elements of a matrix that are not zero, on the CPU.

    Args:
        name: The argument, for the message.
        weight: A dense matrix, a BSR, or a pattern, of which every stored element is listed.

    Returns:
        Shape, and row and column of each, row by row.

    Raises:
        TypeError: If it is none of these.
        ValueError: If it is no matrix that holds data.

    Examples:
        >>> nonzeros_of("weight", torch.eye(2))
        ((2, 2), tensor([0, 1]), tensor([0, 1]))
    """
    if isinstance(weight, Pattern):
        # One stored value seen everywhere: no memory for values that are not looked at.
        ones = torch.ones(1, 1, 1, dtype=torch.bool).expand(weight.nnzb, *weight.blocksize)
        weight = BSR(ones, weight.to("cpu"))
    if isinstance(weight, BSR):
        crow, col, _ = to_rows(weight.detach().cpu(), drop_zeros=True)
        return weight.shape, spell_out(crow), col
    check_dense(name, weight)
    assert isinstance(weight, Tensor)
    rows, cols = weight.detach().nonzero(as_tuple=True)
    return (weight.shape[0], weight.shape[1]), rows.cpu(), cols.cpu()


def _percent(share: float) -> str:
    """A share as a percentage that is 100 only when it is all."""
    value = 100 * share
    if 99.5 <= value < 100:
        return "over 99 %"
    return f"{value:.1f} %" if 0 < value < 10 else f"{value:.0f} %"
