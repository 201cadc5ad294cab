"""JAX's block-compressed matrices, compiled."""

import os
from importlib import import_module

import torch

from sparsetile.bench._bench_case import CannotError, Operands
from sparsetile.bench._peers import Call
from sparsetile.bench._peers_scipy import from_numpy


def prepare(name: str, given: Operands) -> Call:
    """Make JAX's call of a case."""
    if given.x.dtype != torch.float32:
        raise CannotError(f"no {str(given.x.dtype).removeprefix('torch.')} here")
    op = given.case.op
    if op in ("dvalues", "sddmm"):
        raise CannotError("no sampled product")
    if op in ("linear+grad", "train-step"):
        raise CannotError("no gradients here")
    jax, np = import_module("jax"), import_module("numpy")
    sparse = import_module("jax.experimental.sparse")
    matrix = given.sparse().to_scipy("csr")
    parts = [jax.device_put(part) for part in (matrix.data, matrix.indices, matrix.indptr)]
    dense = jax.device_put(given.dense().numpy())
    product = jax.jit(lambda *args: sparse.BCSR(args[:3], shape=matrix.shape) @ args[3])
    return Call(
        lambda: product(*parts, dense).block_until_ready(),
        lambda found: from_numpy(np.array(found)),
        "jax",
        "BCSR @ dense",
    )


def environment(threads: int) -> dict[str, str]:
    """Variables its process needs."""
    return {"JAX_PLATFORMS": "cpu"}


def limit_threads(threads: int) -> None:
    """Leave this process as many CPUs as it may have threads: JAX has no other setting."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
