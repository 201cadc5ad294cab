"""Matrices and checkpoints of others made ours, and ours made dense again."""

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparsetile._whole import write_whole
from sparsetile.bench._errors import CommandError
from sparsetile.bench._model_files import TokenizerFiles, is_model_folder, load_model, read_matrix
from sparsetile.matrix import BSR, Pattern, load_pattern, pattern_of, save
from sparsetile.models import (
    Inspection,
    from_dense,
    inspect,
    read_checkpoint,
    save_pretrained,
    to_dense_checkpoint,
)

Blocks = tuple[int, int] | None  # None chooses
Progress = Callable[[int, int, str], None]


def convert(
    source: Path, target: Path, *, blocks: Blocks, dense: bool, reorder: bool, progress: Progress
) -> dict[str, Any]:
    """Convert one file or folder into another; the target is written whole or not at all.

    Args:
        source: A matrix, a checkpoint, or the folder of a model.
        target: A file for a matrix or a checkpoint, a folder for a model.
        blocks: Blocks to store; None keeps those that the source has, else chooses.
        dense: Write everything dense.
        reorder: Let hidden features change places, so that non-zeros gather in blocks.
        progress: Called as `progress(done, total, name)`.

    Returns:
        What was done, as JSON can say it.

    Raises:
        CommandError: If the two do not go together.
        OSError: If a file cannot be read or written.
        ValueError: If the source is damaged.
    """
    matrix = read_matrix(source)
    folder = not target.suffix or target.is_dir()
    if reorder and (matrix is not None or not folder or dense):
        raise CommandError(
            "--reorder lets hidden features of a model change places; it goes from a model's "
            "folder to a folder, without --dense"
        )
    if matrix is not None:
        layers = _matrix(source, matrix, target, blocks, dense)
    elif folder:
        layers = _folder(source, target, blocks, dense, reorder)
    else:
        layers = _checkpoint(source, target, blocks, dense, progress)
    return {
        "input": str(source),
        "output": str(target),
        "bytes_in": size_of(source),
        "bytes_out": size_of(target),
        "layers": layers,
    }


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(file.stat().st_size for file in files)


def _matrix(
    source: Path, matrix: BSR, target: Path, blocks: Blocks, dense: bool
) -> list[dict[str, Any]]:
    if dense:
        if target.suffix not in (".pt", ".safetensors"):
            raise CommandError(f"{target}: --dense writes .pt or .safetensors; name such a file")
        weight = matrix.to_dense()
        _write(target, weight if target.suffix == ".pt" else {"weight": weight}, {})
        return [_fact("", weight)]
    if blocks is None:
        blocks = matrix.blocksize
        if blocks == (1, 1):
            found = inspect(source).layers[0]
            least = min(found.block_bytes, key=lambda side: found.block_bytes[side])
            blocks = (found.blocksize or least,) * 2
    wanted: BSR | Pattern
    if target.name.lower().endswith((".smtx", ".smtx.gz")):
        wanted = load_pattern(source, blocks)
    else:
        wanted = _in_blocks(matrix, blocks)
    save(wanted, target)
    return [_fact("", wanted)]


def _folder(
    source: Path, target: Path, blocks: Blocks, dense: bool, reorder: bool
) -> list[dict[str, Any]]:
    if not is_model_folder(source):
        raise CommandError(
            f"{target}: to write the folder of a model, the input must be a folder with its "
            f"config.json; to write one file of tensors, name it: {target}.safetensors"
        )
    model = load_model(source)
    if dense:
        to_dense_checkpoint(model, target)
        TokenizerFiles(source).save_pretrained(str(target))
        return [_plain(layer) for layer in inspect(target).layers]
    if blocks is not None and blocks[0] != blocks[1]:
        r, c = blocks
        raise CommandError(f"--blocksize {r}x{c}: a model takes square blocks, such as {c}")
    model, report = from_dense(model, "auto" if blocks is None else blocks[0], reorder=reorder)
    save_pretrained(model, target, tokenizer=TokenizerFiles(source))
    why = {layer.name: layer.why for layer in report.layers}
    return [_plain(layer, why.get(layer.name)) for layer in inspect(model).layers]


def _plain(layer: Any, why: str | None = None) -> dict[str, Any]:
    sides = layer.kind.removeprefix("sparse ").split("×") if "sparse " in layer.kind else None
    return {
        "name": layer.name,
        "shape": list(layer.shape),
        "blocksize": [int(side) for side in sides] if sides else None,
        "density": 1 - layer.zeros if sides else 1.0,
        "bytes": layer.bytes,
        "dense_bytes": layer.dense_bytes,
        "why": why or layer.why,
    }


