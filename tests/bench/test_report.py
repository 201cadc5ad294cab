import csv
import re
from dataclasses import replace

import numpy as np
import pytest

from sparsetile.bench._complete import Completion
from sparsetile.bench._measure import Measurement
from sparsetile.bench._race import Judged, Step
from sparsetile.bench._report import distinct, write_report
from sparsetile.bench._results import Outcome, Results, Shot
from sparsetile.bench._verdict import common_turn, verdicts


def outcome(name, losses, *, step_seconds=0.1, memory=1000):
    steps = [round(10 * turn / step_seconds) for turn in range(1, len(losses) + 1)]
    return Outcome(
        name=name,
        trained=[Step(i, i * step_seconds, step_seconds, 5.0 - i / 1000) for i in range(1, 300)],
        judged=[
            Judged(turn, step, 10.0 * turn, loss)
            for turn, (step, loss) in enumerate(zip(steps, losses, strict=True), 1)
        ],
        tokens_per_step=512,
        parameters=1234,
        rates=(1e-3,),
        memory=[
            {"part": "blocks", "kind": "weights", "bytes": memory},
            {"part": "rest", "kind": "weights", "bytes": 500},
        ],
    )


def timing(blocksize, density, seconds, op="linear"):
    return Measurement.of(
        [seconds], op=op, m=768, k=768, n=8, blocksize=blocksize, density=density,
        dense_minimum=1.0,
    )  # fmt: skip


@pytest.fixture
def results():
    shots = [
        Shot(step, step / 10, np.random.default_rng(step).random((8, 8)) < 0.2)
        for step in range(0, 90, 10)
    ]
    return Results(
        settings={"command": "sparsetile demo", "seed": 0},
        facts={"processor": "A <fast> one"},
        timings=[timing(0, 1.0, 1.0), timing(4, 0.1, 0.1), timing(1, 0.25, 2.0)],
        text="Trained on a text.",
        outcomes=[
            outcome("dense", [4.0, 3.5], step_seconds=0.4, memory=10_000),
            outcome("static", [3.8, 3.2]),
            outcome("dynsparse", [3.9, 3.0]),
        ],
        shots=shots,
        layer="h.0.c_proj",
        schedule="Moved now and then.",
        completions=[Completion("def f(<x>):", " return", " pass")],
        reloaded=True,
        stages={"layers": 3.0},
    )


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_page_needs_nothing_from_elsewhere(results, tmp_path):
    page = write_report(tmp_path, results).read_text()
    # Names of XML dialects look like addresses, but nobody visits them.
    fetched = re.findall(r'(?:src|href|xlink:href)="(?!#|data:)([^"]*)"', page)
    assert set(fetched) == {"loss.csv", "memory.csv", "patterns.csv", "timings.csv"}
    assert "<script" not in page and "@import" not in page and "url(http" not in page


def test_page_shows_every_part(results, tmp_path):
    page = write_report(tmp_path, results).read_text()
    for title in ("Loss", "Speed", "Memory", "A pattern", "Layers", "five lines", "Machine"):
        assert re.search(f"<h2>[^<]*{title}", page), title
    assert page.count("<svg") == 7


def test_text_from_outside_is_escaped(results, tmp_path):
    page = write_report(tmp_path, results).read_text()
    assert "A &lt;fast&gt; one" in page and "def f(&lt;x&gt;):" in page


def test_pictures_take_the_colours_of_the_page(results, tmp_path):
    page = write_report(tmp_path, results).read_text()
    assert "currentColor" in page
    assert "#010203" not in page and "#040506" not in page


def test_csv_files_hold_what_the_pictures_show(results, tmp_path):
    write_report(tmp_path, results)
    loss = rows_of(tmp_path / "loss.csv")
    assert {row["run"] for row in loss} == {"dense", "static", "dynsparse"}
    assert [r["loss"] for r in loss if r["text"] == "held out" and r["run"] == "dense"] == [
        "4",
        "3.5",
    ]
    assert len(rows_of(tmp_path / "timings.csv")) == 3
    assert len(rows_of(tmp_path / "memory.csv")) == 6
    assert len(rows_of(tmp_path / "patterns.csv")) == sum(s.blocks.sum() for s in results.shots)


