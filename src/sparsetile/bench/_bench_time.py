"""Timing the peers of one family on one case, each checked before it is timed."""

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch

from sparsetile.bench._bench_case import CannotError, Case, Operands, difference, tolerance
from sparsetile.bench._busy import Neighbours, busy_warning
from sparsetile.bench._measure import interleave
from sparsetile.bench._peers import DENSE, DENSE_BF16, OWN, Call, prepare

WRONG = "wrong result"
_SAMPLE = 5e-4  # seconds that one timing should take at least
_ROUNDS, _FEW = (5, 100), 3  # few where dense alone takes all the time there is


@dataclass
class Timed:
    """What one peer did with one case.

    Args:
        peer: Its name.
        backend: Library that computed.
        kernel: Its function or kernel.
        nnzb: Stored blocks of the matrix.
        wall: Seconds a call by the clock on the wall, a number for each round.
        cpu: Seconds a call of all CPUs of the process.
        dense_wall: Those of torch's dense product, in the same rounds.
        dense_cpu: The same for the CPUs.
        verdict: Why there are no times; empty when there are.
        disturbed: Other programs kept CPUs busy that its threads needed.
    """

    peer: str
    backend: str = ""
    kernel: str = ""
    nnzb: int = 0
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    dense_wall: list[float] = field(default_factory=list)
    dense_cpu: list[float] = field(default_factory=list)
    verdict: str = ""
    disturbed: bool = False


def time_family(
    case: Case, names: Sequence[str], *, seconds: float, seed: int
) -> tuple[list[Timed], float | None]:
    """Check peers against the right answer, then time them in turns.

    torch's dense product always takes part, so that every ratio is of one process and one moment.

    Args:
        case: What to compute.
        names: Peers of one family.
        seconds: Time for the timing; each peer is called a few times however long that takes.
        seed: Decides the operands.

    Returns:
        One result a peer, and the CPUs that other programs kept busy meanwhile, if known.

    Examples:
        >>> done, _ = time_family(Case("linear", 32, 32, 4, 4, 4, 0.5, "float32", 1),
        ...                       ["sparsetile", "torch-dense"], seconds=0.05, seed=0)
        >>> [(d.peer, d.verdict, len(d.wall) >= 5) for d in done]
        [('sparsetile', '', True), ('torch-dense', '', True)]
    """
    neighbours = Neighbours()
    given = Operands(case, seed)
    right = cache(given.truth)
    done = {name: Timed(name, nnzb=given.pattern.nnzb) for name in names}
    calls: dict[str, Call] = {}
    for name, one in done.items():
        if (call := _checked(one, given, right)) is not None:
            calls[name] = call
    if not calls:
        return list(done.values()), neighbours.cpus()
    if DENSE not in done and (call := _checked(Timed(DENSE), given, right)) is not None:
        calls[DENSE] = call
    del right
    if DENSE not in calls:
        dense = done.get(DENSE)
        reason = f"no dense product to compare with ({dense.verdict})" if dense else "no dense"
        for one in done.values():
            one.verdict = one.verdict or reason
        return list(done.values()), neighbours.cpus()
    for group, rounds in _groups({name: call.run for name, call in calls.items()}, seconds):
        _time(done, group, rounds, seconds * len(group) / len(calls))
    others = neighbours.cpus()
    if others is not None and case.threads > 1:
        busy = bool(busy_warning(others, case.threads, os.cpu_count() or 1))
        for one in done.values():
            one.disturbed = busy
    return list(done.values()), others


def _checked(one: Timed, given: Operands, right: Callable[[], tuple[Any, ...]]) -> Call | None:
    """Prepare a peer and compare its result; None, with the reason noted, when it is out."""
    try:
        call = prepare(one.peer, given)
        one.backend, one.kernel = call.backend, call.kernel
        found = call.run()
        if call.kernel_of is not None:
            one.backend, _, one.kernel = call.kernel_of().partition(":")
        gap = difference(call.result(found), right())
    except CannotError as reason:
        one.verdict = str(reason)
        return None
    except Exception as error:  # a peer may fail in any way: that is a result, not our end
        one.verdict = _reason(error, given.case)
        return None
    rounded = torch.bfloat16 if one.peer == DENSE_BF16 else given.x.dtype
    if gap > tolerance(rounded):
        one.verdict = WRONG
        return None
    return call


def _reason(error: Exception, case: Case) -> str:
    text = " ".join(str(error).split())
    dense = case.dtype.partition("*")[0]
    # Libraries name the dtype they lack in their own ways.
    names = {"bfloat16": ("bfloat16",), "float16": ("half", "float16")}.get(dense, ())
    if any(name in text.lower() for name in names):
        return f"no {dense}"
    return f"error: {type(error).__name__}: {text}"[:160]


def _groups(
    calls: dict[str, Callable[[], Any]], seconds: float
) -> list[tuple[dict[str, Callable[[], Any]], tuple[int, int]]]:
    """Split calls into those that fit the time many times over, and slow ones with dense alone."""
    spent = {}
    for name, call in calls.items():
        start = time.perf_counter()
        call()
        spent[name] = time.perf_counter() - start
    slow = {name for name, took in spent.items() if _ROUNDS[0] * took > seconds / len(calls)}
    quick = {name: call for name, call in calls.items() if name == DENSE or name not in slow}
    rounds = (_FEW, _ROUNDS[1]) if DENSE in slow else _ROUNDS
    groups = [(quick, rounds)] if len(quick) > 1 or slow <= {DENSE} else []
    for name in sorted(slow - {DENSE}):
        least = _FEW if name == OWN else 1  # one round alone would decide nothing
        groups.append(({DENSE: calls[DENSE], name: calls[name]}, (least, _ROUNDS[0])))
    return groups


def _time(
    done: dict[str, Timed],
    group: dict[str, Callable[[], Any]],
    rounds: tuple[int, int],
    seconds: float,
) -> None:
    counts = {}
    for name, call in group.items():
        start = time.perf_counter()
        call()
        counts[name] = max(1, math.ceil(_SAMPLE / max(1e-7, time.perf_counter() - start)))
    times = interleave(group, seconds=seconds, rounds=rounds, clock=_clocks, counts=counts)
    dense = np.array(times[DENSE])
    for name, samples in times.items():
        one = done.get(name)
        if one is None or (name == DENSE and one.wall):
            continue
        both = np.array(samples)
        one.wall, one.cpu = both[:, 0].tolist(), both[:, 1].tolist()
        one.dense_wall, one.dense_cpu = dense[:, 0].tolist(), dense[:, 1].tolist()


def _clocks() -> Any:
    return np.array([time.perf_counter(), time.process_time()])


def as_message(done: Sequence[Timed], others: float | None) -> dict[str, Any]:
    """Results as plain data, to be sent to another process."""
    return {"done": [asdict(one) for one in done], "others": others}