def _checkpoint(
    source: Path, target: Path, blocks: Blocks, dense: bool, progress: Progress
) -> list[dict[str, Any]]:
    if target.suffix != ".safetensors" and not (dense and target.suffix == ".pt"):
        allowed = ".safetensors, or .pt with --dense" if dense else ".safetensors"
        raise CommandError(
            f"{target}: a checkpoint is written as {allowed}, or as a folder without a suffix"
        )
    checkpoint = read_checkpoint(source)
    advice = None if dense or blocks is not None else inspect(source)
    tensors: dict[str, Tensor] = {}
    metadata: dict[str, str] = {}
    facts: list[dict[str, Any]] = []
    for done, (name, entry) in enumerate(checkpoint.entries.items()):
        progress(done, len(checkpoint), name)
        value = entry.read()
        if entry.transposed:
            value = value.T if isinstance(value, BSR) else value.t()
        if not dense:
            value = _blocked(name, value, blocks, advice)
        elif isinstance(value, BSR):
            value = value.to_dense()
        if isinstance(value, BSR):
            base = name.removesuffix(".weight")
            shape, sides = list(value.shape), list(value.blocksize)
            metadata[base] = json.dumps({"shape": shape, "blocksize": sides})
            tensors[f"{base}.values"] = value.values
            tensors[f"{base}.crow_indices"] = value.pattern.crow_indices
            tensors[f"{base}.col_indices"] = value.pattern.col_indices
        else:
            tensors[name] = value
        if len(value.shape) == 2:
            facts.append(_fact(name, value))
    progress(len(checkpoint), len(checkpoint), "")
    _write(target, tensors, metadata)
    return facts


def _blocked(name: str, value: Tensor | BSR, blocks: Blocks, advice: Inspection | None) -> Any:
    """A weight in the blocks it is to be stored in, or dense."""
    if len(value.shape) != 2 or not value.dtype.is_floating_point:
        return value
    if not name.endswith(".weight"):  # the three tensors of a layer are named after it
        return value.to_dense() if isinstance(value, BSR) else value
    if blocks is None:
        if isinstance(value, BSR) and value.blocksize != (1, 1):
            return value
        side = advice[name].blocksize if advice is not None else None
        if side is None:
            return value
        return _in_blocks(value, (side, side))
    made = _in_blocks(value, blocks)
    # Where blocks are all live they would only add indices.
    return made if isinstance(value, BSR) or _bytes(made) < _bytes(value) else value


def _in_blocks(value: Tensor | BSR, blocks: tuple[int, int]) -> BSR:
    if isinstance(value, BSR) and value.blocksize == blocks:
        return value
    dense = value.to_dense() if isinstance(value, BSR) else value
    mask = value.pattern.to_mask() if isinstance(value, BSR) else value != 0
    return BSR.from_dense(dense, pattern=pattern_of(mask, blocks))


def _bytes(value: Tensor | BSR | Pattern) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    pattern = value.pattern if isinstance(value, BSR) else value
    size = 4 * (len(pattern.crow_indices) + len(pattern.col_indices))
    if isinstance(value, BSR):
        size += value.values.numel() * value.values.element_size()
    return size


def _fact(name: str, value: Tensor | BSR | Pattern) -> dict[str, Any]:
    m, k = value.shape
    stored = not isinstance(value, Tensor)
    one = 0 if isinstance(value, Pattern) else value.dtype.itemsize
    return {
        "name": name,
        "shape": [m, k],
        "blocksize": list(value.blocksize) if not isinstance(value, Tensor) else None,
        "density": value.density if not isinstance(value, Tensor) else 1.0,
        "bytes": _bytes(value),
        "dense_bytes": m * k * one,
        "why": "" if stored else "dense",
    }


def _write(target: Path, what: Any, metadata: Mapping[str, str]) -> None:
    """Write tensors to a file, whole or not at all."""
    if target.suffix == ".pt":
        memory = BytesIO()
        torch.save(what, memory)
        write_whole(target, memory.getvalue())
        return
    from safetensors.torch import save as pack

    # A tensor that two names share is written for both.
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in what.items()}
    write_whole(target, pack(whole, {"format": "pt", **metadata}))
