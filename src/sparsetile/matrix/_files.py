"""Matrices and patterns in files: one door, by the suffix of the name."""

import os
from collections.abc import Callable
from gzip import GzipFile
from io import BufferedIOBase
from pathlib import Path

import torch

from sparsetile._whole import write_whole
from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._check import as_blocksize, describe, message
from sparsetile.matrix._convert import from_elements, pattern_of_elements, reblock
from sparsetile.matrix._entries import Entries, Stored, check_places, check_sides
from sparsetile.matrix._mtx import read_mtx, write_mtx
from sparsetile.matrix._npz import read_npz, write_npz
from sparsetile.matrix._pattern import Pattern
from sparsetile.matrix._pt import read_pt, write_pt
from sparsetile.matrix._safetensors import read_safetensors, safetensors_bytes
from sparsetile.matrix._smtx import read_smtx, smtx_text

_READERS: dict[str, Callable[[Path], Stored]] = {
    ".mtx": read_mtx,
    ".mtx.gz": read_mtx,
    ".smtx": read_smtx,
    ".smtx.gz": read_smtx,
    ".npz": read_npz,
    ".pt": read_pt,
    ".safetensors": read_safetensors,
}
_WRITERS: dict[str, Callable[[BufferedIOBase, BSR | Pattern], None]] = {
    ".mtx": write_mtx,
    ".npz": write_npz,
    ".pt": write_pt,
}


def load(path: str | os.PathLike[str], blocksize: int | tuple[int, int] | None = None) -> BSR:
    r"""Read a matrix from a file; the suffix of its name says how.

    - `.mtx`, `.mtx.gz`: Matrix Market (coordinate, array; real, integer, pattern; any symmetry).
    - `.smtx`, `.smtx.gz`: a pattern of the Deep Learning Matrix Collection.
    - `.npz`: what `scipy.sparse.save_npz` wrote (CSR, CSC, BSR, COO or DIA).
    - `.pt`: what `torch.save` wrote (one sparse or dense tensor, a BSR or a Pattern).
    - `.safetensors`: what `save` wrote.

    Duplicates are summed. Explicit zeros stay; of a dense matrix only what is not zero is taken. A
    pattern gives ones, in float64. Matrix Market's numbers are float64, its integers int64; the
    other files keep their dtype. Memory is asked for as data come, never for what a head announces,
    and nothing in a file is run.

    Args:
        path: The file.
        blocksize: Side of a square block or `(r, c)`; it need not divide the shape. None keeps the
            file's own blocks where it has them, else takes single elements.

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
        ...     path = Path(folder, "a.safetensors")
        ...     save(BSR.from_dense(torch.eye(4), 2), path)
        ...     load(path), load(path, blocksize=1).nnzb
        (BSR(4×4, blocksize=2, density=0.50, 2 blocks, float32, cpu), 8)
    """
    content, sides = _read("load", path, blocksize)
    if isinstance(content, Entries):
        shape, rows, cols, values = content
        return from_elements(shape, sides or (1, 1), rows, cols, values)
    if isinstance(content, Pattern):
        values = torch.ones(content.nnzb, *content.blocksize, dtype=torch.float64)
        content = BSR(values, content)
    return content if sides is None else reblock(content, sides)


def load_pattern(
    path: str | os.PathLike[str], blocksize: int | tuple[int, int] | None = None
) -> Pattern:
    r"""Read which elements a file stores, and take the blocks that hold them.

    Explicit zeros count as stored; of a dense matrix only what is not zero.

    Args:
        path: A file as for `load`.
        blocksize: Side of a square block or `(r, c)`; it need not divide the shape. None keeps the
            file's own blocks where it has them, else takes single elements.

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
        ...     load_pattern(path, blocksize=2)
        Pattern(4×6, blocksize=2, density=0.50, 3 blocks, cpu)
    """
    content, sides = _read("load_pattern", path, blocksize)
    if isinstance(content, Entries):
        return pattern_of_elements(content.shape, sides or (1, 1), content.rows, content.cols)
    pattern = content if isinstance(content, Pattern) else content.pattern
    if sides in (None, pattern.blocksize):
        return pattern
    stored = torch.ones(1, 1, 1, dtype=torch.bool).expand(pattern.nnzb, *pattern.blocksize)
    return reblock(BSR(stored, pattern), sides).pattern


