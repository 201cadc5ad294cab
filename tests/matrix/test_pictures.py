import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from sparsetile.matrix import BSR, Pattern, random_pattern, spy, spy_svg
from sparsetile.matrix._cells import cells_of
from support import SHAPES, some_pattern


@pytest.fixture(autouse=True)
def agg():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.mark.parametrize("kind", SHAPES)
def test_svg_is_well_formed_and_self_contained(kind):
    svg = spy_svg(some_pattern(kind))
    root = ET.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "href" not in svg and "<script" not in svg


def test_svg_draws_a_run_of_blocks_as_one_rectangle():
    p = Pattern((4, 7), 2, [0, 2, 3], [0, 1, 3])
    path = ET.fromstring(spy_svg(p)).find("{http://www.w3.org/2000/svg}path").get("d")
    # The last block column is ragged: it ends at 7, not at 8.
    assert path == "M0 0h4v2h-4zM6 2h1v2h-1z"


def test_many_blocks_become_a_small_picture():
    p = random_pattern(4096, 4096, blocksize=1, density=0.1, seed=0)
    assert len(spy_svg(p, cells=64)) < 150_000 and len(spy_svg(p)) < 2_000_000


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("most", [1, 3, 1000])
def test_cells_add_up_to_the_stored_blocks(kind, most):
    p = some_pattern(kind)
    cells = cells_of(p, most)
    (mb, kb), (rows, cols) = p.grid, cells.filled.shape
    blocks = np.zeros((rows, cols))
    np.add.at(
        blocks,
        (np.arange(mb)[:, None] * rows // max(mb, 1), np.arange(kb) * cols // max(kb, 1)),
        1.0,
    )
    assert (cells.filled * blocks).sum() == pytest.approx(p.nnzb)
    assert (cells.x[0], cells.x[-1], cells.y[-1]) == (0, p.shape[1], p.shape[0])


@pytest.mark.parametrize("kind", SHAPES)
def test_spy_returns_labelled_axes_in_the_matrix_proportions(kind):
    ax = spy(some_pattern(kind))
    m, k = SHAPES[kind][:2]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_aspect()) == ("column", "row", 1.0)
    assert ax.get_xlim() == (0, max(k, 1)) and ax.get_ylim() == (max(m, 1), 0)


def test_spy_draws_into_the_axes_given():
    from matplotlib import pyplot

    ax = pyplot.subplots()[1]
    assert spy(BSR.random(8, 8, blocksize=4, density=0.5, seed=0), ax) is ax
    assert len(ax.collections) == 1


def test_the_room_imports_neither_matplotlib_nor_scipy():
    code = (
        "import sys; import sparsetile.matrix; "
        "sys.exit(any(name in sys.modules for name in ('matplotlib', 'scipy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
