import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sparsetile import __main__
from sparsetile.bench import _errors, _reproduce, _reproduce_cells
from sparsetile.bench._reproduce_best import best, best_dense
from sparsetile.bench._reproduce_cells import BOW, Cell, Outcome, predict_cells
from sparsetile.bench._reproduce_fit import Law, fit_law
from sparsetile.bench._reproduce_page import filled
from sparsetile.bench._reproduce_published import published
from sparsetile.bench._reproduce_rows import COLUMNS
from sparsetile.bench._reproduce_scope import MACHINES, Scope, wanted
from sparsetile.bench._reproduce_summary import agreement, regions_differ, worst

HALF = replace(BOW, name="half the tiles", tiles=736)
SMALL = Scope(sizes=(512, 4096), blocks=(1, 16), parts=(4, 16), machines=(BOW, HALF))


def model(cell):
    """Stands for the model: a law, and no room for n of 4096 and more."""
    if cell.n > 1024:
        return None
    rate = cell.m**0.5 * cell.b**0.5 * cell.n**0.1 * cell.machine.tiles / 1e4
    terms = ((f"{cell.mode} multiply", 10.0), ("Sync", 0.0), ("Reduction", 2.5))
    return Outcome(rate * (1.0 if cell.mode == "static" else 0.5), rate / 3, 1000, terms)


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr(_reproduce_cells, "predict_cell", model)
    monkeypatch.setattr(_reproduce_cells, "_FEW", 10**6)


@pytest.fixture
def folder(fast, tmp_path):
    _reproduce.reproduce(tmp_path, SMALL)
    return tmp_path


@pytest.fixture
def cli(monkeypatch, capsys):
    def call(*args):
        monkeypatch.setattr(sys, "argv", ["sparsetile", *map(str, args)])
        code = __main__.main()
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_every_picture_has_its_csv_and_stands_on_both_pages(folder):
    made = {path.name for path in folder.iterdir()}
    assert {f"{name}.csv" for name in (*COLUMNS, "agreement", "worst")} <= made
    for page in ("index.md", "index.html"):
        text = (folder / page).read_text("utf-8")
        for name in _reproduce.PICTURES:
            assert f"{name}.svg" in made
            assert f"{name}.svg" in text
            assert f"{name}.csv" in text


