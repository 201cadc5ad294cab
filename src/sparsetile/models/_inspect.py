"""Looks at a model or a file: zeros, blocks, bytes, and what would be gained."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from sparsetile._whole import write_whole
from sparsetile.matrix import pattern_of, spy_svg
from sparsetile.models._fill import choose, estimated_gain, live_shares, percent, stored_bytes
from sparsetile.models._inspect_find import Found, Source, source_of_module, source_of_path
from sparsetile.models._inspect_report import SIDES, InspectedLayer, Inspection
from sparsetile.models._say import kind_error, refusal

_MIN_GAIN = 1.1


@torch.no_grad()
def inspect(
    model: nn.Module | str | os.PathLike[str],
    *,
    spy: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Inspection:
    """Say of each weight matrix how many zeros it has, and whether blocks would pay.

    Matrices are read one after the other, and none is kept. What a pruning mask leaves out counts
    as zero; of a module's sparse layer every stored value counts as kept.

    Args:
        model: A module, not changed; or a file or folder: a checkpoint that `read_checkpoint`
            knows, or one matrix that `matrix.load` does.
        spy: A folder for one picture (SVG) of each matrix that has zeros; made if need be.
        progress: Called as `progress(done, total, name)` before each matrix.

    Returns:
        A row for each matrix; `print` shows it as a table, and `to_json()` writes it.

    Raises:
        FileNotFoundError: If there is no such file.
        OSError: If pictures cannot be written.
        TypeError: If an argument is of the wrong type.
        ValueError: If the file is damaged or of an unknown kind, or weights hold no data.

    Examples:
        >>> model = nn.Sequential(nn.Linear(64, 64))
        >>> with torch.no_grad():
        ...     _ = model[0].weight[:, 16:].zero_()
        >>> found = inspect(model)
        >>> found["0"].blocksize, found["0"].why
        (16, '75 % zeros, 25 % of 16×16 blocks are live: 3.5× as fast in 16×16, by estimate')
    """
    folder = _checked(model, spy, progress)
    source = (
        source_of_module(model) if isinstance(model, nn.Module) else source_of_path(Path(model))
    )
    layers: list[InspectedLayer] = []
    pictures: dict[str, str] = {}
    taken: set[str] = set()
    for done, found in enumerate(source.matrices):
        if progress is not None:
            progress(done, len(source.matrices), found.name)
        kept = found.kept()
        layers.append(_layer(found, kept))
        if folder is not None and layers[-1].zeros:
            file = _file_name(found.name or source.name, taken)
            text = spy_svg(pattern_of(kept, 1))
            write_whole(folder / file, text.encode())
            pictures[found.name] = str(folder / file)
    if progress is not None:
        progress(len(source.matrices), len(source.matrices), "")
    return _inspection(source, layers, pictures)


def _inspection(
    source: Source, layers: list[InspectedLayer], pictures: dict[str, str]
) -> Inspection:
    count, size = len(source.others), sum(source.others)
    return Inspection(source.name, source.formats, tuple(layers), count, size, pictures)


def _layer(found: Found, kept: Bool[Tensor, "m k"]) -> InspectedLayer:
    m, k = kept.shape
    live = live_shares(kept, SIDES)
    zeros = 1 - live[1] if m * k else 0.0
    dense = m * k * found.dtype.itemsize
    sizes = {}
    for side in SIDES:
        rows, cols = -(-m // side), -(-k // side)
        sizes[side] = stored_bytes(round(live[side] * rows * cols), rows, side, found.dtype)
    choice = choose(live, zeros, found.dtype, min_gain=_MIN_GAIN)
    why = f"{percent(zeros)} zeros: stays dense" if not zeros else choice.why
    blocksize, gain = (choice.blocksize, choice.gain) if zeros else (None, 1.0)
    if blocksize is not None:
        words = why.rpartition(": ")[0]
        fast = f"{gain:.1f}× as fast" if gain != float("inf") else "nothing is left to compute"
        why = f"{words}: {fast} in {blocksize}×{blocksize}, by estimate"
    if found.side is not None:
        r, c = found.side
        now = estimated_gain(1 - zeros, min(r, c), found.dtype)
        fast = f"{now:.1f}×" if now != float("inf") else "many times"
        why = f"stored in {r}×{c} already, {fast} as fast as dense by estimate"
    return InspectedLayer(
        name=found.name,
        shape=(m, k),
        dtype=str(found.dtype).removeprefix("torch."),
        kind=found.kind,
        zeros=zeros,
        live=live,
        bytes=dense if found.bytes is None else found.bytes,
        dense_bytes=dense,
        block_bytes=sizes,
        blocksize=blocksize,
        gain=gain,
        why=why,
    )


def _file_name(name: str, taken: set[str]) -> str:
    """A name that every file system takes, and no other layer has."""
    stem = re.sub(r"[^\w.-]+", "_", name).strip(".")[:120] or "matrix"
    file, number = f"{stem}.svg", 1
    while file.lower() in taken:
        number += 1
        file = f"{stem}-{number}.svg"
    taken.add(file.lower())
    return file


def _checked(model: object, spy: object, progress: object) -> Path | None:
    path = isinstance(model, str | os.PathLike) and isinstance(os.fspath(model), str)
    if not path and not isinstance(model, nn.Module):
        got, allowed = f"a {type(model).__name__}", "a torch.nn.Module, or the path of a file"
        raise kind_error("model", got=got, allowed=allowed, fix="pass one of these")
    if progress is not None and not callable(progress):
        allowed, fix = "a function of (done, total, name)", "leave it out"
        raise kind_error("progress", got=repr(progress), allowed=allowed, fix=fix)
    if spy is None:
        return None
    if not isinstance(spy, str | os.PathLike) or not isinstance(os.fspath(spy), str):
        got, fix = f"a {type(spy).__name__}", 'pass a name, as in spy="pictures"'
        raise kind_error("spy", got=got, allowed="the path of a folder", fix=fix)
    folder = Path(spy)
    if folder.exists() and not folder.is_dir():
        raise refusal("spy", got=f"{folder}, a file", allowed="a folder", fix="name another")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
