"""Whether tensors fit each other, asked at every product: the kernels trust what they are told.

Each check compares first, in about a microsecond, and looks for the culprit only on failure.
"""

import torch
from torch import Tensor

from sparsetile.ops._activation import activation_name
from sparsetile.ops._check import values_dtypes

# Name, tensor, the dtypes it may have, and the shape it must have.
_Need = tuple[str, Tensor, tuple[torch.dtype, ...], tuple[int, ...]]


def fit_linear(
    x: Tensor,
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    bias: Tensor | None,
    m: int,
    k: int,
    transpose: bool,
    activation: str,
) -> None:
    """Refuse operands of `linear` that do not fit each other or the m×k weight."""
    if activation:
        activation_name("linear", activation)
    nnzb, r, c = _blocks("linear", values, 3)
    dtype, device = x.dtype, x.device
    inner, outer = (m, k) if transpose else (k, m)
    if (
        x.dim() > 0
        and x.shape[-1] == inner
        and outer >= 0
        and values.dtype in values_dtypes(dtype)
        and values.device == device
        and _indices_fit(crow, col, -(-m // r) + 1, nnzb, device)
        and (
            bias is None
            or (bias.dtype is dtype and bias.shape == (outer,) and bias.device == device)
        )
    ):
        return
    needs = [
        ("x", x, (dtype,), (*x.shape[:-1], inner)),
        ("values", values, values_dtypes(dtype), (col.numel(), r, c)),
        *_index_needs(crow, col, m, r),
    ]
    if bias is not None:
        needs.append(("bias", bias, (dtype,), (outer,)))
    _refuse("linear", needs, device, f"a {m}×{k} weight of {r}×{c} blocks, transpose={transpose}")


def fit_spmm(
    values: Tensor, crow: Tensor, col: Tensor, x: Tensor, m: int, k: int, transpose: bool
) -> None:
    """Refuse operands of `spmm` that do not fit each other or the m×k matrix."""
    *lead, nnzb, r, c = _blocks("spmm", values, values.dim())
    dtype, device = x.dtype, x.device
    inner, outer = (m, k) if transpose else (k, m)
    if (
        x.dim() > 1
        and x.shape[-2] == inner
        and outer >= 0
        and values.dtype in values_dtypes(dtype)
        and values.device == device
        and _indices_fit(crow, col, -(-m // r) + 1, nnzb, device)
        and (not lead or x.shape[:-2] == tuple(lead))
    ):
        return
    needs = [
        ("x", x, (dtype,), (*x.shape[:-2], inner, *x.shape[-1:])),
        (
            "values",
            values,
            values_dtypes(dtype),
            (*(x.shape[:-2] if lead else ()), col.numel(), r, c),
        ),
        *_index_needs(crow, col, m, r),
    ]
    _refuse("spmm", needs, device, f"a {m}×{k} matrix of {r}×{c} blocks, transpose={transpose}")


def fit_sddmm(a: Tensor, b: Tensor, crow: Tensor, col: Tensor, r: int, c: int) -> None:
    """Refuse operands of `sddmm` that do not fit each other or the pattern."""
    if r < 1 or c < 1:
        raise ValueError(f"sddmm: the blocks are {r}×{c}; r and c must be 1 or more")
    if a.dim() < 2:
        raise ValueError(f"sddmm: a has shape {list(a.shape)}; it must be [..., m, t]")
    *lead, m, t = a.shape
    dtype, device = a.dtype, a.device
    if (
        b.dim() == len(lead) + 2
        and b.shape[:-1] == (*lead, t)
        and b.dtype is dtype
        and b.device == device
        and _indices_fit(crow, col, -(-m // r) + 1, col.numel(), device)
    ):
        return
    needs = [("b", b, (dtype,), (*lead, t, *b.shape[-1:])), *_index_needs(crow, col, m, r)]
    _refuse("sddmm", needs, device, f"a of shape {list(a.shape)} and {r}×{c} blocks")


def _blocks(op: str, values: Tensor, rank: int) -> torch.Size:
    """Take the shape of blocks, which names the sizes everything else must have."""
    shape = values.shape
    if len(shape) == rank >= 3 and shape[-2] > 0 and shape[-1] > 0:
        return shape
    raise ValueError(
        f"{op}: values has shape {list(shape)}; it must be blocks [nnzb, r, c] with r, c ≥ 1; "
        "sparsetile.matrix.gather_blocks(w, pattern) makes them"
    )


def _indices_fit(crow: Tensor, col: Tensor, offsets: int, nnzb: int, device: torch.device) -> bool:
    return (
        crow.dtype is torch.int32
        and col.dtype is torch.int32
        and crow.shape == (offsets,)
        and col.shape == (nnzb,)
        and crow.is_contiguous()
        and col.is_contiguous()
        and crow.device == device
        and col.device == device
    )


def _index_needs(crow: Tensor, col: Tensor, m: int, r: int) -> list[_Need]:
    return [
        ("crow", crow, (torch.int32,), (-(-m // r) + 1,)),
        ("col", col, (torch.int32,), (col.numel(),)),
    ]


def _refuse(op: str, needs: list[_Need], device: torch.device, given: str) -> None:
    """Raise for the first tensor that is not what it must be."""
    for name, t, dtypes, shape in needs:
        if t.dtype not in dtypes:
            raise TypeError(
                f"{op}: {name} is {_name(t.dtype)}; it must be "
                f"{' or '.join(map(_name, dtypes))} here; convert it with .to({dtypes[0]})"
            )
        if t.device != device:
            raise ValueError(
                f"{op}: {name} is on {t.device}; all operands must be on one device, and the "
                f"first one is on {device}: move it with .to({str(device)!r})"
            )
        if tuple(t.shape) != shape:
            raise ValueError(
                f"{op}: {name} has shape {list(t.shape)}; it must be {list(shape)} for {given}; "
                "sparsetile.ops has functions that take a Pattern, which fits"
            )
        if dtypes == (torch.int32,) and not t.is_contiguous():
            raise ValueError(
                f"{op}: {name} has strides {t.stride()}; index tensors must be contiguous; "
                "pass .contiguous() of it"
            )
    raise ValueError(f"{op}: m or k is negative in {given}; both must be 0 or more")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
