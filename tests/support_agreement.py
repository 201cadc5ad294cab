"""Any product and its gradients against dense float64, under a bound that holds for every sum.

A float32 sum of so many terms errs by at most terms · 2⁻²⁴ times the sum of their magnitudes, in
whatever order it is added up; then comes one rounding to the format of the result.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sparsetile.matrix import Pattern
from sparsetile.ops import linear, sddmm, spmm
from sparsetile.ops._register import LINEAR, SPMM
from support import inside
from support_ops import STRIDES, blocks_of, dense_of, pattern_from, strided, values_for

F64, F32, BF16, F16 = torch.float64, torch.float32, torch.bfloat16, torch.float16
ROUNDING = {F64: 2.0**-53, F32: 2.0**-24, BF16: 2.0**-8, F16: 2.0**-11}
SMALLEST = {F64: 0.0, F32: 2.0**-126, BF16: 2.0**-126, F16: 2.0**-24}
ACTIVATIONS = {
    None: lambda y: y,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "silu": F.silu,
}
STEEPEST = 1.13  # no activation magnifies an error more
#: What a case is drawn from; ranges and lists are in the order in which hypothesis simplifies.
CHOICES = {
    "op": ("linear", "spmm", "sddmm"),
    "m": range(150),
    "k": range(150),
    "n": (*range(1, 18), 0, 31, 33, 48, 64, 65, 100, 130),
    "batch": ((), (1,), (3,), (2, 2), (0,)),
    "stored": ("third", "few", "all", "one row", "none"),
    "transpose": (False, True),
    "layout": STRIDES,
    "other_layout": STRIDES,
    "bias": (False, True),
    "activation": tuple(ACTIVATIONS),
    "padding": (float("nan"), float("inf")),
    "seed": range(2**16),
}


@dataclass(frozen=True)
class Case:
    """One product: x[…, n, k] · Wᵀ, W · X[…, k, n], or the blocks of A[…, m, n] · B[…, n, k]."""

    blocksize: tuple[int, int]
    dtype: torch.dtype
    values_dtype: torch.dtype
    op: str
    m: int
    k: int
    n: int
    batch: tuple[int, ...]
    stored: str
    transpose: bool
    layout: str
    other_layout: str
    bias: bool
    activation: str | None
    padding: float
    seed: int

    @property
    def pattern(self) -> Pattern:
        (m, k), (r, c) = (self.m, self.k), self.blocksize
        generator = torch.Generator().manual_seed(self.seed)
        chance = torch.rand(-(-m // r), -(-k // c), generator=generator)
        mask = chance < {"few": 0.05, "third": 0.3, "all": 1.0}.get(self.stored, 0.0)
        if self.stored == "one row" and m:
            mask[self.seed % len(mask)] = True
        return pattern_from((m, k), (r, c), mask)


@dataclass(frozen=True)
class Sum:
    """Dense sums in float64, and how far float32 sums of the same may be from them."""

    value: Tensor
    error: Tensor

    @classmethod
    def of(cls, a: Tensor, b: Tensor, bias: Tensor | None = None, unit: float = 2.0**-24) -> "Sum":
        """The product a · b, plus a bias."""
        a, b = a.double(), b.double()
        value, size = a @ b, a.abs() @ b.abs()
        if bias is not None:
            value, size = value + bias.double(), size + bias.double().abs()
        return cls(value, (a.shape[-1] + 2) * unit * size)

    def apply(self, function) -> "Sum":
        """A rearrangement of the sums."""
        return Sum(function(self.value), function(self.error))

    def activated(self, activation: str | None) -> "Sum":
        """A function of the sums, itself computed in float32."""
        if activation is None:
            return self
        own = 2.0**-21 * (1 + self.value.abs())
        return Sum(ACTIVATIONS[activation](self.value), STEEPEST * self.error + own)

    def agrees(self, got: Tensor, dtype: torch.dtype, what: str) -> None:
        assert got.dtype == dtype, what
        assert got.shape == self.value.shape, (what, got.shape, self.value.shape)
        rounded = ROUNDING[dtype] * (self.value.abs() + self.error) + SMALLEST[dtype]
        error = (got.double() - self.value).abs()
        right = error <= self.error + rounded  # NaN is not
        if not right.all():
            where = tuple((~right).nonzero()[0].tolist())
            numbers = got[where].item(), self.value[where].item(), self.error[where].item()
            raise AssertionError(f"{what}{list(where)}: got, wanted, error of sums are {numbers}")


def check(case: Case, gradients: bool = True) -> None:
    """Compare one product, without gradient and into a given tensor, then each gradient."""
    torch.manual_seed(case.seed)
    pattern = case.pattern
    if case.op == "sddmm":
        _check_sddmm(case, pattern, gradients)
    elif case.op == "linear":
        _check_linear(case, pattern, gradients)
    else:
        _check_spmm(case, pattern, gradients)


def _check_linear(case: Case, pattern: Pattern, gradients: bool) -> None:
    (m, k), dtype = pattern.shape, case.dtype
    width, height = (m, k) if case.transpose else (k, m)
    x = strided(torch.randn(*case.batch, case.n, width).to(dtype), case.layout)
    values = values_for(pattern, case.values_dtype, case.padding)
    bias = torch.randn(height).to(dtype) if case.bias else None

    def product(x, values, bias, activation=None, out=None):
        if case.transpose:
            indices = pattern.crow_indices, pattern.col_indices
            return LINEAR(x, values, *indices, bias, m, k, True, activation or "")
        return linear(x, values, pattern, bias, activation=activation, out=out)

    w = dense_of(values.double(), pattern)
    right = w if case.transpose else w.T
    want = Sum.of(x, right, bias, unit(dtype))
    room = room_for(want.value, case)
    with torch.no_grad():
        for out in (None, room):
            y = product(x, values, bias, case.activation, out)
            want.activated(case.activation).agrees(y, dtype, "y")
    if not gradients:
        return
    dy = strided(torch.randn(want.value.shape).to(dtype), case.other_layout)
    leaves = [t for t in (x, values, bias) if t is not None]
    leaves = [t.detach().requires_grad_() for t in leaves]
    y = product(*leaves, *[None] * (3 - len(leaves)))
    want.agrees(y.detach(), dtype, "y with gradients")
    dx, dvalues, *dbias = torch.autograd.grad(y, leaves, dy)
    Sum.of(dy, right.T, unit=unit(dtype)).agrees(dx, dtype, "dx")
    rows, flat = x.flatten(0, -2), dy.flatten(0, -2)
    pair = (rows.T, flat) if case.transpose else (flat.T, rows)
    dw = Sum.of(*pair, unit=unit(dtype)).apply(lambda t: blocks_of(t, pattern))
    dw.agrees(dvalues, case.values_dtype, "dvalues")
    assert not dvalues[~inside(pattern)].any()
    if dbias:
        ones = torch.ones(1, len(flat))
        Sum.of(ones, flat, unit=unit(dtype)).apply(lambda t: t[0]).agrees(dbias[0], dtype, "dbias")


def _check_spmm(case: Case, pattern: Pattern, gradients: bool) -> None:
    (m, k), dtype = pattern.shape, case.dtype
    x = strided(torch.randn(*case.batch, m if case.transpose else k, case.n).to(dtype), case.layout)
    values = values_for(pattern, case.values_dtype, case.padding)

    def product(values, x, out=None):
        if case.transpose:
            return SPMM(values, pattern.crow_indices, pattern.col_indices, x, m, k, True)
        return spmm(values, pattern, x, out=out)

    w = dense_of(values.double(), pattern)
    left = w.T if case.transpose else w
    want = Sum.of(left, x, unit=unit(dtype))
    with torch.no_grad():
        for out in (None, room_for(want.value, case)):
            want.agrees(product(values, x, out), dtype, "y")
    if not gradients:
        return
    dy = strided(torch.randn(want.value.shape).to(dtype), case.other_layout)
    leaves = values.detach().requires_grad_(), x.detach().requires_grad_()
    dvalues, dx = torch.autograd.grad(product(*leaves), leaves, dy)
    Sum.of(left.T, dy, unit=unit(dtype)).agrees(dx, dtype, "dx")
    # over the batch too: side by side
    wide_x, wide_dy = (t.movedim(-2, 0).flatten(1) for t in (x, dy))
    pair = (wide_x, wide_dy.T) if case.transpose else (wide_dy, wide_x.T)
    dw = Sum.of(*pair, unit=unit(dtype)).apply(lambda t: blocks_of(t, pattern))
    dw.agrees(dvalues, case.values_dtype, "dvalues")
    assert not dvalues[~inside(pattern)].any()


def _check_sddmm(case: Case, pattern: Pattern, gradients: bool) -> None:
    (m, k), dtype = pattern.shape, case.dtype
    a = strided(torch.randn(*case.batch, m, case.n).to(dtype), case.layout)
    b = strided(torch.randn(*case.batch, case.n, k).to(dtype), case.other_layout)
    want = Sum.of(a, b, unit=unit(dtype)).apply(lambda t: blocks_of(t, pattern))
    with torch.no_grad():
        for out in (None, room_for(want.value, case)):
            want.agrees(sddmm(a, b, pattern, out=out), dtype, "blocks")
    if not gradients:
        return
    ds = torch.randn(want.value.shape).to(dtype)
    leaves = a.detach().requires_grad_(), b.detach().requires_grad_()
    da, db = torch.autograd.grad(sddmm(*leaves, pattern), leaves, ds)
    w = dense_of(ds.double(), pattern)
    Sum.of(w, b.mT, unit=unit(dtype)).agrees(da, dtype, "da")
    Sum.of(a.mT, w, unit=unit(dtype)).agrees(db, dtype, "db")


def room_for(want: Tensor, case: Case) -> Tensor:
    """A tensor to write to, of other strides, full of what nobody wrote."""
    room = torch.full(want.shape, float("nan"), dtype=case.dtype)
    overlaps = case.other_layout == "expanded"
    return room if overlaps else strided(room, case.other_layout)


def unit(dtype: torch.dtype) -> float:
    """The rounding of each addition."""
    return ROUNDING[F64 if dtype == F64 else F32]
