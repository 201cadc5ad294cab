"""Block-sparse matrices to and from torch's own sparse tensors."""

import warnings
from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._check import as_blocksize, describe, layout_name, message
from sparsetile.matrix._convert import (
    drop_zero_blocks as without_zero_blocks,
)
from sparsetile.matrix._convert import (
    from_blocks,
    from_elements,
    reblock,
    spell_out,
    to_rows,
)
from sparsetile.matrix._index import check_crow

LAYOUTS = {
    "bsr": torch.sparse_bsr,
    "bsc": torch.sparse_bsc,
    "csr": torch.sparse_csr,
    "csc": torch.sparse_csc,
    "coo": torch.sparse_coo,
    "strided": torch.strided,
}


def from_torch(
    t: Tensor, blocksize: int | tuple[int, int] | None, *, drop_zero_blocks: bool
) -> BSR:
    """Take a torch tensor of any layout; `BSR.from_torch` documents it.

    Args:
        t: The tensor.
        blocksize: Blocks to store it in, or None.
        drop_zero_blocks: Leave out blocks of zeros.

    Returns:
        The matrix.

    Examples:
        >>> from_torch(torch.eye(4).to_sparse_csr(), 2, drop_zero_blocks=False).nnzb
        2
    """
    wanted = None if blocksize is None else as_blocksize(blocksize)
    _check_source(t)
    t = t.detach()
    if t.layout == torch.strided:
        return BSR.from_dense(t, wanted, drop_zero_blocks=drop_zero_blocks)
    if t.layout in (torch.sparse_bsr, torch.sparse_bsc):
        A = _from_compressed_blocks(t, wanted)
    else:
        A = from_elements((t.shape[0], t.shape[1]), wanted or (1, 1), *elements_of(t))
    return without_zero_blocks(A) if drop_zero_blocks else A


def elements_of(
    t: Tensor,
) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"], Shaped[Tensor, " n"]]:
    """List the stored elements of a tensor without blocks, or those of a dense one but zero.

    Args:
        t: A tensor of two dimensions: COO, CSR, CSC or strided.

    Returns:
        Rows, columns and values, in the tensor's order.

    Raises:
        ValueError: If offsets are wrong, which torch does not check.

    Examples:
        >>> elements_of(torch.eye(2).to_sparse_csr())
        (tensor([0, 1]), tensor([0, 1]), tensor([1., 1.]))
    """
    _check_source(t)
    if t.layout == torch.strided:
        rows, cols = t.nonzero(as_tuple=True)
        return rows, cols, t[rows, cols]
    if t.layout == torch.sparse_coo:
        rows, cols = t._indices()
        return rows, cols, t._values()
    rows, cols = _places_of(t, (1, 1))
    return rows, cols, t.values()


def to_torch(A: BSR, layout: torch.layout | str, *, drop_zeros: bool) -> Tensor:
    """Make a torch tensor of another layout; `BSR.to_torch` documents it.

    Args:
        A: The matrix.
        layout: A torch layout or its short name.
        drop_zeros: Leave out blocks or elements of zero.

    Returns:
        The tensor.

    Examples:
        >>> to_torch(BSR.from_dense(torch.eye(4), 2), "csr", drop_zeros=True).values()
        tensor([1., 1., 1., 1.])
    """
    kind = LAYOUTS.get(layout) if isinstance(layout, str) else layout
    if kind is None or kind not in LAYOUTS.values():
        raise ValueError(
            message(
                "layout",
                got=describe(layout),
                allowed=", ".join(LAYOUTS),
                fix="pass one of these, or a torch layout",
            )
        )
    if kind == torch.strided:
        return A.detach().to_dense()
    with warnings.catch_warnings():
        # torch announces once that these layouts are in beta; whoever asks for one knows.
        warnings.filterwarnings("ignore", "Sparse (BSR|BSC|CSR|CSC)", UserWarning)
        return _build(A.detach(), kind, drop_zeros)


def _build(A: BSR, kind: torch.layout, drop_zeros: bool) -> Tensor:
    """Make the sparse tensor of a layout."""
    # The invariants hold because the pattern is valid, so torch need not check them again.
    make: dict[str, Any] = {"size": A.shape, "check_invariants": False}
    if kind in (torch.sparse_bsr, torch.sparse_bsc):
        _check_whole_blocks(A, kind)
        A = without_zero_blocks(A) if drop_zeros else A
        if kind == torch.sparse_bsr:
            crow, col = A.pattern.crow_indices.long(), A.pattern.col_indices.long()
            return torch.sparse_bsr_tensor(crow, col, A.values.clone(), **make)
        ccol, row = A.pattern.T.crow_indices.long(), A.pattern.T.col_indices.long()
        values = A.values[A.pattern.transpose_permutation]
        return torch.sparse_bsc_tensor(ccol, row, values, **make)
    if kind == torch.sparse_csc:
        return torch.sparse_csc_tensor(*to_rows(A.T, drop_zeros=drop_zeros), **make)
    crow, col, values = to_rows(A, drop_zeros=drop_zeros)
    if kind == torch.sparse_csr:
        return torch.sparse_csr_tensor(crow, col, values, **make)
    indices = torch.stack([spell_out(crow), col])
    return torch.sparse_coo_tensor(indices, values, is_coalesced=True, **make)


def _from_compressed_blocks(t: Tensor, wanted: tuple[int, int] | None) -> BSR:
    """Take BSR or BSC."""
    values = t.values()
    r, c = values.shape[1:]
    A = from_blocks((t.shape[0], t.shape[1]), (r, c), *_places_of(t, (r, c)), values)
    return reblock(A, wanted or (r, c))


def _places_of(
    t: Tensor, blocksize: tuple[int, int]
) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
    """Row and column of each block or element; offsets may be wrong: torch does not check them."""
    (m, k), (r, c) = (t.shape[0], t.shape[1]), blocksize
    by_row = t.layout in (torch.sparse_bsr, torch.sparse_csr)
    offsets = t.crow_indices() if by_row else t.ccol_indices()
    minor = t.col_indices() if by_row else t.row_indices()
    check_crow(offsets, m // r if by_row else k // c, len(minor))
    major = spell_out(offsets)
    return (major, minor) if by_row else (minor, major)


def _check_source(t: object) -> None:
    """Refuse what is not one matrix that holds data."""
    fix = "convert one matrix at a time"
    if not isinstance(t, Tensor):
        raise TypeError(
            message(
                "t",
                got=describe(t),
                allowed="a torch tensor",
                fix="use BSR.from_scipy for scipy matrices, torch.as_tensor for arrays",
            )
        )
    if t.layout not in LAYOUTS.values():
        raise ValueError(message("t", got=describe(t), allowed=", ".join(LAYOUTS), fix=fix))
    if t.ndim != 2 or (t.dense_dim() > 0 and t.layout != torch.strided):
        raise ValueError(
            message("t", got=describe(t), allowed="two dimensions, both sparse", fix=fix)
        )
    if t.is_meta:
        fix = "load it onto a device that holds data first"
        raise ValueError(message("t", got=describe(t), allowed="a tensor with data", fix=fix))


def _check_whole_blocks(A: BSR, kind: torch.layout) -> None:
    """Refuse ragged blocks, which torch cannot hold."""
    if A.pattern.ragged:
        raise ValueError(
            message(
                f"to_torch({layout_name(kind)})",
                got=A.pattern.summary(),
                allowed="shapes that are multiples of the blocksize",
                fix='use layout "csr" or "coo", which hold any shape',
            )
        )
