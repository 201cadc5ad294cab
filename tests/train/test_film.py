"""Films of a pattern: frames are read back from the files and compared with the blocks."""

import base64
import io
import re
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from sparsetile.nn import Linear
from sparsetile.train import SET, DynSparse, PatternFilm, Static
from sparsetile.train._film_draw import DROPPED, NEW, WHITE
from support import without_type_checks

SVG = "{http://www.w3.org/2000/svg}"


class Filmed:
    """A run with a film, and the masks of blocks that its frames are to show."""

    def __init__(self, steps=10, every=2, shape=(32, 48), blocksize=4, density=0.25, method=SET):
        torch.manual_seed(0)
        layer = Linear(shape[1], shape[0], density=density, blocksize=blocksize)
        self.layer, self.model = layer, nn.Sequential(layer)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.trainer = method(total_steps=steps, every=every).attach(self.model, self.optimizer)
        self.film = self.trainer.add_callback(PatternFilm("0"))
        self.masks = [self.mask()]
        self.trainer.add_callback(self)

    def mask(self):
        r, c = self.layer.blocksize
        return self.layer.pattern.to_mask()[::r, ::c].numpy()

    def on_update(self, trainer, update):
        self.masks.append(self.mask())

    def steps(self, count):
        for _ in range(count):
            self.layer.values.grad = torch.randn_like(self.layer.values)
            self.optimizer.step()
        return self


def svg_frames(path):
    """Caption and colours `[rows, columns, 3]` of each frame of an SVG film."""
    found = []
    for group in ElementTree.parse(path).iter(f"{SVG}g"):
        for image in group.findall(f"{SVG}image"):
            head, data = image.get("href").split(",")
            assert head == "data:image/png;base64"
            pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))
            found.append((group.find(f"{SVG}text").text, pixels))
    return found


