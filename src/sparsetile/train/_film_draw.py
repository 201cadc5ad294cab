"""Colours of a film: new blocks, survivors by age, and dropped ones that fade."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Pixels that the text needs.
LEAST_WIDTH = 320

#: How long a frame stays, and the last one, in milliseconds.
FRAME_MS, LAST_MS = 160, 2000

WHITE, NEW, DROPPED = (255, 255, 255), (240, 130, 30), (250, 190, 180)
YOUNG, OLD = (140, 190, 225), (16, 52, 100)
#: What the colours mean, drawn below the picture.
LEGEND = ((NEW, "new"), (YOUNG, "survives"), (OLD, "for long"), (DROPPED, "dropped"))

_FADE = 0.55  # of a dropped block's colour from frame to frame
_AGES = 6  # shades
_NAME = 46  # letters that fit
_LONG_SIDE = 256  # pixels
_COLOURS = 236  # a GIF has 256, some of them for text


@dataclass(frozen=True)
class Scene:
    """A film, drawn: what is left to do is to write a file.

    Attributes:
        lines: For each frame what stands above it: name, pattern, what happened.
        size: Width and height of the picture in pixels.
        frames: A colour for each cell of each frame, `[frames, rows, columns]`.
        palette: Red, green and blue of every colour, `[colours, 3]`.
    """

    lines: Sequence[tuple[str, str, str]]
    size: tuple[int, int]
    frames: NDArray[np.uint8]
    palette: NDArray[np.uint8]


def draw(
    lines: Sequence[tuple[str, str, str]],
    shape: tuple[int, int],
    shares: Iterable[NDArray[np.float32]],
) -> Scene:
    """Colour the frames of a film.

    Args:
        lines: For each frame what is to stand above it; long names lose their beginning.
        shape: Rows and columns of the matrix, for the picture's proportions.
        shares: For each frame `[2, rows, columns]`: the share of stored blocks and of new ones.

    Returns:
        The scene.

    Examples:
        >>> scene = draw([("", "", "")] * 2, (4, 8), [np.ones((2, 2, 2), np.float32)] * 2)
        >>> scene.frames.shape, scene.size
        ((2, 2, 2), (256, 128))
    """
    stack = list(shares)
    colours = np.stack(_coloured(stack))
    frames, palette = _indexed(colours)
    short = [(_short(name), pattern, event) for name, pattern, event in lines]
    return Scene(short, _pixels(shape, frames.shape[1:]), frames, palette)


def _short(name: str) -> str:
    return name if len(name) <= _NAME else f"...{name[3 - _NAME :]}"


def _coloured(stack: list[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
    """Red, green and blue of every cell of every frame."""
    fullest = max(float(stored.max(initial=0)) for stored, _ in stack) or 1.0
    before = stack[0][0]
    age, fading = np.zeros_like(before), np.zeros_like(before)
    drawn = []
    for number, (stored, fresh) in enumerate(stack):
        # Where frames were left out, `fresh` misses what came with them.
        new = np.maximum(fresh, stored - before) if number else np.zeros_like(stored)
        young = np.divide(new, stored, out=np.zeros_like(new), where=stored > 0)
        age = (age + (number > 0)) * (1 - young)
        fading = np.maximum(fading * _FADE, np.maximum(before - (stored - new), 0))
        settled = np.log1p(age) / math.log1p(max(len(stack) - 1, 1))
        settled = np.rint(settled * _AGES) / _AGES  # few cells change from frame to frame
        blocks = _mix(_mix(YOUNG, OLD, settled), NEW, young)
        drawn.append(_mix(_mix(WHITE, DROPPED, fading / fullest), blocks, stored / fullest))
        before = stored
    return drawn


def _mix(low: object, high: object, share: NDArray[np.float32]) -> NDArray[np.float32]:
    """A colour between two, by a share of the second for each cell."""
    first, second = np.asarray(low, dtype=np.float32), np.asarray(high, dtype=np.float32)
    return first + (second - first) * np.clip(share, 0, 1)[..., None]


def _indexed(
    colours: NDArray[np.float32],
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Round colours until there are few enough for a palette."""
    for step in (4, 8, 16, 32, 64):
        rounded = np.rint(colours / step).astype(np.int64)
        packed = (rounded[..., 0] << 16) | (rounded[..., 1] << 8) | rounded[..., 2]
        found, index = np.unique(packed, return_inverse=True)
        if len(found) <= _COLOURS:
            break
    parts = np.stack([found >> 16, found >> 8 & 255, found & 255], axis=1) * step
    palette = np.minimum(parts, 255).astype(np.uint8)
    return index.reshape(packed.shape).astype(np.uint8), palette


def _pixels(shape: tuple[int, int], cells: tuple[int, ...]) -> tuple[int, int]:
    """Width and height of a picture in the matrix's proportions, whole pixels to a cell."""
    m, k = max(shape[0], 1), max(shape[1], 1)
    # Matrices far from square are drawn less so, or they would be a hair.
    high = _LONG_SIDE * min(1.0, max(m / k, 1 / 8))
    wide = _LONG_SIDE * min(1.0, max(k / m, 1 / 8))
    rows, columns = max(cells[0], 1), max(cells[1], 1)
    return max(round(wide / columns), 1) * columns, max(round(high / rows), 1) * rows
