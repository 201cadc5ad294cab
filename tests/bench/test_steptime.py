import csv

import pytest

from sparsetile.bench._cli import run
from sparsetile.bench._steptime import Case, Model, methods, time_steps
from sparsetile.bench._steptime_profile import shares_of

SMALL = Model(layers=1, width=32, heads=2, sequence=8, batch=2, clip=1.0)


def typed(monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["sparsetile", "step", *words])
    return run()


def test_the_command_writes_what_it_shows(monkeypatch, tmp_path, capsys):
    path = tmp_path / "step.csv"
    words = "--preset tiny --sequence 8 --batch 2 --blocksize 16,8x4 --density 0.25 --seconds 0.1"
    assert typed(monkeypatch, *words.split(), "--profile", "-o", str(path)) == 0
    with path.open(encoding="utf-8") as file:
        dense, *sparse = csv.DictReader(file)
    assert dense["ratio"] == "1" and dense["update_steps"] == ""
    assert [row["blocksize"] for row in sparse] == ["16×16", "8×4"]
    assert all(float(row["median"]) > 0 and row["method"] == "dynsparse" for row in sparse)
    with (tmp_path / "step-profile.csv").open(encoding="utf-8") as file:
        seen = {(row["case"], row["category"]) for row in csv.DictReader(file)}
    assert {("dense", "product: forward"), ("16×16 at 0.25", "product: dvalues")} <= seen
    out = capsys.readouterr()
    assert "16×16 at 0.25" in out.out and "profiling dense" in out.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--preset", "huge"), "--preset huge: must be one of tiny, mini"),
        (("--dtype", "int8"), "--dtype int8: must be one of float32"),
        (("--attention", "none"), "--attention none: must be one of"),
        (("--method", "magic"), "--method magic: must be one of"),
        (("--preset", "tiny", "--blocksize", "256"), "--blocksize 256: must be at most the width"),
        (("--density", "2"), "--density 2: '2' cannot be"),
    ],
)
def test_a_wrong_flag_is_named_before_any_work(monkeypatch, capsys, words, said):
    assert typed(monkeypatch, *words) == 1
    assert said in capsys.readouterr().err


def test_memory_of_small_blocks_counts_indices_and_biases():
    case = Case(SMALL, (4, 4), 0.25)
    case()
    memory = case.memory
    entries = memory.sparse.weights // 4
    assert memory.sparse.gradients == 4 * entries
    assert memory.sparse.indices > 0
    assert memory.sparse.optimizer >= 8 * entries
    dense = Case(SMALL)
    dense()
    # Adam's step counters have no dense twin of another size.
    assert dense.memory.sparse.total == memory.dense.total


@pytest.mark.parametrize("name", sorted(methods()))
def test_the_moving_model_moves_at_every_step(name):
    case = Case(SMALL, (4, 4), 0.25, methods()[name]())
    case()
    case()
    assert case.trainer is not None
    assert [update.step for update in case.trainer.history] == [1, 2]
    assert all(update.total > 0 for update in case.trainer.history)


def test_stopping_leaves_nothing_to_report():
    rows, cases = time_steps(SMALL, [(8, 8)], [0.5], "rigl", seconds=1.0, stop=lambda: True)
    assert rows == [] and list(cases) == ["dense", "8×8 at 0.5"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_profile_tells_ours_from_torchs(dtype):
    model = Model(layers=1, width=32, heads=2, sequence=8, batch=2, dtype=dtype)
    case = Case(model, (8, 8), 0.5)
    case()
    shares = {share.category: share for share in shares_of(case, rounds=1)}
    assert {"product: forward", "product: dx", "product: dvalues", "optimizer"} <= set(shares)
    assert "our other code: bias gradient" in shares
    assert any(share.is_ours for share in shares.values())
    assert "torch's dx and dweight" not in shares