def test_pictures_do_not_change_when_nothing_has(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    _reproduce.draw(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_published_points_stand_beside_ours(folder):
    rows = _reproduce.read(folder)
    table = {(r["blocksize"], r["dtype"], r["mode"]): r for r in rows["table"]}
    told = table[16, "float16", "static"]
    ours = model(Cell("static", "float16", 16, 16, 4096, 1024)).tflops
    assert told["published"] == 4.9
    assert told["n"] == 1024
    assert told["ours"] == pytest.approx(ours / (best_dense(4096, "float16") / 16), rel=1e-5)
    assert told["ratio"] == pytest.approx(told["ours"] / 4.9, rel=1e-5)
    gpu = [row for row in rows["density"] if row["device"] == "gpu"]
    assert gpu
    assert {row["ours"] for row in gpu} == {None}
    grid = {(r["blocksize"], r["density"], r["m"], r["n"]): r for r in rows["grid"]}
    assert grid[1, "1/4", 4096, 1024]["published"] is None
    assert len(grid) == 2 * 2 * 2 * 5


def test_what_fits_nowhere_is_left_empty(monkeypatch, tmp_path):
    monkeypatch.setattr(
        _reproduce_cells, "predict_cell", lambda c: None if c.mode == "dynamic" else model(c)
    )
    monkeypatch.setattr(_reproduce_cells, "_FEW", 10**6)
    _reproduce.reproduce(tmp_path, SMALL)
    rows = _reproduce.read(tmp_path)
    dynamic = [row for row in rows["table"] if row["mode"] == "dynamic"]
    assert dynamic
    assert {(row["ours"], row["n"]) for row in dynamic} == {(None, None)}


def test_one_product_is_predicted_once(monkeypatch):
    asked = []
    monkeypatch.setattr(_reproduce_cells, "predict_cell", asked.append)
    predict_cells([*wanted(SMALL)][:30] * 2)
    assert len(asked) == len(set(asked)) == 30


def test_processes_say_what_one_process_says(monkeypatch):
    cells = [Cell("dynamic", "float16", b, 16, 256, n) for b in (1, 16) for n in (4, 16, 65536)]
    one = predict_cells(cells)
    monkeypatch.setattr(_reproduce_cells, "_FEW", 1)
    assert predict_cells(cells) == one
    assert None in one.values()


def test_the_best_is_the_fastest_that_fits():
    outcomes = {Cell("static", "float16", 16, 4, 512, n): model(
        Cell("static", "float16", 16, 4, 512, n)) for n in (4, 1024, 4096)}  # fmt: skip
    assert best(outcomes, "static", "float16", 16, 4, 512)[0].n == 1024
    assert best(outcomes, "static", "float32", 16, 4, 512) is None


@pytest.mark.parametrize(("m", "rate"), [(1024, 227), (2048, 230), (4096, 227), (8192, 224)])
def test_dense_at_its_best_is_as_published(m, rate):
    assert best_dense(m, "float16") == pytest.approx(rate, rel=0.02)


def test_the_law_is_fitted_to_speedups_not_logarithms():
    law = Law(0.002, 0.5, -0.6, 0.4)
    sizes = [(m, d, b) for m in (256, 1024, 4096) for d in (0.25, 0.03) for b in (1, 4, 16)]
    points = [(m, d, b, law.at(m, d, b) * (1 + 0.1 * (-1) ** i))
              for i, (m, d, b) in enumerate(sizes)]  # fmt: skip
    fitted = fit_law(points)

    def error(law):
        return sum((law.at(*size) - speedup) ** 2 for *size, speedup in points)

    for i in range(4):
        for step in (0.999, 1.001):
            moved = [value * (step if i == j else 1) for j, value in enumerate(fitted)]
            assert error(Law(*moved)) > error(fitted)


def test_the_summary_counts_what_was_refused():
    rows = [(1.0, 1.1), (2.0, 1.0), (None, None), (None, 3.0), (0.5, None)]
    grid = [
        {"published": told, "ours": ours, "ratio": ours / told if told and ours else None,
         "blocksize": 4, "density": "1/4", "m": 512, "n": 4}
        for told, ours in rows
    ]  # fmt: skip
    empty = {name: [] for name in ("density", "blocks-and-sizes", "table", "dense")}
    first, *_ = agreement({"grid": grid} | empty)
    refused = [first[f"refused_by_{who}"] for who in ("both", "us_only", "them_only")]
    assert refused == [1, 1, 1]
    assert (first["points"], first["within_25"], first["least"]) == (2, 0.5, 0.5)
    assert [row["ratio"] for row in worst({"grid": grid} | empty)] == [0.5, 1.1]


def test_regions_that_differ_are_found():
    rows = [{"speedup": s, "said_to_win": w} for s in (0.5, 2.0, None) for w in ("yes", "no")]
    assert regions_differ(rows) == {
        "wins here, not said to": [rows[3]],
        "said to win, does not": [rows[0], rows[4]],
    }


def test_published_numbers_are_told_of():
    folder = Path(_reproduce.__file__).parent / "published"
    told = (folder / "README.md").read_text("utf-8")
    for path in folder.glob("*.csv"):
        assert f"`{path.name}`" in told
        assert published(path.stem)
    assert sum(not row["speedup"] for row in published("static_grid")) == 11


def test_other_machines_differ_from_the_first_in_one_thing():
    for machine in MACHINES[1:]:
        same = replace(machine, name=BOW.name)
        changed = [f for f in vars(BOW) if getattr(same, f) != getattr(BOW, f)]
        assert len(changed) == 1


def test_a_page_with_an_unknown_table_is_refused(folder):
    with pytest.raises(ValueError, match="asks for a table 'no'; there are agreement, worst"):
        filled("<!-- table: no -->\n<!-- end -->", _reproduce.read(folder))


def test_the_command_names_its_files_and_renews_a_page(cli, fast, monkeypatch, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: laws -->\nold\n<!-- end -->\nafter\n", "utf-8")
    monkeypatch.setattr(_reproduce, "Scope", lambda: SMALL)
    code, out, _ = cli("reproduce", "popsparse", "-o", tmp_path / "new" / "out", "--page", page)
    assert code == 0
    made = sorted(map(str, (tmp_path / "new" / "out").iterdir()))
    assert sorted(out.split()) == sorted([*made, str(page)])
    text = page.read_text("utf-8")
    assert text.startswith("before\n<!-- table: laws -->\n| of |")
    assert text.endswith("\n<!-- end -->\nafter\n")
    assert "old" not in text


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("-o", "file"), "--output file: cannot be made (File exists); it must be a folder"),
        (("--page", "none.md"), "--page none.md: cannot be read"),
    ],
)
def test_files_that_cannot_be_are_refused(cli, monkeypatch, tmp_path, args, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    code, out, err = cli("reproduce", "popsparse", *args)
    assert (code, out) == (1, "")
    assert err.startswith(f"sparsetile: {says}")


def test_another_paper_cannot_be_read(cli):
    assert cli("reproduce", "other")[0] == 2


def test_without_matplotlib_the_pip_command_is_named(cli, monkeypatch, tmp_path):
    monkeypatch.setattr(_errors, "find_spec", lambda name: None if name == "matplotlib" else name)
    code, _, err = cli("reproduce", "popsparse", "-o", tmp_path)
    assert code == 1
    assert "pip install 'sparsetile[plot]'" in err


def test_ctrl_c_leaves_no_files(fast, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        _reproduce.reproduce(tmp_path, SMALL, stop=lambda: True)
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_that_it_was_stopped(cli, monkeypatch, tmp_path):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(_reproduce, "reproduce", stopped)
    code, out, err = cli("reproduce", "popsparse", "-o", tmp_path)
    assert (code, out, err) == (130, "", "sparsetile: stopped; nothing was written\n")
