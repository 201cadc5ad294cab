"""The loops that a person writes with numba: rows in parallel, the batch innermost."""

from functools import cache
from importlib import import_module
from typing import Any

import torch

from sparsetile.bench._bench_case import CannotError, Operands
from sparsetile.bench._peers import Call
from sparsetile.bench._peers_scipy import from_numpy


def prepare(name: str, given: Operands) -> Call:
    """Make numba's call of a case."""
    if given.x.dtype != torch.float32:
        raise CannotError(f"no {str(given.x.dtype).removeprefix('torch.')}")
    op = given.case.op
    if op in ("linear+grad", "train-step"):
        raise CannotError("no gradients")
    multiply, sample = _kernels(given.case.threads > 1)
    w = given.sparse()
    crow, col = w.pattern.crow_indices.numpy(), w.pattern.col_indices.numpy()
    if op in ("dvalues", "sddmm"):
        # Both factors with the sum innermost, as the loops like them.
        a, b, size = given.gt.numpy(), given.xt.numpy(), tuple(given.values.shape)
        return Call(lambda: sample(crow, col, a, b, size), from_numpy, "numba", "njit loops")
    values, dense = w.values.numpy(), given.dense().numpy()
    m = w.shape[0]
    return Call(lambda: multiply(crow, col, values, dense, m), from_numpy, "numba", "njit loops")


@cache
def _kernels(parallel: bool) -> tuple[Any, Any]:
    numba, np = import_module("numba"), import_module("numpy")
    compiled = numba.njit(fastmath=True, parallel=parallel, boundscheck=False)
    prange = numba.prange

    def multiply(crow: Any, col: Any, values: Any, x: Any, m: int) -> Any:
        _, r, c = values.shape
        k, n = x.shape
        y = np.zeros((m, n), np.float32)
        for block_row in prange(len(crow) - 1):
            for block in range(crow[block_row], crow[block_row + 1]):
                for i in range(min(r, m - block_row * r)):
                    out = y[block_row * r + i]
                    for j in range(min(c, k - col[block] * c)):
                        w, row = values[block, i, j], x[col[block] * c + j]
                        for column in range(n):
                            out[column] += w * row[column]
        return y

    def sample(crow: Any, col: Any, a: Any, b: Any, size: Any) -> Any:
        _, r, c = size
        blocks = np.zeros(size, np.float32)
        m, k = len(a), len(b)
        for block_row in prange(len(crow) - 1):
            for block in range(crow[block_row], crow[block_row + 1]):
                for i in range(min(r, m - block_row * r)):
                    left = a[block_row * r + i]
                    for j in range(min(c, k - col[block] * c)):
                        right, total = b[col[block] * c + j], np.float32(0)
                        for t in range(len(left)):
                            total += left[t] * right[t]
                        blocks[block, i, j] = total
        return blocks

    return compiled(multiply), compiled(sample)


def environment(threads: int) -> dict[str, str]:
    """Variables its process needs."""
    return {"NUMBA_NUM_THREADS": str(threads)}
