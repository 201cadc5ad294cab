"""torch's own products: dense, CSR and BSR."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sparsetile.bench._bench_case import CannotError, Operands
from sparsetile.bench._peers import DENSE, DENSE_BF16, Call
from sparsetile.bench._peers_own import both_gradients, train_step
from sparsetile.matrix import gather_blocks


def prepare(name: str, given: Operands) -> Call:
    """Make torch's call of a case."""
    if name in (DENSE, DENSE_BF16):
        return _dense(given, torch.bfloat16 if name == DENSE_BF16 else given.x.dtype)
    return _sparse(given, name.removeprefix("torch-"))


def dense_call(op: str, x: Tensor, w: Tensor, g: Tensor) -> Callable[[], Any]:
    """Give torch's dense call of one product.

    Args:
        op: One of `_bench_case.OPS` but `train-step`.
        x: Input `[n, k]`; `[k, n]` for `spmm`.
        w: Weight `[m, k]`.
        g: Gradient of the output `[n, m]`; the left factor `[m, n]` for `sddmm`.

    Returns:
        The call; it returns a tensor, or both gradients for `linear+grad`.
    """
    if op == "dx":
        return lambda: g @ w
    if op == "dvalues":
        return lambda: g.t() @ x
    if op == "spmm":
        return lambda: w @ x
    if op == "sddmm":
        return lambda: g @ x
    if op == "linear+grad":
        return both_gradients(F.linear, x, w, g)
    return lambda: F.linear(x, w)


def _dense(given: Operands, dtype: torch.dtype) -> Call:
    op, w = given.case.op, given.w.to(dtype)
    x = (given.xt if op == "spmm" else given.x).to(dtype)
    g = (given.gt if op == "sddmm" else given.g).to(dtype)

    def blocks(full: Tensor) -> Tensor:
        return gather_blocks(full, given.pattern)

    def result(found: Any) -> tuple[Tensor, ...]:
        if op in ("dvalues", "sddmm"):
            return (blocks(found),)
        if op == "linear+grad":
            return found[0].t(), blocks(found[1])
        if op == "train-step":
            return found[0], blocks(found[1])
        return (found if op == "spmm" else found.t(),)

    if op == "train-step":
        layer = torch.nn.Linear(given.case.k, given.case.m, bias=False, dtype=given.x.dtype)
        with torch.no_grad():
            layer.weight.copy_(w)
        if dtype != given.x.dtype:
            raise CannotError("its own dtype is timed")
        return Call(train_step(layer, given), result, "torch", "nn.Linear")
    kernel = "F.linear" if op.startswith("linear") else "matmul"
    return Call(dense_call(op, x, w, g), result, "torch", kernel)


def _sparse(given: Operands, layout: str) -> Call:
    op = given.case.op
    if op == "train-step":
        raise CannotError("no optimizer takes it")
    if layout == "bsr" and given.pattern.ragged:
        raise CannotError("no ragged blocks")
    if layout == "bsr" and given.case.r != given.case.c:
        raise CannotError("no rectangular blocks")
    if layout == "bsr" and op in ("linear+grad", "dvalues", "sddmm"):
        raise CannotError("no gradient of its values")
    w, dense = narrow(given.sparse().to_torch(layout)), given.dense()
    kernel = f"{layout} @ dense"
    if op == "linear+grad":
        call = both_gradients(torch.matmul, w, dense, given.gt)
        return Call(
            call,
            lambda found: (found[1], gather_blocks(found[0].to_dense(), given.pattern)),
            "torch",
            kernel,
        )
    if op in ("dvalues", "sddmm"):
        a = given.g.t() if op == "dvalues" else given.gt
        return Call(
            lambda: torch.sparse.sampled_addmm(w, a, given.x, beta=0.0),
            lambda found: (gather_blocks(found.to_dense(), given.pattern),),
            "torch",
            "sampled_addmm",
        )
    return Call(lambda: w @ dense, lambda found: (found,), "torch", kernel)


def narrow(t: Tensor) -> Tensor:
    """Give a compressed tensor the 32-bit indices that its library computes with."""
    return torch.sparse_compressed_tensor(
        t.crow_indices().int(),
        t.col_indices().int(),
        t.values(),
        t.shape,
        layout=t.layout,
        check_invariants=True,
    )
