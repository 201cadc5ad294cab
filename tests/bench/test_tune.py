"""`sparsetile tune`: which lines of the table it asks about, how it decides, what it writes."""

import signal
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from sparsetile import __main__
from sparsetile.bench import _cli, _tune
from sparsetile.bench._errors import CommandError
from sparsetile.ops.cpu import _tiling
from sparsetile.ops.cpu._isa import host
from support_bench import case

SLICED = _tiling.Rule("sliced", "avx2", "f32", "1x1", "many", vectors=2, sums=8, slice_bytes=53248)
PANEL = _tiling.Rule("panel", "avx2", "f32", "16x16", "*", rows=(8, 4, 4))


@pytest.fixture(autouse=True)
def _own_table(monkeypatch):
    monkeypatch.delenv(_tiling.VARIABLE, raising=False)
    _tiling._table.cache_clear()
    yield
    _tiling._table.cache_clear()


def fake(seconds_of, log=None):
    """Measures nothing: `seconds_of(case, rule)` says how long it takes."""

    def measure(case, rules, seconds):
        if log is not None:
            log.append((case, len(rules), seconds))
        return [seconds_of(case, rule) for rule in rules]

    return measure


def decide(rule, seconds_of, cases=(), log=None):
    question = _tune.Question(rule, cases or (case(),))
    (answer,) = _tune.answers([question], 10.0, fake(seconds_of, log))
    return answer


def test_products_of_one_kind_ask_for_one_line():
    few, many = (case(n=n, r=1, c=1) for n in (2 * host().lanes, 8 * host().lanes))
    big = replace(few, m=1 << 16, k=1 << 16)  # not computed: small ones tell
    panel, outer = case(r=16, c=16, n=70), case("dvalues", r=16, c=16, n=70)
    questions = _tune.questions_of([few, many, big, panel, replace(panel, n=300), outer])
    asked = [(q.rule.key, q.cases) for q in questions]
    isa = host().name
    assert asked == [
        (("sliced", isa, "f32", "1x1", "few"), (few, big)),
        (("sliced", isa, "f32", "1x1", "many"), (many,)),
        (("panel", isa, "f32", "16x16", "*"), (panel, replace(panel, n=300))),
        (("outer", isa, "f32", "16x16", "*"), (outer,)),
    ]
    assert all(_tiling._rule(q.rule.line().split(","), "here") == q.rule for q in questions)


def test_what_has_no_tile_is_left_out():
    mixed = case("dvalues", r=16, c=16, n=70, dtype="float32*float16")
    panel = case(r=16, c=16, n=70)
    assert len(_tune.questions_of([case(n=1), mixed, panel])) == 1
    with pytest.raises(CommandError, match="no kernel of these products has a tile"):
        _tune.questions_of([case(n=1), mixed])


def test_a_tile_that_is_faster_is_taken():
    fast = replace(PANEL, rows=_tiling.candidates(PANEL)[-1].rows)
    answer = decide(PANEL, lambda case, rule: 1.0 if rule == fast else 1.2)
    assert answer.rule == answer.best == fast
    assert answer.gain == pytest.approx(1.2)


@pytest.mark.parametrize(("seconds", "taken"), [(1.0, False), (0.98, False), (0.96, True)])
def test_the_present_tile_stays_inside_the_noise(seconds, taken):
    answer = decide(SLICED, lambda case, rule: 1.0 if rule == SLICED else seconds)
    assert (answer.rule != SLICED) == taken


def test_a_gain_counts_only_when_it_comes_twice():
    times = iter([1.0, 0.5, 1.0, 0.99])  # all tiles, then the best against the present one
    rules = len(_tiling.candidates(PANEL))

    def measure(case, given, seconds):
        first, other = next(times), next(times)
        return [first, *[other] * (len(given) - 1)]

    (answer,) = _tune.answers([_tune.Question(PANEL, (case(),))], 10.0, measure)
    assert rules > 1
    assert answer.rule == PANEL
    assert answer.gain == pytest.approx(1 / 0.99)


def test_all_products_of_a_line_have_a_say():
    one, two = case(n=64), case(n=1024)
    best = _tiling.candidates(SLICED)[-1]

    def seconds_of(given, rule):  # 1.5 times faster for one, 1.6 times slower for the other
        if rule != best:
            return 1.0
        return 1 / 1.5 if given == one else 1.6

    assert decide(SLICED, seconds_of, (one, two)).rule == SLICED
    assert decide(SLICED, seconds_of, (one,)).rule == best


def test_the_time_is_shared():
    log = []
    one, two = case(n=64), case(n=1024)
    decide(SLICED, lambda case, rule: 1.0 if rule == SLICED else 0.5, (one, two), log)
    assert [cell for cell, _, _ in log] == [one, two, one, two]
    assert [rules for _, rules, _ in log[2:]] == [2, 2]
    assert sum(seconds for _, _, seconds in log) == pytest.approx(10.0)


def test_answers_end_where_measuring_stops():
    given = iter([[1.0] * len(_tiling.candidates(SLICED)), None])
    questions = [_tune.Question(SLICED, (case(),)), _tune.Question(PANEL, (case(),))]
    assert len(list(_tune.answers(questions, 1.0, lambda *_: next(given)))) == 1


def test_a_table_keeps_the_lines_of_an_older_one_for_other_things(tmp_path):
    other = replace(SLICED, dtype="bf16", vectors=1)
    faster = replace(SLICED, vectors=1)
    text = _tune.table_of([_tune.Answer(SLICED, faster, 1.5)], [SLICED, other])
    path = tmp_path / "tiles.csv"
    path.write_text(text)
    assert _tiling.read(path, "test") == (faster, other)


