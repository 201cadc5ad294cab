"""Intel's MKL, by way of sparse_dot_mkl."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, files

from sparsetile.bench._bench_case import Operands
from sparsetile.bench._peers import Call
from sparsetile.bench._peers_scipy import from_numpy, refuse_others


def prepare(name: str, given: Operands) -> Call:
    """Make MKL's call of a case."""
    refuse_others(given)
    multiply = import_module("sparse_dot_mkl").dot_product_mkl
    w, dense = given.sparse().to_scipy("csr"), given.dense().numpy()
    return Call(lambda: multiply(w, dense), from_numpy, "mkl", "dot_product_mkl")


def environment(threads: int) -> dict[str, str]:
    """Variables its process needs: it finds MKL's library by its full path only."""
    found = {"MKL_NUM_THREADS": str(threads)}
    try:
        parts = files("mkl") or []
    except PackageNotFoundError:
        parts = []
    for part in parts:
        if part.name.startswith(("libmkl_rt.", "mkl_rt.")):
            found["MKL_RT"] = str(part.locate())
    return found
