"""An animated picture of a layer's pattern, one frame for each update."""

import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparsetile._whole import write_whole
from sparsetile.matrix import Pattern
from sparsetile.matrix._cells import cells_of
from sparsetile.nn import BlockSparse
from sparsetile.train._film_draw import Scene, draw
from sparsetile.train._film_gif import gif
from sparsetile.train._film_svg import svg
from sparsetile.train._positions import pattern_at, positions
from sparsetile.train._records import Update
from sparsetile.train._trainer import Trainer
from sparsetile.train._watch_log import checked_path

# With more block positions a side than this, a picture shows densities, on fewer cells: shades
# compress badly.
_MOST, _CELLS = 256, 128
_FRAMES = 240
_WRITERS: dict[str, Callable[[Scene], bytes]] = {".gif": gif, ".svg": svg}


@dataclass(frozen=True)
class _Frame:
    step: int
    moved: int
    coverage: float
    shape: tuple[int, int]
    maps: bytes  # two maps of shares in 255ths: stored blocks, and new ones

    def shares(self) -> NDArray[np.float32]:
        """The two maps, `[2, rows, columns]`, in 0 to 1."""
        flat = np.frombuffer(zlib.decompress(self.maps), dtype=np.uint8)
        return np.divide(flat.reshape(2, *self.shape), 255, dtype=np.float32)


class PatternFilm:
    """Films the pattern of a layer; a callback of its trainer.

    Orange blocks are new, blue ones survive, the darker the longer, and dropped ones fade. A layer
    with more than 256 block positions along a side is shown as a map of densities. With more than
    240 updates every second frame is left out, then every fourth, and so on, so that a long run
    fits too: 80 updates of 64×64 positions take 50 kB of memory, 0.2 MB as SVG, 0.7 MB as GIF.

    A film that is added to a resumed run begins with the pattern of that moment.

    Args:
        layer: Name of the layer, as in `trainer.layers`.

    Raises:
        TypeError: If it is no string.

    Examples:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from sparsetile.nn import Linear
        >>> from sparsetile.train import SET
        >>> model = torch.nn.Sequential(Linear(64, 64, blocksize=4, density=0.25))
        >>> optimizer = torch.optim.Adam(model.parameters())
        >>> trainer = SET(total_steps=10, every=2).attach(model, optimizer)
        >>> film = trainer.add_callback(PatternFilm("0"))
        >>> for _ in range(10):
        ...     model(torch.randn(8, 64)).square().sum().backward()
        ...     optimizer.step()
        >>> film.steps
        [0, 2, 4, 6, 8]
        >>> with TemporaryDirectory() as folder:
        ...     film.save(Path(folder, "layer.svg"))
        ...     Path(folder, "layer.svg").read_text()[:4]
        '<svg'
    """

    def __init__(self, layer: str) -> None:
        if not isinstance(layer, str):
            raise TypeError(f"layer must be the name of a layer, got {type(layer).__name__}")
        self.layer = layer
        self._frames: list[_Frame] = []
        self._title = ""
        self._size = (1, 1)
        self._seen: int | None = None
        self._before = torch.empty(0, dtype=torch.int64)
        self._skip, self._waited = 1, 0

    @property
    def steps(self) -> list[int]:
        """After which step each frame was taken."""
        return [frame.step for frame in self._frames]

    def on_add(self, trainer: Trainer) -> None:
        """Refuse a trainer that has no such layer."""
        self._find(trainer)

    def on_step(self, trainer: Trainer) -> None:
        """Take the first frame, before anything moves."""
        step = trainer.step_count
        if self._seen is None or step <= self._seen:
            layer = self._find(trainer)
            self._frames = [frame for frame in self._frames if frame.step < step]
            self._before, self._waited = positions(layer).cpu(), 0
            if not self._frames:
                self._take(trainer, step - 1, 0)
        self._seen = step

    def on_update(self, trainer: Trainer, update: Update) -> None:
        """Take a frame."""
        self._waited += 1
        if self._waited < self._skip:
            return
        self._waited = 0
        self._take(trainer, update.step, update.moved.get(self.layer, 0))
        if len(self._frames) > _FRAMES:
            self._frames = self._frames[::2]
            self._skip *= 2

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the film, whole or not at all.

        Args:
            path: A file that ends in `.gif` (needs pillow) or `.svg`. One of that name is replaced.

        Raises:
            FileNotFoundError: If there is no such folder.
            ImportError: If a GIF is asked for and pillow is missing.
            TypeError: If it is no path.
            ValueError: If it has another ending, or no step has been taken yet.
        """
        target = checked_path("path", path)
        writer = _WRITERS.get(target.suffix.lower())
        if writer is None:
            raise ValueError(
                f"path must end in {' or '.join(_WRITERS)}, got {str(target)!r}; a film is an "
                "animated picture"
            )
        if not self._frames:
            raise ValueError(
                "save needs a film with frames, and no step was seen; add the film to a trainer, "
                "trainer.add_callback(film), and train"
            )
        write_whole(target, writer(self._scene()))

    def _find(self, trainer: Trainer) -> BlockSparse:
        if self.layer not in trainer.layers:
            names = ", ".join(map(repr, list(trainer.layers)[:8]))
            more = ", …" if len(trainer.layers) > 8 else ""
            raise ValueError(
                f"layer must be one that the trainer moves, got {self.layer!r}; it has "
                f"{names}{more}: choose of trainer.layers"
            )
        return trainer.layers[self.layer]

    def _take(self, trainer: Trainer, step: int, moved: int) -> None:
        layer = self._find(trainer)
        now = positions(layer).cpu()
        new = now[~_among(now, self._before)]
        maps = [_share(pattern_at(layer, places.to(layer.values.device))) for places in (now, new)]
        self._title, self._size = layer.pattern.summary(), layer.shape
        self._before = now
        coverage = trainer.coverage().layers[self.layer]
        packed = zlib.compress(np.stack(maps).tobytes())
        self._frames.append(_Frame(step, moved, coverage, maps[0].shape, packed))

    def _scene(self) -> Scene:
        captions = [
            f"step {frame.step:,} · coverage {frame.coverage:.0%} · {frame.moved:,} moved"
            for frame in self._frames
        ]
        lines = [(self.layer, self._title, caption) for caption in captions]
        return draw(lines, self._size, (frame.shares() for frame in self._frames))


def _among(places: Tensor, others: Tensor) -> Tensor:
    """Which of some positions are among others; both ascending."""
    if not len(others):
        return torch.zeros(len(places), dtype=torch.bool)
    at = torch.searchsorted(others, places).clamp(max=len(others) - 1)
    return others[at] == places


def _share(pattern: Pattern) -> NDArray[np.uint8]:
    """Share of stored blocks in every cell of a picture, in 255ths."""
    cells = _MOST if max(pattern.grid) <= _MOST else _CELLS
    filled = cells_of(pattern, cells).filled
    return np.ceil(filled * 255).astype(np.uint8)  # also a single block of many is seen