def test_every_tile_is_measured_with_a_plan_of_its_own(monkeypatch):
    product = case(m=64, k=64, n=40, r=16, c=16)
    (question,) = _tune.questions_of([product])
    rules = _tiling.candidates(question.rule)
    used = []

    def interleave(calls, **settings):
        used.extend(calls)
        assert settings["clock"] is _tune.time.thread_time
        return {name: [float(len(name)), float(len(name)) + 1] for name in calls}

    monkeypatch.setattr(_tune, "interleave", interleave)
    with _tiling.noting() as noted:
        times = _tune.measure_tiles(product, rules, 1.0, seed=0, stop=lambda: False)
    assert noted == rules  # each was chosen once, for a pattern of its own
    assert used == [rule.line() for rule in rules]
    assert times == [float(len(name)) for name in used]
    assert _tune.measure_tiles(product, rules, 1.0, seed=0, stop=lambda: True) is None


def test_a_tile_that_computes_something_else_is_an_error(monkeypatch):
    product = case(m=64, k=64, n=40, r=16, c=16)
    (question,) = _tune.questions_of([product])
    monkeypatch.setattr(_tune, "difference", lambda found, right: 1.0)
    with pytest.raises(CommandError, match="computes a wrong linear"):
        _tune.measure_tiles(product, [question.rule], 1.0, seed=0, stop=lambda: False)


# The command.

ASKED = "tune -m 64 -n 200 --blocksize 1,16 --op linear --seconds 0.01".split()


@pytest.fixture
def cli(monkeypatch, capsys):
    def call(*args):
        monkeypatch.setattr(sys, "argv", ["sparsetile", *map(str, args)])
        code = __main__.main()
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def measured(monkeypatch):
    """The last tile tried is twice as fast as the others."""

    def measure_tiles(case, rules, seconds, *, seed, stop):
        return [1.0] * (len(rules) - 1) + [0.5]

    monkeypatch.setattr(_tune, "measure_tiles", measure_tiles)


def test_a_table_is_written_that_products_obey(cli, measured, tmp_path, monkeypatch):
    path = tmp_path / "tiles.csv"
    code, out, err = cli(*ASKED, "-o", path)
    assert code == 0
    assert "1 of 2: sliced" in err and "2 of 2: panel" in err and "2.00×" in err
    assert "+100.0%" in out and f"SPARSETILE_TILES={path}" in out
    rules = _tiling.read(path, "test")
    assert [rule.kernel for rule in rules] == ["sliced", "panel"]
    monkeypatch.setenv(_tiling.VARIABLE, str(path))
    for asked in rules:
        block = tuple(map(int, asked.block.split("x")))
        few = None if asked.kernel == "panel" else False
        assert _tiling.choose(asked.kernel, "f32", block, few=few) == asked


def test_lines_measured_before_are_kept(cli, measured, tmp_path):
    path = tmp_path / "tiles.csv"
    other = replace(PANEL, dtype="f32*f16")
    path.write_text("\n".join([",".join(_tiling.COLUMNS), other.line(), ""]))
    assert cli(*ASKED, "-o", path)[0] == 0
    assert cli(*ASKED, "-o", path)[0] == 0
    rules = _tiling.read(path, "test")
    assert len(rules) == 3 and rules[2] == other


def test_ctrl_c_keeps_what_is_done(cli, monkeypatch, tmp_path):
    path = tmp_path / "tiles.csv"

    def measure_tiles(case, rules, seconds, *, seed, stop):
        if case.r == 16:
            signal.raise_signal(signal.SIGINT)
        return None if stop() else [1.0] * len(rules)

    monkeypatch.setattr(_tune, "measure_tiles", measure_tiles)
    code, _, err = cli(*ASKED, "-o", path)
    assert code == 130
    assert err.endswith("sparsetile: stopped after 1 of 2 lines of the table\n")
    assert [rule.kernel for rule in _tiling.read(path, "test")] == ["sliced"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiles.csv"]


def test_ctrl_c_before_the_first_writes_nothing(cli, monkeypatch, tmp_path):
    def measure_tiles(case, rules, seconds, *, seed, stop):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(_tune, "measure_tiles", measure_tiles)
    code, out, _ = cli(*ASKED, "-o", tmp_path / "tiles.csv")
    assert (code, out) == (130, "")
    assert list(tmp_path.iterdir()) == []


def test_it_measures_for_real(cli, tmp_path):
    path = tmp_path / "tiles.csv"
    asked = "tune -m 32 -n 70 --blocksize 16 --op linear,dvalues --seconds 0.01".split()
    assert cli(*asked, "-o", path)[0] == 0
    assert [rule.kernel for rule in _tiling.read(path, "test")] == ["panel", "outer"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--op sddmm", "--op has 'sddmm'; it takes linear, dx, dvalues"),
        ("-n 1 --op linear", "no kernel of these products has a tile"),
        ("--isa sse", "sse"),
        ("-o no/such/folder/a.csv", "--output no/such/folder/a.csv"),
        ("-o no.csv", "--output: no.csv, line 1: must be kernel,isa"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(cli, tmp_path, monkeypatch, args, says):
    monkeypatch.setenv("SPARSETILE_ISA", "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "no.csv").write_text("a,b\n")
    code, out, err = cli(*ASKED[:-4], *args.split())
    assert (code, out) == (1, "")
    assert says in err and err.count("\n") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["no.csv"]


def test_the_command_has_help():
    done = CliRunner().invoke(_cli.app, ["tune", "--help"])
    assert done.exit_code == 0
    assert "Usage" in done.output
