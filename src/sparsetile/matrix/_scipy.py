"""Block-sparse matrices to and from scipy's sparse arrays; scipy is imported on the first call."""

from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._check import as_blocksize, as_choice, describe, message
from sparsetile.matrix._convert import drop_zero_blocks as without_zero_blocks
from sparsetile.matrix._convert import from_blocks, from_elements, reblock, spell_out, to_rows
from sparsetile.matrix._index import check_crow

FORMATS = ("bsr", "csr", "csc", "coo", "dia", "dok", "lil")


def from_scipy(s: Any, blocksize: int | tuple[int, int] | None, *, drop_zero_blocks: bool) -> BSR:
    """Take a scipy sparse array or matrix; `BSR.from_scipy` documents it.

    Args:
        s: The scipy matrix.
        blocksize: Blocks to store it in, or None.
        drop_zero_blocks: Leave out blocks of zeros.

    Returns:
        The matrix.

    Examples:
        >>> from scipy.sparse import eye_array
        >>> from_scipy(eye_array(4), 2, drop_zero_blocks=False).nnzb
        2
    """
    wanted = None if blocksize is None else as_blocksize(blocksize)
    if not scipy_module("scipy.sparse").issparse(s):
        raise TypeError(
            message(
                "s",
                got=describe(s),
                allowed="a scipy sparse array or matrix",
                fix="use BSR.from_torch for tensors, BSR.from_dense for dense ones",
            )
        )
    if s.ndim != 2:
        allowed, fix = "two dimensions", "reshape it to a matrix first"
        raise ValueError(message("s", got=f"{s.ndim} dimension(s)", allowed=allowed, fix=fix))
    shape = (int(s.shape[0]), int(s.shape[1]))
    if s.format == "bsr":
        r, c = s.blocksize
        crow, cols, values = _tensor(s.indptr), _tensor(s.indices), _tensor(s.data)
        check_crow(crow, shape[0] // r, len(cols))
        # scipy builds matrices without blocks with data of shape (0, r, c) or smaller.
        blocks = values.reshape(len(cols), r, c)
        A = reblock(from_blocks(shape, (r, c), spell_out(crow), cols, blocks), wanted or (r, c))
    else:
        if s.format in ("csr", "csc"):
            # tocoo follows the offsets wherever they point. Room beyond the last one is allowed.
            stored = len(s.indices[: s.indptr[-1]])
            check_crow(_tensor(s.indptr), shape[s.format == "csc"], stored)
        entries = s.tocoo()
        rows, cols, values = (_tensor(a) for a in (entries.row, entries.col, entries.data))
        A = from_elements(shape, wanted or (1, 1), rows, cols, values)
    return without_zero_blocks(A) if drop_zero_blocks else A


def to_scipy(A: BSR, format: str, *, drop_zeros: bool) -> Any:
    """Make a scipy sparse array; `BSR.to_scipy` documents it.

    Args:
        A: The matrix.
        format: scipy's name of the format.
        drop_zeros: Leave out blocks or elements of zero.

    Returns:
        The array.

    Examples:
        >>> to_scipy(BSR.from_dense(torch.eye(4), 2), "bsr", drop_zeros=False).blocksize
        (2, 2)
    """
    sparse = scipy_module("scipy.sparse")
    as_choice("format", format, FORMATS)
    if A.dtype in (torch.bfloat16, torch.float16):
        raise TypeError(
            message(
                "to_scipy",
                got=f"a {str(A.dtype).removeprefix('torch.')} matrix",
                allowed="dtypes that scipy computes with: float32, float64 and integers",
                fix="convert it with A.float() first",
            )
        )
    A = A.detach().cpu()
    if format == "bsr":
        if A.pattern.ragged:
            raise ValueError(
                message(
                    "to_scipy('bsr')",
                    got=A.pattern.summary(),
                    allowed="shapes that are multiples of the blocksize",
                    fix='use format "csr", which holds any shape',
                )
            )
        A = without_zero_blocks(A) if drop_zeros else A
        crow, col = A.pattern.crow_indices, A.pattern.col_indices
        parts = (A.values.clone().numpy(), col.clone().numpy(), crow.clone().numpy())
        return sparse.bsr_array(parts, shape=A.shape, blocksize=A.blocksize)
    rows = to_rows(A, drop_zeros=drop_zeros)
    parts = (rows.values.numpy(), rows.col.numpy(), rows.crow.numpy())
    return sparse.csr_array(parts, shape=A.shape).asformat(format)


def _tensor(array: Any) -> Tensor:
    try:
        return torch.from_numpy(np.ascontiguousarray(array))
    except TypeError:
        raise TypeError(
            message(
                "s",
                got=f"values of dtype {array.dtype}",
                allowed="dtypes that torch knows",
                fix="convert it with s.astype('float64')",
            )
        ) from None


def scipy_module(name: str) -> ModuleType:
    """Import a part of scipy, or say how to get it.

    Args:
        name: The module, with dots.

    Returns:
        The module.

    Raises:
        ImportError: If there is no scipy.

    Examples:
        >>> scipy_module("scipy.io").__name__
        'scipy.io'
    """
    try:
        return import_module(name)
    except ImportError as missing:
        raise ImportError(
            message(
                name,
                got="no scipy",
                allowed="scipy 1.13 or newer",
                fix='install it: pip install "sparsetile[io]"',
            )
        ) from missing
