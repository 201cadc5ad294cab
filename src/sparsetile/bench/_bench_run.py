"""The sweep: cell after cell, family after family, each answer written down at once."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from sparsetile.bench._bench_case import Case
from sparsetile.bench._bench_file import File
from sparsetile.bench._bench_process import Process, ProcessError
from sparsetile.bench._bench_row import NOT_INSTALLED, Roof, row_of
from sparsetile.bench._bench_time import WRONG, Timed
from sparsetile.bench._busy import busy_warning
from sparsetile.bench._files import human_bytes
from sparsetile.bench._machine import command as typed_command
from sparsetile.bench._machine import commit, cpu_name, instruction_set, package_versions
from sparsetile.bench._peers import DENSE, DENSE_BF16, PEERS, peers_of

_PATIENCE = 60.0, 20.0  # seconds a process may take for one case: to begin with, and per --seconds
_ROOF_SECONDS = 2.0
_SHARE = 0.6  # of the free memory that one case may need


@dataclass(frozen=True)
class Settings:
    """What is the same for every cell.

    Args:
        peers: Names of peers.
        seconds: Timing of one cell, all peers together.
        seed: Decides the operands.
    """

    peers: Sequence[str]
    seconds: float
    seed: int = 0


@dataclass
class Sweep:
    """What a sweep found so far.

    Args:
        rows: Of this run, in order.
        roofs: Rooflines by dtype and threads; None where there are no kernels to measure with.
        skipped: Cells that the file had already.
        busy: For each cell, threads and CPUs that other programs kept busy.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    roofs: dict[tuple[str, int], Roof | None] = field(default_factory=dict)
    skipped: int = 0
    busy: list[tuple[int, float]] = field(default_factory=list)

    def busy_warning(self) -> str:
        """Say that wall times are rough; empty when they are not, and for one thread alone."""
        rough = [
            text
            for threads, others in self.busy
            if threads > 1 and (text := busy_warning(others, threads, os.cpu_count() or 1))
        ]
        return f"in {len(rough)} of {len(self.busy)} timings {rough[0]}" if rough else ""


def run(
    cases: Sequence[Case],
    settings: Settings,
    file: File,
    sweep: Sweep,
    show: Callable[[int, Case, Sequence[Mapping[str, Any]]], None],
    ask: Callable[[str, int], Process] = Process,
) -> None:
    """Time every cell that the file lacks.

    Args:
        cases: The cells.
        settings: For all of them.
        file: Takes the rows of each cell as soon as they are there.
        sweep: Takes the same rows, and what else was found; complete up to any interruption.
        show: Called after each cell with its place among `cases` and its rows.
        ask: Makes the process of a family and a number of threads.
    """
    facts = {name: _facts(name) for name in settings.peers}
    where = {name: {c: fact[c] for c in ("cpu", "isa", "versions")} for name, fact in facts.items()}
    for threads, group in groupby(enumerate(cases, 1), key=lambda item: item[1].threads):
        processes: dict[str, Process] = {}

        def process(family: str, threads: int = threads, kept: Any = processes) -> Process:
            if family not in kept:
                kept[family] = ask(family, threads)
            return kept[family]

        try:
            for place, case in group:
                rows: list[dict[str, Any]] = []
                names = peers_of(settings.peers, case.dtype)
                for _, members in groupby(names, key=lambda name: PEERS[name].family):
                    mine = list(members)
                    if not file.lacks(case, mine, where):
                        continue
                    done = _time(case, mine, len(names), settings, process, sweep)
                    # A family is timed anew for one missing peer: its rows are of one moment.
                    for one in done:
                        roof = _roof(case, one, process, sweep) if one.wall else None
                        rows.append(row_of(case, one, facts[one.peer], roof))
                if rows:
                    file.add(rows)
                    sweep.rows += rows
                else:
                    sweep.skipped += 1
                show(place, case, rows)
        finally:
            for child in processes.values():
                child.close()


def _time(
    case: Case,
    names: Sequence[str],
    peers: int,
    settings: Settings,
    process: Callable[[str], Process],
    sweep: Sweep,
) -> list[Timed]:
    """Time one family, or say why not."""
    here = [name for name in names if PEERS[name].installed()]
    out = [Timed(name, verdict=NOT_INSTALLED) for name in names if name not in here]
    if not here:
        return out
    free = free_memory()
    if free is not None and case.memory > _SHARE * free:
        why = f"needs {human_bytes(case.memory)} of memory"
        return [*(Timed(name, verdict=why) for name in here), *out]
    part = settings.seconds * len(here) / peers
    question: dict[str, Any] = {"task": "time", "case": asdict(case), "names": here}
    question |= {"seconds": part, "seed": settings.seed}
    first, each = _PATIENCE
    try:
        answer = process(PEERS[here[0]].family).ask(question, first + each * settings.seconds)
    except ProcessError as error:
        return [*(Timed(name, verdict=f"failed: {error}") for name in here), *out]
    if answer["others"] is not None:
        sweep.busy.append((case.threads, answer["others"]))
    return [*(Timed(**one) for one in answer["done"]), *out]


def _roof(case: Case, one: Timed, process: Callable[[str], Process], sweep: Sweep) -> Roof | None:
    """The roofline of what a peer computes in; measured once a dtype and number of threads."""
    dtype = "bfloat16" if one.peer == DENSE_BF16 else case.dtype.partition("*")[0]
    key = (dtype, case.threads)
    if key not in sweep.roofs:
        question = {"task": "roofline", "dtype": dtype, "threads": case.threads}
        try:
            roof = process(PEERS[DENSE].family).ask(question | {"seconds": _ROOF_SECONDS}, 60.0)
        except ProcessError:
            roof = None
        sweep.roofs[key] = None if roof is None or "missing" in roof else roof
    return sweep.roofs[key]


def _facts(name: str) -> dict[str, str]:
    """The columns that say where a peer's rows come from."""
    base = package_versions(("torch", "numpy", "llvmlite"))
    versions = ", ".join(f"{package} {v}" for package, v in base.items())
    own = PEERS[name].versions()
    return {
        "cpu": cpu_name(),
        "isa": instruction_set(),
        "versions": versions + (f", {own}" if own else ""),
        "commit": commit(),
        "command": typed_command(),
    }


def went_wrong(verdict: str) -> bool:
    """Whether a verdict tells of a fault, not of something that a library does not offer."""
    return verdict.startswith((WRONG, "error", "failed"))


def free_memory() -> int | None:
    """Bytes that programs may still take; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        (line,) = (line for line in lines if line.startswith("MemAvailable:"))
        return int(line.split()[1]) << 10
    except (OSError, ValueError):
        return None


def time_left(start: float, done: int, todo: int) -> float:
    """Seconds that the rest takes if it goes on as before."""
    return (time.monotonic() - start) / max(1, done) * (todo - done)
