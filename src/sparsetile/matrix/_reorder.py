"""Rows and columns of a matrix put in an order in which fewer blocks hold anything."""

from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Int64
from torch import Tensor

from sparsetile.matrix._block_fill import BlockFill, block_fill, nonzeros_of
from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._check import as_blocksize, as_int, describe, message
from sparsetile.matrix._convert import from_elements, pattern_of_elements, spell_out, to_rows
from sparsetile.matrix._gather_groups import gather_groups
from sparsetile.matrix._pattern import Pattern

_Weight = TypeVar("_Weight", Tensor, BSR, Pattern)
# Fewer live blocks by less than this are not worth moving anything.
_WORTH = 0.05


@dataclass(frozen=True, eq=False, kw_only=True)
class Reordering:
    """An order of rows and columns, and what it does for the blocks of a matrix.

    With `W` the matrix, `V = reordering.apply(W)` is `W[rows][:, cols]`, so that `V @ x[cols]` is
    `(W @ x)[rows]`: neighbouring layers take the order over, or `x` and the result are permuted.

    Attributes:
        rows: int64 permutation `[m]`: new row i is old row `rows[i]`.
        cols: int64 permutation `[k]` of the columns, the same way.
        before: How full the blocks were.
        after: How full they are.

    Examples:
        >>> w = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
        >>> found = reorder(w, blocksize=(2, 1))
        >>> found.before.live, found.after.live
        (4, 2)
    """

    rows: Int64[Tensor, " m"]
    cols: Int64[Tensor, " k"]
    before: BlockFill
    after: BlockFill

    @property
    def gain(self) -> float:
        """Share of the live blocks that are saved, from 0 to 1; below 0 for an inverse."""
        return 1 - self.after.live / self.before.live if self.before.live else 0.0

    @property
    def inverse(self) -> "Reordering":
        """The way back: `inverse.apply(apply(w))` has the elements of `w` at their places."""
        rows, cols = torch.argsort(self.rows), torch.argsort(self.cols)
        return Reordering(rows=rows, cols=cols, before=self.after, after=self.before)

    def apply(self, weight: _Weight) -> _Weight:
        """Put the rows and columns of a matrix in this order.

        Args:
            weight: A dense matrix `[m, k]`, through which gradients flow back; a BSR or a pattern,
                which come back in blocks of `after.blocksize`, without zeros that were stored.

        Returns:
            The same kind of matrix, on its device.

        Raises:
            TypeError: If it is none of these.
            ValueError: If it is of another shape.

        Examples:
            >>> found = reorder(torch.eye(4), blocksize=2)
            >>> found.apply(BSR.from_dense(torch.eye(4), 1)).nnzb
            2
        """
        allowed, fix = f"a matrix of shape {list(self.before.shape)}", "reorder that one by itself"
        if not isinstance(weight, Tensor | BSR | Pattern):
            raise TypeError(message("weight", got=describe(weight), allowed=allowed, fix=fix))
        if tuple(weight.shape) != self.before.shape:
            got = describe(weight)
            raise ValueError(message("weight", got=got, allowed=allowed, fix=fix))
        rows, cols = self.rows.to(weight.device), self.cols.to(weight.device)
        if isinstance(weight, Tensor):
            return weight[rows][:, cols]
        shape, sides = weight.shape, self.after.blocksize
        new_row, new_col = torch.argsort(rows), torch.argsort(cols)
        if isinstance(weight, Pattern):
            _, row, col = nonzeros_of("weight", weight)
            row, col = new_row.cpu()[row], new_col.cpu()[col]
            return pattern_of_elements(shape, sides, row, col).to(weight.device)
        crow, col, values = to_rows(weight.detach(), drop_zeros=True)
        return from_elements(shape, sides, new_row[spell_out(crow)], new_col[col], values)

    def __str__(self) -> str:
        r, c = self.before.blocksize
        counts = f"{self.before.live} → {self.after.live} live blocks of {r}×{c}"
        if self.gain < _WORTH:
            return (
                f"{counts}: reordering gains almost nothing, as is usual where the zeros have no "
                "structure; store it 1×1 or dense"
            )
        return f"{counts}, filled {self.before.fill:.2f} → {self.after.fill:.2f}"


def reorder(
    weight: Tensor | BSR | Pattern,
    blocksize: int | tuple[int, int],
    *,
    rows: bool = True,
    cols: bool = True,
    seed: int = 0,
) -> Reordering:
    """Look for an order of rows and columns that gathers the non-zeros into fewer blocks.

    Finds blocks that a permutation hides, and part of what clusters allow. Zeros without structure,
    as of unstructured pruning, gain almost nothing from any order; the result then says so. Rows
    and columns are grouped by what they share, greedily and in turns; every step looks at all
    non-zeros of a few rows, so that a 4096×4096 matrix takes seconds.

    Args:
        weight: A dense matrix `[m, k]`, or a BSR, whose stored zeros count as zeros, or a pattern.
        blocksize: Side of a square block or `(r, c)`; it need not divide the shape.
        rows: Whether rows may move.
        cols: Whether columns may move.
        seed: Integer from 0 up; the same one gives the same order.

    Returns:
        The best order that was met; the order as it is, if none was better.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument is out of range.

    Examples:
        >>> w = BSR.random(64, 64, blocksize=8, density=0.25, seed=0).to_dense()
        >>> shuffled = w[torch.randperm(64)][:, torch.randperm(64)]
        >>> print(reorder(shuffled, blocksize=8))
        64 → 16 live blocks of 8×8, filled 0.25 → 1.00
    """
    sides = as_blocksize(blocksize)
    seed = as_int("seed", seed, least=0, fix="pass seed=0")
    for name, value in (("rows", rows), ("cols", cols)):
        if not isinstance(value, bool):
            fix = "say whether they may move"
            got = describe(value)
            raise TypeError(message(name, got=got, allowed="True or False", fix=fix))
    before = block_fill(weight, (sides,))[0]
    shape, row, col = nonzeros_of("weight", weight)
    places = (row.numpy(), col.numpy())
    found = gather_groups(shape, sides, places, free=(rows, cols), seed=seed)
    return Reordering(
        rows=torch.from_numpy(found.rows),
        cols=torch.from_numpy(found.cols),
        before=before,
        after=replace(before, live=found.live),
    )