def save(A: BSR | Pattern, path: str | os.PathLike[str]) -> None:
    r"""Write a matrix or a pattern to a file, whole or not at all; the suffix says how.

    `.safetensors` and `.pt` keep blocks, dtype and every bit. `.npz` is scipy's BSR, or its CSR
    where blocks are ragged. In `.mtx` and `.smtx` blocks are spelled out element by element, zeros
    within them too: reading them back with the same blocksize gives the same matrix. `.npz` and
    `.mtx` hold 16-bit floats as float32.

    Args:
        A: A matrix, or a pattern for a file without values (in `.npz`, ones of bool).
        path: Where to: `.mtx`, `.npz`, `.pt`, `.safetensors` or, for a pattern, `.smtx`; text also
            packed, as `.mtx.gz`. A file of that name is replaced.

    Raises:
        FileNotFoundError: If there is no such folder.
        ImportError: If `.mtx` or `.npz` is written without scipy.
        TypeError: If `A` is neither, or its dtype is not one that such a file has.
        ValueError: If the suffix is another one, or a matrix is written to `.smtx`.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "layer.smtx")
        ...     save(Pattern((2, 4), 2, [0, 1], [1]), path)
        ...     path.read_text()
        '2, 4, 4\n0 2 4\n2 3 2 3\n'
    """
    if not isinstance(A, BSR | Pattern):
        fix = "make one with BSR.from_dense, and pass it first: save(A, path)"
        raise TypeError(message("A", got=describe(A), allowed="a BSR or a Pattern", fix=fix))
    target, suffix = _as_path("save", path)
    if not target.parent.is_dir():
        got, fix = f"no folder {target.parent}", "make it first"
        allowed = "a file in a folder that exists"
        raise FileNotFoundError(message("save", got=got, allowed=allowed, fix=fix))
    kind = suffix.removesuffix(".gz")
    if kind == ".smtx" and isinstance(A, BSR):
        allowed, fix = "a Pattern: .smtx holds no values", "save A.pattern, or save to .mtx"
        raise ValueError(message(str(path), got="a BSR", allowed=allowed, fix=fix))
    write_whole(target, lambda file: _write(file, A, kind, packed=suffix != kind))


def _write(file: BufferedIOBase, A: BSR | Pattern, kind: str, *, packed: bool) -> None:
    """Write to an open file."""
    if packed:
        # No name and no time in it: the same matrix gives the same file.
        with GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as inner:
            _write(inner, A, kind, packed=False)
    elif isinstance(A, Pattern) and kind == ".smtx":
        file.write(smtx_text(A))
    elif kind == ".safetensors":
        file.write(safetensors_bytes(A))
    else:
        _WRITERS[kind](file, A)


def _read(
    asked: str, path: str | os.PathLike[str], blocksize: int | tuple[int, int] | None
) -> tuple[Entries | BSR | Pattern, tuple[int, int] | None]:
    """Read a file whose grid of blocks will be in proportion to it."""
    sides = None if blocksize is None else as_blocksize(blocksize)
    source, suffix = _as_path(asked, path)
    if not source.is_file():
        got = "a folder or device" if source.exists() else "no such file"
        fix = "check the path, and from which folder it starts"
        text = message(f"{asked}({str(path)!r})", got=got, allowed="a file", fix=fix)
        raise FileNotFoundError(text)
    content, size = _READERS[suffix](source)
    if isinstance(content, Entries):
        check_sides(source, content.shape, sides or (1, 1), size=size)
        check_places(source, content)
    elif sides is not None and sides != content.blocksize:
        # Blocks are spelled out row by row on the way.
        check_sides(source, content.shape, (1, 1), size=size)
        check_sides(source, content.shape, sides, size=size)
    return content, sides


def _as_path(asked: str, path: object) -> tuple[Path, str]:
    """Take a path whose suffix is one of those known."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        got, fix = describe(path), 'pass a name, as in "layer.mtx"'
        raise TypeError(message("path", got=got, allowed="a string or a Path", fix=fix))
    target = Path(path)
    endings = [ending.lower() for ending in target.suffixes]
    packed = endings[-1:] == [".gz"]
    suffix = "".join(endings[-2:] if packed else endings[-1:])
    if suffix not in _READERS:
        fix = "unpack it first" if packed else "convert it to one of these first"
        got, allowed = f"the suffix {suffix!r}", ", ".join(_READERS)
        raise ValueError(message(f"{asked}({str(path)!r})", got=got, allowed=allowed, fix=fix))
    return target, suffix
