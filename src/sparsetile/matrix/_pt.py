"""Matrices and patterns in torch's own files, `.pt`."""

import warnings
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import Tensor

from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._entries import DTYPES, Entries, Stored, bad_file, check_sides
from sparsetile.matrix._pattern import Pattern
from sparsetile.matrix._pt_scan import NotOneMatrixError, scan_pt
from sparsetile.matrix._torch import elements_of, from_torch

_DTYPES = (*DTYPES, torch.bfloat16, torch.complex64, torch.complex128)
_ALLOWED = "one matrix: a tensor of torch, sparse or dense, a BSR or a Pattern"


def read_pt(path: Path) -> Stored:
    """Read what `torch.save` wrote: one tensor, BSR or Pattern; `load` documents it.

    Args:
        path: The file.

    Returns:
        The matrix, in its own blocks where it has them; of a dense one the non-zero elements.

    Raises:
        ValueError: If the file is damaged, or holds something else.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.pt")
        ...     torch.save(torch.eye(4).to_sparse_coo(), path)
        ...     read_pt(path).content.rows
        tensor([0, 1, 2, 3])
    """
    fix = "save it again: torch.save(tensor.clone(), path)"
    try:
        scan_pt(path)
        with warnings.catch_warnings():
            # torch announces once that these layouts are in beta; whoever wrote one knows.
            warnings.filterwarnings("ignore", "Sparse (BSR|BSC|CSR|CSC)", UserWarning)
            found = torch.load(path, map_location="cpu", weights_only=True)
        size = path.stat().st_size
        return Stored(_content_of(path, found, size), size)
    except NotOneMatrixError as error:
        fix = "read models with sparsetile.models.read_checkpoint"
        raise bad_file(path, got=str(error), allowed=_ALLOWED, fix=fix) from None
    except Exception as error:  # of zipfile, pickle or torch: whatever is damaged
        # torch adds advice of many lines, to load without its checks.
        got = f"what torch refuses: {' '.join(str(error).split())[:300]}"
        raise bad_file(path, got=got, allowed=_ALLOWED, fix=fix) from None


def write_pt(file: BufferedIOBase, A: BSR | Pattern) -> None:
    """Write as `torch.save` does; `save` documents it.

    Args:
        file: Where to.
        A: A matrix or a pattern; it is written from the CPU and without its gradient.

    Examples:
        >>> from io import BytesIO
        >>> file = BytesIO()
        >>> write_pt(file, Pattern((2, 3), 1, [0, 1, 1], [2]))
        >>> torch.load(BytesIO(file.getvalue()), weights_only=True)
        Pattern(2×3, blocksize=1, density=0.17, 1 block, cpu)
    """
    if isinstance(A, BSR):
        # A view would take its whole storage along.
        A = BSR(A.values.detach().cpu().clone(), A.pattern.to("cpu"))
    else:
        A = A.to("cpu")
    # It takes any file that can be written to, whatever its annotation says.
    torch.save(A, cast(IO[bytes], file))


def _content_of(path: Path, found: Any, size: int) -> Entries | BSR | Pattern:
    """Take a matrix apart without asking for memory that its sizes alone would take."""
    if isinstance(found, Pattern):
        return found
    values = found.values if isinstance(found, BSR) else found
    if not isinstance(values, Tensor):
        raise NotOneMatrixError(f"a {type(found).__name__}")
    if values.dtype not in _DTYPES:
        raise ValueError(f"values of {values.dtype}")
    if isinstance(found, BSR):
        return found.detach()
    if found.ndim != 2:
        raise ValueError(f"a tensor of {found.ndim} dimensions, not 2")
    found, shape = found.detach(), (int(found.shape[0]), int(found.shape[1]))
    if found.layout in (torch.sparse_bsr, torch.sparse_bsc):
        r, c = found.values().shape[1:3]
        check_sides(path, shape, (r, c), size=size)
        return from_torch(found, None, drop_zero_blocks=False)
    return Entries(shape, *elements_of(found))
