"""A film as an animated SVG: every frame a tiny image, shown in turn by a style sheet."""

import base64
import struct
import zlib
from html import escape

import numpy as np
from numpy.typing import NDArray

from sparsetile.train._film_draw import FRAME_MS, LAST_MS, LEAST_WIDTH, LEGEND, Scene

_EDGE, _LINE = 8, 18


def svg(scene: Scene) -> bytes:
    """Write a film as self-contained SVG; viewers that do not animate show the last frame.

    Args:
        scene: The film.

    Returns:
        The file.

    Examples:
        >>> from sparsetile.train._film_draw import draw
        >>> svg(draw([("0", "", "step 0")], (2, 2), [np.ones((2, 2, 2), np.float32)]))[:4]
        b'<svg'
    """
    (width, height), count = scene.size, len(scene.frames)
    top = _EDGE + 3 * _LINE + 4
    total = (count - 1) * FRAME_MS + LAST_MS
    frames = "".join(
        f'<g class="f" style="animation-delay:{number * FRAME_MS - total}ms'
        f'{"" if number < count - 1 else ";animation-name:z;visibility:visible"}">'
        f'{_text(2, lines[2])}<image x="{_EDGE}" y="{top}" width="{width}" height="{height}" '
        f'preserveAspectRatio="none" href="data:image/png;base64,{_encoded(frame, scene)}"/></g>'
        for number, (lines, frame) in enumerate(zip(scene.lines, scene.frames, strict=True))
    )
    full = max(width, LEAST_WIDTH) + 2 * _EDGE, top + height + 34
    name, pattern, _ = scene.lines[0]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{full[0]}" height="{full[1]}" '
        f'viewBox="0 0 {full[0]} {full[1]}" role="img" font-family="sans-serif" font-size="12">'
        f"<title>{escape(name)}</title><style>"
        f".f{{visibility:hidden;animation:s {total}ms step-end infinite}}"
        f"image{{image-rendering:pixelated}}"
        f"{_shown('s', FRAME_MS / total)}{_shown('z', LAST_MS / total)}"
        "@media(prefers-reduced-motion:reduce){.f{animation:none}}"
        f'</style><rect width="100%" height="100%" fill="#fff"/>'
        f'<g font-weight="bold">{_text(0, name)}</g>{_text(1, pattern)}'
        f'<rect x="{_EDGE - 0.5}" y="{top - 0.5}" width="{width + 1}" height="{height + 1}" '
        f'fill="none" stroke="#999"/>{frames}{_legend(top + height + 10)}</svg>\n'
    ).encode()


def _text(line: int, text: str) -> str:
    return f'<text x="{_EDGE}" y="{_EDGE + line * _LINE + 12}">{escape(text)}</text>'


def _shown(name: str, share: float) -> str:
    """An animation that shows its element for the first part of its time."""
    hidden = "" if share >= 1 else f"{100 * share:.5f}%{{visibility:hidden}}"
    return f"@keyframes {name}{{0%{{visibility:visible}}{hidden}}}"


def _legend(y: int) -> str:
    return "".join(
        f'<rect x="{_EDGE + 80 * i}" y="{y}" width="12" height="12" fill="rgb{colour}"/>'
        f'<text x="{_EDGE + 80 * i + 16}" y="{y + 10}">{name}</text>'
        for i, (colour, name) in enumerate(LEGEND)
    )


def _encoded(frame: NDArray[np.uint8], scene: Scene) -> str:
    return base64.b64encode(png(frame, scene.palette)).decode()


def png(pixels: NDArray[np.uint8], palette: NDArray[np.uint8]) -> bytes:
    """Write an image of palette colours as PNG (W3C, Portable Network Graphics, 3rd edition).

    Args:
        pixels: A colour for each pixel, `[rows, columns]`.
        palette: Red, green and blue of up to 256 colours, `[colours, 3]`.

    Returns:
        The file.

    Examples:
        >>> png(np.zeros((2, 2), np.uint8), np.zeros((1, 3), np.uint8))[1:4]
        b'PNG'
    """
    rows, columns = max(pixels.shape[0], 1), max(pixels.shape[1], 1)
    lines = np.zeros((rows, columns + 1), dtype=np.uint8)  # each line begins with its filter, none
    lines[: pixels.shape[0], 1 : pixels.shape[1] + 1] = pixels
    header = struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)
    parts = {
        b"IHDR": header,
        b"PLTE": palette.tobytes(),
        b"IDAT": zlib.compress(lines.tobytes(), 9),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts.items())


def _chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
