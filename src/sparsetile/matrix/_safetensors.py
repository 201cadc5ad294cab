"""Matrices and patterns in safetensors files, under keys of ours with versioned metadata."""

import re
from pathlib import Path

import torch
from torch import Tensor

from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._check import message
from sparsetile.matrix._entries import DTYPES, Stored, bad_file
from sparsetile.matrix._pattern import Pattern

VERSION = 1
_KEYS = ("values", "crow_indices", "col_indices")
_WIDE = (torch.bfloat16, torch.complex64)
_FIX = "get the file again, or write it with save"


def read_safetensors(path: Path) -> Stored:
    """Read `crow_indices`, `col_indices` and, of a matrix, `values`; `load` documents it.

    Args:
        path: The file.

    Returns:
        The matrix or pattern.

    Raises:
        ValueError: If the file is damaged, lacks one of our keys, or is of a newer version.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.safetensors")
        ...     _ = path.write_bytes(safetensors_bytes(BSR.from_dense(torch.eye(4), 2)))
        ...     read_safetensors(path).content
        BSR(4×4, blocksize=2, density=0.50, 2 blocks, float32, cpu)
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata, keys = file.metadata() or {}, sorted(file.keys())
            shape, blocksize = _head_of(path, metadata, keys)
            found = {key: file.get_tensor(key) for key in keys}
    except (SafetensorError, AttributeError, OverflowError, RuntimeError, TypeError) as error:
        # Whatever safetensors does not know: it has one error of its own, and names of dtypes
        # that this torch lacks.
        got, allowed = f"what safetensors refuses: {error}", "a whole file of safetensors"
        raise bad_file(path, got=got, allowed=allowed, fix=_FIX) from None
    return Stored(_build(path, shape, blocksize, found), path.stat().st_size)


def safetensors_bytes(A: BSR | Pattern) -> bytes:
    """Pack a matrix or a pattern; `save` documents it.

    Args:
        A: The matrix, or a pattern, which has no values.

    Returns:
        What the file holds.

    Raises:
        TypeError: If the dtype is not one that `load` reads.

    Examples:
        >>> len(safetensors_bytes(Pattern((2, 3), 1, [0, 1, 1], [2]))) > 16
        True
    """
    from safetensors.torch import save

    pattern = A.pattern if isinstance(A, BSR) else A
    found = {"crow_indices": pattern.crow_indices, "col_indices": pattern.col_indices}
    if isinstance(A, BSR):
        if A.dtype not in (*DTYPES, *_WIDE):
            allowed, fix = "real floating and integer dtypes, complex64", "convert it"
            raise TypeError(message("A", got=f"{A.dtype} values", allowed=allowed, fix=fix))
        found["values"] = A.values.detach()
    metadata = {
        "format": "pt",
        "sparsetile_version": str(VERSION),
        "shape": str(list(pattern.shape)),
        "blocksize": str(list(pattern.blocksize)),
    }
    return save({key: part.cpu().contiguous() for key, part in found.items()}, metadata)


def _head_of(
    path: Path, metadata: dict[str, str], keys: list[str]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Shape and blocksize from the metadata, once keys and version are right."""
    version = metadata.get("sparsetile_version")
    if version is None or not set(_KEYS[1:]) <= set(keys) <= set(_KEYS):
        got = f"keys {', '.join(keys)[:120] or 'none'}"
        if version is None:
            got = f"no sparsetile_version in the metadata, and {got}"
        allowed = f"one matrix: {', '.join(_KEYS)}, with the metadata of sparsetile"
        fix = "models have many tensors: read them with sparsetile.models.read_checkpoint"
        raise bad_file(path, got=got, allowed=allowed, fix=fix)
    if not re.fullmatch("[0-9]{1,6}", version) or int(version) < 1:
        got, allowed = f"sparsetile_version {version[:40]!r}", "a whole number from 1"
        raise bad_file(path, got=got, allowed=allowed, fix=_FIX)
    if int(version) > VERSION:
        allowed = f"versions up to {VERSION}, which this sparsetile knows"
        fix = "install a newer sparsetile"
        raise bad_file(path, got=f"format version {int(version)}", allowed=allowed, fix=fix)
    pairs = []
    for key in ("shape", "blocksize"):
        text = metadata.get(key, "")
        pair = re.fullmatch(r"\[([0-9]{1,18}), ?([0-9]{1,18})\]", text)
        if pair is None:
            got, allowed = f"{text[:40]!r} as {key}", f"two whole numbers in the metadata's {key}"
            raise bad_file(path, got=got, allowed=allowed, fix=_FIX)
        pairs.append((int(pair[1]), int(pair[2])))
    return pairs[0], pairs[1]


def _build(
    path: Path, shape: tuple[int, int], blocksize: tuple[int, int], found: dict[str, Tensor]
) -> BSR | Pattern:
    """Put the parts together; they are checked on the way."""
    try:
        pattern = Pattern(shape, blocksize, found["crow_indices"], found["col_indices"])
        values = found.get("values")
        if values is None:
            return pattern
        if values.dtype not in (*DTYPES, *_WIDE):
            raise TypeError(f"values of {values.dtype}")
        return BSR(values, pattern)
    except (TypeError, ValueError) as error:
        got, allowed = f"parts that do not fit: {error}", "the blocks of one matrix"
        raise bad_file(path, got=got, allowed=allowed, fix=_FIX) from None
