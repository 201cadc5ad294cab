"""Choosing tile shapes by measuring: which products ask for which, and which tile is fastest."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean

import torch

from sparsetile.bench._bench_case import CannotError, Case, Operands, difference, tolerance
from sparsetile.bench._errors import CommandError
from sparsetile.bench._measure import interleave
from sparsetile.bench._peers_own import sparse_call
from sparsetile.matrix import Pattern
from sparsetile.ops import backend
from sparsetile.ops.cpu import _tiling as tiling

OPS = ("linear", "dx", "dvalues")
NOISE = 1.03  # times faster that another tile must be than the present one
_TRIAL, _FINAL = 0.7, 0.3  # shares of the time: all tiles, then the best against the present one
_ROUNDS = (3, 60)
_SAMPLE = 5e-4  # seconds that one timing should take at least

#: Least seconds of one product with each of some tiles; None where it was stopped.
Measure = Callable[[Case, Sequence[tiling.Rule], float], list[float] | None]


@dataclass(frozen=True)
class Question:
    """A line of the table, and the products that it decides.

    Args:
        rule: What the line is for, with the tile that the present table gives.
        cases: Products on the sizes that were asked for.
    """

    rule: tiling.Rule
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Answer:
    """The tile for a question.

    Args:
        before: The rule of the present table.
        best: The fastest rule measured; the present one where no other was.
        gain: How many times faster it is, measured once more against the present one alone.
    """

    before: tiling.Rule
    best: tiling.Rule
    gain: float

    @property
    def rule(self) -> tiling.Rule:
        """The rule to keep: the present one unless the best is faster beyond the noise."""
        return self.best if self.gain > NOISE else self.before


def questions_of(cases: Sequence[Case]) -> list[Question]:
    """Find the lines of the table that products ask for, by running small ones of their kind.

    Args:
        cases: Products, of `OPS`.

    Returns:
        One question a line, with all the products that ask it.

    Raises:
        CommandError: If no product asks for any.
    """
    found: dict[tiling.Rule, list[Case]] = {}
    for case in cases:
        small = replace(case, m=min(case.m, 2 * case.r), k=min(case.k, 2 * case.c), density=1.0)
        try:
            given = Operands(small, seed=0)
            with tiling.noting() as noted:
                _call(given, given.pattern)()
        except CannotError:
            continue
        for rule in dict.fromkeys(noted):
            found.setdefault(rule, []).append(case)
    if not found:
        raise CommandError(
            "no kernel of these products has a tile to choose: decoding (n up to 15), tiles of AMX "
            "and weight gradients of blocks up to 2×2 have none; give other sizes, or --isa"
        )
    return [Question(rule, tuple(cases)) for rule, cases in found.items()]


def answers(questions: Sequence[Question], seconds: float, measure: Measure) -> Iterator[Answer]:
    """Measure the tiles of each question.

    Args:
        questions: What to decide.
        seconds: Time for each question; every tile is called a few times however long that takes.
        measure: Times a product with several tiles.

    Yields:
        One answer a question, in order; ends early where ``measure`` was stopped.
    """
    for question in questions:
        rules = tiling.candidates(question.rule)
        gains = _gains(question.cases, rules, _TRIAL * seconds, measure)
        if gains is None:
            return
        gain, best = max(zip(gains, rules, strict=True), key=lambda pair: pair[0])
        if gain > NOISE:
            # the best of many is partly luck: what it gains is measured anew
            gains = _gains(question.cases, [question.rule, best], _FINAL * seconds, measure)
            if gains is None:
                return
            gain = gains[1]
        yield Answer(question.rule, best, gain)


def _gains(
    cases: Sequence[Case], rules: Sequence[tiling.Rule], seconds: float, measure: Measure
) -> list[float] | None:
    """Measure how many times faster than the first rule each is, over all products."""
    ratios = []
    for case in cases:
        times = measure(case, rules, seconds / len(cases))
        if times is None:
            return None
        ratios.append([times[0] / one for one in times])
    return [geometric_mean(of_rule) for of_rule in zip(*ratios, strict=True)]


def measure_tiles(
    case: Case,
    rules: Sequence[tiling.Rule],
    seconds: float,
    *,
    seed: int,
    stop: Callable[[], bool],
) -> list[float] | None:
    """Time one product with several tiles, in turns, by the CPU time of this thread.

    Args:
        case: The product; one thread.
        rules: The tiles.
        seconds: Time for all of them.
        seed: Decides pattern and numbers.
        stop: Asked before every call; true ends the timing.

    Returns:
        Least seconds of a call with each tile; None where it was stopped.

    Raises:
        CommandError: If a tile gives another result than the first.
    """
    given = Operands(case, seed)
    calls = {}
    expected = None
    counts = {}
    for rule in rules:
        if stop():
            return None
        # of its own, since plans are kept by pattern
        pattern = Pattern(
            given.pattern.shape,
            given.pattern.blocksize,
            given.pattern.crow_indices.clone(),
            given.pattern.col_indices.clone(),
        )
        call = _call(given, pattern)
        with tiling.trying(rule):
            result = call()
        expected = result if expected is None else expected
        if difference((result,), (expected,)) > tolerance(result.dtype):
            raise CommandError(f"the tile {rule.line()} computes a wrong {case.op}; report this")
        before = time.perf_counter()
        call()
        took = max(1e-7, time.perf_counter() - before)
        name = rule.line()
        calls[name], counts[name] = call, max(1, math.ceil(_SAMPLE / took))
    times = interleave(
        calls,
        seconds=seconds,
        rounds=_ROUNDS,
        stop=stop,
        clock=time.thread_time,
        counts=counts,
    )
    if stop() or not all(times.values()):
        return None
    return [min(times[rule.line()]) for rule in rules]


def _call(given: Operands, pattern: Pattern) -> Callable[[], torch.Tensor]:
    case, (dense, stored) = given.case, given.case.formats
    if stored != dense and case.op == "dvalues":
        raise CannotError("mixed dtypes are for inference")
    product = sparse_call(case.op, pattern, given.x, given.values, given.g)

    def call() -> torch.Tensor:
        with torch.no_grad(), backend("cpu"):
            result: torch.Tensor = product()
        return result

    return call


def table_of(answers: Sequence[Answer], kept: Sequence[tiling.Rule] = ()) -> str:
    """Write a table of tiles: what was decided, then the lines of an older one for other things.

    Args:
        answers: What was decided.
        kept: Rules of the older table.

    Returns:
        The text of the file.
    """
    decided = [answer.rule for answer in answers]
    keys = {rule.key for rule in decided}
    lines = [rule.line() for rule in (*decided, *(one for one in kept if one.key not in keys))]
    return "\n".join([",".join(tiling.COLUMNS), *lines]) + "\n"


def tile_text(rule: tiling.Rule) -> str:
    """The tile of a rule as a person reads it."""
    if rule.kernel == "panel":
        return "rows " + " ".join(map(str, rule.rows))
    if rule.kernel == "outer":
        return f"{rule.sums} sums"
    return f"{rule.vectors} vectors, {rule.sums} sums, {rule.slice_bytes / 1024:g} KiB"
