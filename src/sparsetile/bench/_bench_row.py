"""From times to a row of the CSV: quantiles, speed, what bounds it, and who won."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparsetile.bench._bench_case import Case
from sparsetile.bench._bench_time import Timed
from sparsetile.bench._peers import DENSE, DENSE_BF16

COLUMNS = tuple(
    "op,peer,backend,kernel,m,k,n,r,c,density,nnzb,dtype,threads,median_us,p20_us,p80_us,min_us,"
    "cpu_us,gflops,peak_fraction,bound,dense_ratio,verdict,cpu,isa,versions,commit,command".split(
        ","
    )
)
#: Columns that say what was measured, and where.
KEY = ("op", "peer", "m", "k", "n", "r", "c", "density", "dtype", "threads")
PLACE = ("cpu", "isa", "versions")

FASTER, SLOWER, NOISE = "faster", "slower", "within the noise"
NOT_INSTALLED = "not installed"
_MARGIN = 1.02  # a winner wins by this much
_FEW, _CLEAR = 5, 1.2  # with fewer rounds than this, by this much
_ROWS = 16  # rows of a result that kernels keep in registers, and reuse an operand for

# One roofline: GFLOP/s, GB/s and bytes by name, as `sparsetile.ops.cpu.Roofline` has them.
Roof = Mapping[str, Any]


def row_of(case: Case, one: Timed, facts: Mapping[str, str], roof: Roof | None) -> dict[str, Any]:
    """Make the row of one peer.

    With one thread its CPU time counts for speed, ratio and verdict, because it is deaf to other
    programs; with several the wall time does. The quantiles are those of the wall time.

    Args:
        case: What was computed.
        one: How long it took.
        facts: Texts of the columns `cpu`, `isa`, `versions`, `commit` and `command`.
        roof: The roofline of this dtype and number of threads; None where there is none.

    Returns:
        A value for each of `COLUMNS`, missing ones empty, and the bound's GFLOP/s under `limit`.
    """
    row: dict[str, Any] = dict.fromkeys(COLUMNS, "")
    row |= {name: getattr(case, name) for name in KEY if name != "peer"}
    row |= {"peer": one.peer, "backend": one.backend, "kernel": one.kernel}
    row |= {"nnzb": one.nnzb or "", "verdict": one.verdict, **facts}
    if not one.wall:
        return row
    alone = case.threads == 1
    counted, dense = (one.cpu, one.dense_cpu) if alone else (one.wall, one.dense_wall)
    p20, median, p80 = (1e6 * float(q) for q in np.quantile(one.wall, [0.2, 0.5, 0.8]))
    ratios = np.array(dense) / np.array(counted)
    flops, moved, reused = work(case, one)
    row |= {"median_us": median, "p20_us": p20, "p80_us": p80, "min_us": 1e6 * min(one.wall)}
    row |= {"cpu_us": 1e6 * min(one.cpu), "gflops": flops / min(counted) / 1e9}
    row["dense_ratio"] = 1.0 if one.peer == DENSE else float(np.median(ratios))
    alike = one.peer == DENSE or one.disturbed
    row["verdict"] = NOISE if alike else verdict(ratios.tolist())
    if roof is not None:
        row["peak_fraction"] = row["gflops"] / roof["peak"]
        row["bound"], row["limit"] = bound(flops, moved, reused, roof)
    return row


def work(case: Case, one: Timed) -> tuple[float, float, float]:
    """Count what one call of a peer has to do.

    Returns:
        Multiplications and additions; bytes of operands and result, each moved once; bytes read
        from the first cache when a row of X serves 16 rows of the result.
    """
    size, stored = (format.itemsize for format in case.formats)
    r, c, blocks = case.r, case.c, float(one.nnzb)
    index = 4
    if one.peer in (DENSE, DENSE_BF16):
        r, c, index = _ROWS, 1, 0
        blocks = case.m * case.k / r
        stored = 2 if one.peer == DENSE_BF16 else size
    flops = 2.0 * blocks * r * c * case.n * case.products
    moved = blocks * (r * c * stored + index) + case.n * (case.m + case.k) * size
    reused = blocks * -(-r // _ROWS) * c * case.n * size
    return flops, moved * case.products, reused * case.products


def bound(flops: float, moved: float, reused: float, roof: Roof) -> tuple[str, float]:
    """Find what limits some work.

    Args:
        flops: Multiplications and additions.
        moved: Bytes that come from the smallest cache that holds them all, or from memory.
        reused: Bytes that come from the first cache.
        roof: The speeds of the machine.

    Returns:
        `fma`, `l1`, `l2`, `l3` or `memory`, and the GFLOP/s it allows.

    Examples:
        >>> roof = {"peak": 100.0, "l1": 400.0, "l2": 80.0, "l3": 50.0, "memory": 20.0,
        ...         "l2_bytes": 1 << 20, "l3_bytes": 1 << 25, "threads": 1}
        >>> bound(1e9, 1e6, 1e6, roof)
        ('fma', 100.0)
        >>> bound(1e9, 1e9, 0.0, roof)
        ('memory', 20.0)
    """
    level = "memory"
    if moved <= roof["l2_bytes"] * roof["threads"]:
        level = "l2"
    elif moved <= roof["l3_bytes"]:
        level = "l3"
    seconds = {"fma": flops / roof["peak"], "l1": reused / roof["l1"], level: moved / roof[level]}
    name = max(seconds, key=lambda n: seconds[n])
    return name, flops / seconds[name]


def verdict(ratios: Sequence[float]) -> str:
    """Say who won, or that nobody can tell.

    Args:
        ratios: Dense time over this time, of each round.

    Returns:
        `faster` or `slower` when four rounds in five agree and the median is off by 2 % or more
        (with fewer than five rounds: all agree, and 20 %), else `within the noise`.

    Examples:
        >>> verdict([1.5, 1.6, 1.4, 0.9, 1.5, 1.5]), verdict([1.5, 0.7, 1.5, 0.8, 1.5])
        ('faster', 'within the noise')
        >>> verdict([0.5]), verdict([1.1, 1.1])
        ('slower', 'within the noise')
    """
    few = len(ratios) < _FEW
    low, median, high = np.quantile(ratios, [0, 0.5, 1] if few else [0.2, 0.5, 0.8])
    margin = _CLEAR if few else _MARGIN
    if low > 1 and median >= margin:
        return FASTER
    return SLOWER if high < 1 and median <= 1 / margin else NOISE