def test_report_of_nothing_is_still_a_page(tmp_path):
    page = write_report(tmp_path, Results({"command": "x"}, stopped=True)).read_text()
    assert "Stopped with Ctrl-C" in page
    assert rows_of(tmp_path / "loss.csv") == []


def test_no_half_written_file_is_left(results, tmp_path):
    write_report(tmp_path, results)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"report.html", "loss.csv", "timings.csv", "memory.csv", "patterns.csv"}


def test_verdict_names_the_winner_in_equal_time(results):
    said = " ".join(verdicts(results))
    assert "In equal time DynSparse learned most, by 0.200" in said
    assert "4.0 times faster than dense (400 ms)" in said
    assert "at the dense model's last loss by 20 s" in said
    assert "(0.100 of it)" in said


def test_verdict_shows_dense_winning(results):
    results.outcomes[0] = outcome("dense", [3.0, 2.5], step_seconds=0.05)
    said = " ".join(verdicts(results))
    assert "In equal time the dense model learned most" in said
    assert "slower than dense" in said
    assert "did not reach the dense model's last loss" in said
    assert (
        "Dense wins 1 of 2 cells of the table, marked ✗: BERT-Base attention blocks 1×1 at density "
        "0.25 (0.50×)."
    ) in said


def test_verdict_names_the_three_worst_cells_only(results):
    seconds = {0.05: 2.0, 0.1: 5.0, 0.2: 3.0, 0.25: 4.0, 0.5: 6.0}
    results.timings = [timing(0, 1.0, 1.0), *(timing(4, d, s) for d, s in seconds.items())]
    said = verdicts(results)[-1]
    assert "Dense wins 5 of 5 cells" in said and "; the worst: " in said
    assert [d for d in seconds if f"density {d:g} " in said] == [0.1, 0.25, 0.5]


@pytest.mark.parametrize(("share", "said"), [(0.34, True), (0.9, False), (1.3, True)])
def test_verdict_says_first_when_the_schedule_was_not_met(results, share, said):
    results.schedule_share = share
    assert verdicts(results)[0].startswith(f"DynSparse ended at {share:.0%}") == said


def test_verdict_has_one_number_of_seconds(results):
    late = results.outcomes[1]
    results.outcomes[1] = replace(late, judged=[*late.judged[:-1], Judged(2, 200, 21.0, 3.2)])
    said = " ".join(verdicts(results))
    assert "After 21 s" in said and " of 21 s" in said and "of 20 s" not in said


def test_pictures_skip_near_duplicates():
    some = np.random.default_rng(0).random((20, 20)) < 0.5
    shots = [Shot(step, 0.0, some) for step in range(4)] + [Shot(4, 0.0, ~some)] * 2
    shots.append(Shot(5, 1.0, ~some))
    assert [shot.step for shot in distinct(shots)] == [0, 5]
    assert [shot.step for shot in distinct(shots[:2])] == [0, 1]


def test_page_warns_of_a_busy_machine(results, tmp_path):
    results.busy = "the machine was busy"
    assert "Beware: the machine was busy." in write_report(tmp_path, results).read_text()


def test_verdict_calls_a_small_gap_a_draw(results):
    results.outcomes[1] = outcome("static", [3.8, 3.005])
    assert "that is a draw" in " ".join(verdicts(results))


def test_verdict_compares_at_the_last_turn_of_all(results):
    results.outcomes[2] = outcome("dynsparse", [3.9])
    assert common_turn(results.outcomes) == 1
    assert (
        "After 10 s of training each, held-out loss: the static sparse model 3.800"
        in (verdicts(results)[0])
    )


def test_verdict_before_everyones_turn_compares_nothing(results):
    late = results.outcomes[2]
    results.outcomes[2] = replace(late, judged=[replace(late.judged[0], turn=5)])
    assert "nothing can be compared" in verdicts(results)[0]


def test_verdict_says_when_dense_diverged(results):
    results.outcomes[0] = outcome("dense", [float("nan")] * 2)
    said = verdicts(results)
    assert any("dense run diverged" in line for line in said)
    assert any("In equal time DynSparse" in line for line in said)


def test_verdict_of_nothing_is_silent():
    assert verdicts(Results({})) == []
