"""A film as an animated GIF, written by pillow, which is imported on the first call."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsetile.train._film_draw import FRAME_MS, LAST_MS, LEAST_WIDTH, LEGEND, Scene

_EDGE, _LINE, _GREYS = 8, 18, 16


def gif(scene: Scene) -> bytes:
    """Write a film as a GIF that loops.

    Args:
        scene: The film.

    Returns:
        The file.

    Raises:
        ImportError: If pillow is missing.

    Examples:
        >>> from sparsetile.train._film_draw import draw
        >>> gif(draw([("0", "", "step 0")], (2, 2), [np.ones((2, 2, 2), np.float32)]))[:3]
        b'GIF'
    """
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as missing:
        raise ImportError(
            "a GIF needs pillow, which is not installed; install it: pip install "
            '"sparsetile[plot]", or save the film as .svg'
        ) from missing
    font = ImageFont.load_default(12)
    first = len(scene.palette)
    greys = np.linspace(0, 255, _GREYS).astype(np.uint8)[:, None].repeat(3, axis=1)
    swatches = np.array([colour for colour, _ in LEGEND], dtype=np.uint8)
    palette = np.concatenate([scene.palette, greys, swatches]).tobytes()
    (wide, high), width = scene.size, max(scene.size[0], LEAST_WIDTH) + 2 * _EDGE

    def text(lines: dict[tuple[int, int], str], height: int) -> NDArray[np.uint8]:
        strip = Image.new("L", (width, height), 255)
        pen = ImageDraw.Draw(strip)
        for place, line in lines.items():
            pen.text(place, line.replace("×", "x"), fill=0, font=font)  # the font lacks ×
        return np.asarray(strip) // 16 + first

    foot = text({(_EDGE + 80 * i + 16, 6): name for i, (_, name) in enumerate(LEGEND)}, 26)
    for i in range(len(LEGEND)):
        foot[7:19, _EDGE + 80 * i : _EDGE + 80 * i + 12] = first + _GREYS + i

    def image(lines: tuple[str, ...], frame: NDArray[np.uint8]) -> Any:
        above = {(_EDGE, 4 + i * _LINE): line for i, line in enumerate(lines)}
        head = text(above, 8 + len(lines) * _LINE)
        picture = np.full((high + 2, width), first + _GREYS - 1, dtype=np.uint8)
        picture[:, _EDGE - 1 : _EDGE + wide + 1] = first + _GREYS // 2  # its frame
        picture[1:-1, _EDGE : _EDGE + wide] = _enlarged(frame, scene.size)
        drawn = Image.fromarray(np.concatenate([head, picture, foot]))
        drawn.putpalette(palette)
        return drawn

    pairs = zip(scene.lines, scene.frames, strict=True)
    opening, *rest = [image(lines, frame) for lines, frame in pairs]
    file = io.BytesIO()
    opening.save(
        file,
        format="GIF",
        save_all=True,
        append_images=rest,
        duration=[FRAME_MS] * len(rest) + [LAST_MS],
        loop=0,
        optimize=False,
    )
    return file.getvalue()


def _enlarged(frame: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    rows, columns = frame.shape
    if not frame.size:
        return np.zeros((size[1], size[0]), dtype=np.uint8)
    return frame.repeat(size[1] // rows, axis=0).repeat(size[0] // columns, axis=1)