def gif_frames(path, cells):
    """Colours in the middle of each cell of each frame of a GIF film."""
    rows, columns = cells
    found = []
    with Image.open(path) as film:
        for number in range(film.n_frames):
            film.seek(number)
            pixels = np.asarray(film.convert("RGB"))
            side = 256 // max(cells)
            top = pixels.shape[0] - 26 - 1 - rows * side
            found.append(pixels[top + side // 2 :: side, 8 + side // 2 :: side][:rows, :columns])
    return found


def near(pixels, colour):
    return (np.abs(pixels.astype(int) - colour) <= 4).all(axis=-1)


@pytest.mark.parametrize("kind", ["svg", "gif"])
def test_frames_show_the_blocks_of_every_update(tmp_path, kind):
    run, path = Filmed().steps(10), tmp_path / f"film.{kind}"
    run.film.save(path)
    frames = [p for _, p in svg_frames(path)] if kind == "svg" else gif_frames(path, (8, 12))
    assert len(frames) == len(run.masks) == 5
    for pixels, mask, before in zip(frames, run.masks, [run.masks[0], *run.masks], strict=False):
        assert np.array_equal(near(pixels, NEW), mask & ~before)
        assert np.array_equal(near(pixels, DROPPED), before & ~mask)
        blue = pixels[..., 2].astype(int) - pixels[..., 0] > 40
        assert np.array_equal(blue, mask & before)


def test_survivors_grow_darker_and_dropped_blocks_fade(tmp_path):
    run, path = Filmed(steps=24, shape=(64, 96), density=0.1).steps(24), tmp_path / "film.svg"
    run.film.save(path)
    frames = [pixels.astype(int).sum(axis=-1) for _, pixels in svg_frames(path)]
    always = np.all(run.masks, axis=0)
    assert always.any()
    assert (np.diff([frame[always] for frame in frames], axis=0) <= 0).all()
    assert (frames[-1][always] < frames[0][always]).all()
    gone = run.masks[0] & ~np.any(run.masks[1:], axis=0)
    assert gone.any()
    assert (np.diff([frame[gone] for frame in frames[1:]], axis=0) >= 0).all()
    assert (frames[-1][gone] == sum(WHITE)).all()


def test_captions_tell_step_coverage_and_moves(tmp_path):
    run, path = Filmed().steps(10), tmp_path / "film.svg"
    run.film.save(path)
    captions = [caption for caption, _ in svg_frames(path)]
    assert run.film.steps == [0, 2, 4, 6, 8]
    assert captions[0] == "step 0 · coverage 25% · 0 moved"
    last, share = run.trainer.history[-1], run.trainer.coverage().mean
    assert captions[-1] == f"step 8 · coverage {share:.0%} · {last.moved['0']} moved"


def test_film_loops_and_rests_on_its_last_frame(tmp_path):
    run = Filmed().steps(10)
    for kind in ("svg", "gif"):
        run.film.save(tmp_path / f"film.{kind}")
    text = (tmp_path / "film.svg").read_text()
    assert "infinite" in text
    assert len(re.findall("animation-name:z;visibility:visible", text)) == 1
    with Image.open(tmp_path / "film.gif") as film:
        assert film.info["loop"] == 0
        times = []
        for number in range(film.n_frames):
            film.seek(number)
            times.append(film.info["duration"])
    assert times == [160, 160, 160, 160, 2000]


@pytest.mark.parametrize(
    ("shape", "blocksize"), [((16, 400), 1), ((700, 300), 1), ((23, 37), (5, 3)), ((4, 4), 4)]
)
def test_layers_of_every_shape_make_a_film(tmp_path, shape, blocksize):
    run = Filmed(shape=shape, blocksize=blocksize, density=0.5).steps(5)
    for kind in ("svg", "gif"):
        run.film.save(tmp_path / f"film.{kind}")
    _, last = svg_frames(tmp_path / "film.svg")[-1]
    grid = run.layer.pattern.grid
    most = 256 if max(grid) <= 256 else 128
    assert last.shape == (*(min(side, most) for side in grid), 3)


def test_large_pattern_is_a_map_of_densities(tmp_path):
    run = Filmed(shape=(512, 512), blocksize=1, density=0.05).steps(1)
    path = tmp_path / "film.svg"
    run.film.save(path)
    ((_, pixels),) = svg_frames(path)
    counts = run.mask().reshape(128, 4, 128, 4).sum(axis=(1, 3))
    darkness = 765 - pixels.astype(int).sum(axis=-1)
    order = [darkness[counts == n].mean() for n in range(4)]
    assert order == sorted(order)
    assert order[0] == 0


def test_film_of_eighty_updates_is_a_small_file(tmp_path):
    run = Filmed(steps=81, every=1, shape=(64, 64), blocksize=1, density=0.1, method=DynSparse)
    run.steps(81)
    assert len(run.film.steps) == 81
    for kind in ("svg", "gif"):
        run.film.save(tmp_path / f"film.{kind}")
        assert (tmp_path / f"film.{kind}").stat().st_size < 1_000_000
    assert sum(len(frame.maps) for frame in run.film._frames) < 100_000


def test_long_run_leaves_frames_out_and_shows_what_is_stored(tmp_path, monkeypatch):
    monkeypatch.setattr("sparsetile.train._film._FRAMES", 20)
    run, path = Filmed(steps=90, every=1, shape=(8, 8), blocksize=2).steps(90), tmp_path / "f.svg"
    assert run.film.steps == list(range(0, 89, 8))
    run.film.save(path)
    for step, (_, pixels) in zip(run.film.steps, svg_frames(path), strict=True):
        orange_or_blue = np.abs(pixels[..., 2].astype(int) - pixels[..., 0]) > 70
        assert np.array_equal(orange_or_blue, run.masks[step])


def test_film_goes_back_with_its_run(tmp_path):
    run = Filmed().steps(5)
    state = run.trainer.state_dict()
    pattern = run.layer.pattern
    run.steps(4)
    run.trainer.load_state_dict(state)
    run.layer.set_pattern_(pattern)
    run.steps(2)
    assert run.film.steps == [0, 2, 4, 6]


def test_film_of_a_pattern_that_stays_has_one_frame(tmp_path):
    layer = Linear(16, 16, density=0.5, blocksize=4)
    optimizer = torch.optim.SGD(layer.parameters())
    film = Static().attach(layer, optimizer).add_callback(PatternFilm(""))
    optimizer.step()
    for kind in ("svg", "gif"):
        film.save(tmp_path / f"film.{kind}")
    assert len(svg_frames(tmp_path / "film.svg")) == 1


def test_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    run, path = Filmed().steps(2), tmp_path / "film.gif"
    path.write_text("old")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"pip install \"sparsetile\[plot\]\", or save.*svg"):
        run.film.save(path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["film.gif"]


def wrong_layer():
    run = Filmed()
    run.trainer.add_callback(PatternFilm("up"))


BAD = {
    "layer": (lambda: PatternFilm(3), "layer must be the name of a layer, got int"),
    "unknown": (wrong_layer, "layer must be one that the trainer moves, got 'up'; it has '0'"),
    "no_frames": (lambda: PatternFilm("0").save("a.svg"), "no step was seen; add the film"),
    "suffix": (lambda: Filmed().steps(1).film.save("a.mp4"), r"must end in .gif or .svg, got"),
    "folder": (lambda: Filmed().steps(1).film.save("no/a.svg"), "folder that does not exist"),
    "path": (lambda: Filmed().steps(1).film.save(3), "path must be a string or a Path"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_film_is_refused(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, message = BAD[case]
    refusals = (TypeError, ValueError, FileNotFoundError)
    with without_type_checks(), pytest.raises(refusals, match=message):
        call()
