"""The table of tile shapes: which rule decides, a user's own table, and bad ones."""

import os
from dataclasses import replace

import pytest
import torch

import sparsetile as st
from sparsetile.ops.cpu import _tiling, explain
from sparsetile.ops.cpu._isa import LEVELS, host
from support_ops import assert_close, dense_of

HEADER = ",".join(_tiling.COLUMNS)


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Makes SPARSETILE_TILES name a table of these lines."""

    def write(*lines, header=HEADER):
        path = tmp_path / "tiles.csv"
        path.write_text("\n".join([header, *lines]) + "\n")
        monkeypatch.setenv(_tiling.VARIABLE, str(path))
        _tiling._table.cache_clear()

    yield write
    _tiling._table.cache_clear()


@pytest.mark.parametrize("isa", LEVELS)
def test_every_kernel_has_a_tile_on_every_instruction_set(monkeypatch, isa):
    monkeypatch.setattr(_tiling, "host", lambda: LEVELS[isa])
    assert _tiling.choose("panel", "f32", (16, 16)).rows
    assert _tiling.choose("outer", "f32*bf16", (16, 16)).sums
    for few in (False, True):
        for block in ((1, 1), (2, 2), (3, 5)):
            tile = _tiling.choose("sliced", "bf16", block, few=few)
            assert tile.vectors and tile.slice_bytes
            assert tile.sums < LEVELS[isa].registers


def test_the_first_rule_that_fits_decides(table):
    table("outer,*,bf16,16x*,*,,,20,", "outer,*,*,16x16,*,,,18,", "outer,*,*,16x16,*,,,12,")
    assert _tiling.choose("outer", "bf16", (16, 16)).sums == 20
    assert _tiling.choose("outer", "f32", (16, 16)).sums == 18
    assert _tiling.choose("outer", "f32", (8, 8)).sums in (10, 24)  # our own table's


def test_columns_are_told_apart(table):
    table("sliced,*,*,*,few,,1,4,8192")
    assert _tiling.choose("sliced", "f32", (2, 2), few=True).slice_bytes == 8192
    assert _tiling.choose("sliced", "f32", (2, 2), few=False).slice_bytes == 53248


def test_products_obey_a_table_of_ones_own(table):
    table("panel,*,*,*,*,4 4,,,", "sliced,*,*,*,*,,1,4,4096", "outer,*,*,*,*,,,8,")

    def compute(b):
        pattern = st.random_pattern(64, 96, blocksize=b, density=0.5, seed=0)
        values = torch.randn(pattern.nnzb, b, b, requires_grad=True)
        x = torch.randn(100, 96)
        with st.backend("cpu"):
            launches = explain(lambda: st.linear(x, values, pattern).sum().backward())
            y = st.linear(x, values, pattern)
        dense = dense_of(values.detach().double(), pattern)
        assert_close(y, x.double() @ dense.T, torch.float32, "linear")
        return [launch.settings for launch in launches]

    panel, *_, outer = compute(16)
    assert (panel["tile_rows"], panel["vectors"]) == (4, 2)
    assert outer["sums"] == 8
    sliced = compute(1)[0]
    assert (sliced["slice_rows"], sliced["vectors"]) == (4, 1)


def test_a_tile_on_trial_comes_before_all_others(table):
    table("outer,*,*,*,*,,,8,")
    with _tiling.noting() as noted:
        rule = _tiling.choose("outer", "f32", (4, 4))
        with _tiling.trying(replace(rule, sums=12)):
            assert _tiling.choose("outer", "f32", (4, 4)).sums == 12
    assert _tiling.choose("outer", "f32", (4, 4)).sums == 8
    assert [(one.key, one.sums) for one in noted] == [
        (("outer", host().name, "f32", "4x4", "*"), sums) for sums in (8, 12)
    ]


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("kernel", ["panel", "sliced", "outer"])
def test_every_tile_worth_trying_is_a_line_of_a_table(table, monkeypatch, isa, kernel):
    monkeypatch.setattr(_tiling, "host", lambda: LEVELS[isa])
    own = _tiling.choose(kernel, "f32*bf16", (4, 4), few=True)
    tiles = _tiling.candidates(own)
    assert tiles[0] == own and len(set(tiles)) == len(tiles) > 2
    table(*(tile.line() for tile in tiles))
    assert _tiling._table(os.environ[_tiling.VARIABLE])[: len(tiles)] == tuple(tiles)
    for tile in tiles:
        sums = max([tile.sums, *(r * t for t, r in enumerate(tile.rows, 1))])
        assert sums < LEVELS[isa].registers


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("outer,*,*,*,*,,,8", "line 3: has 8 cells"),
        ("dense,*,*,*,*,,,8,", "line 3: kernel is 'dense'; one of panel, sliced, outer"),
        ("outer,sse,*,*,*,,,8,", "line 3: isa is 'sse'; one of avx2"),
        ("outer,*,*,4x4x4,*,,,8,", "line 3: block is '4x4x4'"),
        ("outer,*,*,*,64,,,8,", "line 3: n is '64'; one of few, many"),
        ("outer,*,*,*,*,,,0,", "line 3: sums is '0'; must be positive"),
        ("outer,*,*,*,*,,,,", "line 3: sums is ''; must be positive"),
        ("outer,*,*,*,*,8,,8,", "line 3: rows is '8'; must be empty for outer"),
        ("sliced,*,*,*,*,,two,8,4096", "line 3: vectors is 'two'"),
        ("panel,*,*,*,*,16 8 16,,,", "line 3: needs 48 registers"),
    ],
)
def test_a_bad_line_is_named(table, line, says):
    table("outer,*,*,*,*,,,8,", line)
    with pytest.raises(ValueError, match="SPARSETILE_TILES: ") as error:
        _tiling.choose("outer", "f32", (16, 16))
    assert says in str(error.value)


def test_a_file_that_is_no_table_is_named(table, monkeypatch):
    table(header="a,b")
    with pytest.raises(ValueError, match=r"tiles.csv, line 1: must be kernel,isa,dtype"):
        _tiling.choose("outer", "f32", (16, 16))
    monkeypatch.setenv(_tiling.VARIABLE, "/nowhere/tiles.csv")
    with pytest.raises(ValueError, match=r"/nowhere/tiles.csv cannot be read"):
        _tiling.choose("outer", "f32", (16, 16))
