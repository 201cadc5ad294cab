"""What the tests of the benchmark share."""

from sparsetile.bench._bench_case import Case
from sparsetile.bench._bench_row import COLUMNS
from sparsetile.bench._bench_time import Timed

ROOF = {
    "isa": "avx2",
    "unit": "fma",
    "threads": 1,
    "peak": 100.0,
    "l1": 400.0,
    "l2": 80.0,
    "l3": 50.0,
    "memory": 20.0,
    "l2_bytes": 1 << 20,
    "l3_bytes": 1 << 25,
}
FACTS = {"cpu": "chip", "isa": "avx2", "versions": "v 1", "commit": "abc", "command": "typed"}


def case(op="linear", m=64, k=48, n=8, r=4, c=4, density=0.5, dtype="float32", threads=1):
    return Case(op, m, k, n, r, c, density, dtype, threads)


def timed(peer="sparsetile", seconds=1e-3, dense=2e-3, rounds=10, **more):
    return Timed(
        peer,
        backend="cpu",
        kernel="k",
        nnzb=96,
        wall=[seconds] * rounds,
        cpu=[seconds] * rounds,
        dense_wall=[dense] * rounds,
        dense_cpu=[dense] * rounds,
        **more,
    )


def csv_row(**more):
    return dict.fromkeys(COLUMNS, "") | {name: str(value) for name, value in more.items()}
