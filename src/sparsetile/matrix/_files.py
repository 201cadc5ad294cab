"""Matrices and patterns in files that other tools read and write too."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from sparsetile._whole import write_whole
from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._check import as_blocksize, describe, message
from sparsetile.matrix._convert import from_elements, pattern_of_elements
from sparsetile.matrix._entries import DTYPES, Entries, bad_file, check_sides
from sparsetile.matrix._mtx import read_mtx, write_mtx
from sparsetile.matrix._pattern import Pattern
from sparsetile.matrix._scipy import scipy_module
from sparsetile.matrix._smtx import read_smtx, smtx_text


def read_pattern(path: str | os.PathLike[str], blocksize: int | tuple[int, int] = 1) -> Pattern:
    r"""Read which elements a file stores, and take the blocks that hold them.

    Explicit zeros count as stored; of a dense file only what is not zero.

    Args:
        path: A Matrix Market file `.mtx` (sparse or dense, real, integer or pattern, symmetric
            kinds too), a pattern `.smtx` of the Deep Learning Matrix Collection (text: sizes,
            row offsets, column indices), or what `scipy.sparse.save_npz` wrote, `.npz`.
        blocksize: Side of a square block or `(r, c)`; it need not divide the shape.

    Returns:
        The pattern.

    Raises:
        FileNotFoundError: If there is no such file.
        ImportError: If `.npz` is read without scipy.
        TypeError: If an argument is of the wrong type.
        ValueError: If the suffix is another one, or the file is damaged; it says where.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "layer.smtx")
        ...     _ = path.write_text("4, 6, 3\n0 1 1 2 3\n5 0 4\n")
        ...     read_pattern(path, blocksize=2)
        Pattern(4×6, blocksize=2, density=0.50, 3 blocks, cpu)
    """
    known = {".mtx": read_mtx, ".smtx": read_smtx, ".npz": _read_npz}
    found, sides = _read("read_pattern", path, known, blocksize)
    return pattern_of_elements(found.shape, sides, found.rows, found.cols)


def read_matrix(path: str | os.PathLike[str], blocksize: int | tuple[int, int] = 1) -> BSR:
    """Read a matrix and store it in blocks.

    Duplicates are summed. Explicit zeros stay; of a dense file, blocks of zeros do not. Real and
    pattern files of Matrix Market give float64 (ones for a pattern), integer files int64.

    Args:
        path: A file `.mtx` or `.npz`, as for `read_pattern`.
        blocksize: Side of a square block or `(r, c)`; it need not divide the shape.

    Returns:
        The matrix, on the CPU.

    Raises:
        FileNotFoundError: If there is no such file.
        ImportError: If `.npz` is read without scipy.
        TypeError: If an argument is of the wrong type.
        ValueError: If the suffix is another one, or the file is damaged; it says where.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.mtx")
        ...     write_matrix(path, BSR.from_dense(torch.eye(4), 2))
        ...     read_matrix(path, blocksize=2).float()
        BSR(4×4, blocksize=2, density=0.50, 2 blocks, float32, cpu)
    """
    known = {".mtx": read_mtx, ".npz": _read_npz}
    found, sides = _read("read_matrix", path, known, blocksize)
    return from_elements(found.shape, sides, found.rows, found.cols, found.values)


def write_matrix(path: str | os.PathLike[str], A: BSR | Pattern) -> None:
    r"""Write a matrix or a pattern to a file, whole or not at all.

    Blocks are spelled out element by element, zeros within them too; reading them back with the
    same blocksize gives the same matrix. Values keep every bit; 16-bit ones are written as float32.

    Args:
        path: Where to: `.mtx` (Matrix Market, coordinate, general) or, for a pattern, `.smtx`.
            A file of that name is replaced.
        A: A matrix, or a pattern for a file without values.

    Raises:
        FileNotFoundError: If there is no such folder.
        ImportError: If `.mtx` is written without scipy.
        TypeError: If `A` is neither, or its dtype is not one that Matrix Market has.
        ValueError: If the suffix is another one, or a matrix is written to `.smtx`.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "layer.smtx")
        ...     write_matrix(path, Pattern((2, 4), 2, [0, 1], [1]))
        ...     path.read_text()
        '2, 4, 4\n0 2 4\n2 3 2 3\n'
    """
    target, suffix = _as_path("write_matrix", path, (".mtx", ".smtx"))
    if not isinstance(A, BSR | Pattern):
        fix = "make one with BSR.from_dense"
        raise TypeError(message("A", got=describe(A), allowed="a BSR or a Pattern", fix=fix))
    if not target.parent.is_dir():
        got, fix = f"no folder {target.parent}", "make it first"
        allowed = "a file in a folder that exists"
        raise FileNotFoundError(message("write_matrix", got=got, allowed=allowed, fix=fix))
    if suffix == ".mtx":
        write_whole(target, lambda file: write_mtx(file, A))
    elif isinstance(A, Pattern):
        write_whole(target, smtx_text(A))
    else:
        allowed, fix = "a Pattern: .smtx holds no values", "write A.pattern, or write to .mtx"
        raise ValueError(message(str(path), got="a BSR", allowed=allowed, fix=fix))


def _read(
    asked: str,
    path: str | os.PathLike[str],
    known: Mapping[str, Callable[[Path], Entries]],
    blocksize: int | tuple[int, int],
) -> tuple[Entries, tuple[int, int]]:
    """Read the elements of a file, for blocks that are not too many."""
    sides = as_blocksize(blocksize)
    source, suffix = _as_path(asked, path, tuple(known))
    if not source.is_file():
        got = "a folder or device" if source.exists() else "no such file"
        fix = "check the path, and from which folder it starts"
        text = message(f"{asked}({str(path)!r})", got=got, allowed="a file", fix=fix)
        raise FileNotFoundError(text)
    found = known[suffix](source)
    check_sides(source, found.shape, sides)
    return found, sides


def _as_path(asked: str, path: object, known: tuple[str, ...]) -> tuple[Path, str]:
    """Take a path whose suffix is one of those known."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        got, fix = describe(path), 'pass a name, as in "layer.mtx"'
        raise TypeError(message("path", got=got, allowed="a string or a Path", fix=fix))
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in known:
        fix = f"convert it to {known[0]} first; unpack archives"
        if suffix == ".smtx":
            fix = "it holds a pattern without values: read it with read_pattern"
        got, allowed = f"the suffix {suffix!r}", ", ".join(known)
        raise ValueError(message(f"{asked}({str(path)!r})", got=got, allowed=allowed, fix=fix))
    return target, suffix


def _read_npz(path: Path) -> Entries:
    """Read what scipy's save_npz wrote."""
    fix = "write it again with scipy.sparse.save_npz"
    sparse = scipy_module("scipy.sparse")
    try:
        with path.open("rb") as file:
            found = sparse.load_npz(file)
        if found.format in ("csr", "csc", "bsr"):
            # tocoo follows the offsets wherever they point.
            found.check_format(full_check=True)
        found = found.tocoo()
        parts = [torch.from_numpy(part) for part in (found.row, found.col, found.data)]
    except Exception as error:  # of zipfile, zlib, struct, numpy or scipy: whatever is damaged
        got, allowed = f"what scipy refuses: {error}", "a sparse matrix of scipy"
        raise bad_file(path, got=got, allowed=allowed, fix=fix) from None
    if parts[2].dtype not in DTYPES:
        got, allowed = f"{parts[2].dtype} values", "real floating or signed integer values"
        raise bad_file(path, got=got, allowed=allowed, fix=fix)
    return Entries((int(found.shape[0]), int(found.shape[1])), *parts)
