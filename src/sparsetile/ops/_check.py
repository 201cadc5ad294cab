"""Checks of what a caller passes: each error names the argument and says what to do."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sparsetile.matrix import Pattern

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_BESIDE_FLOAT32 = (torch.float32, torch.bfloat16, torch.float16)


def values_dtypes(dtype: torch.dtype) -> tuple[torch.dtype, ...]:
    """List what values may be beside other operands of a dtype: the same, or half of float32."""
    return _BESIDE_FLOAT32 if dtype is torch.float32 else (dtype,)


def in_order(x: Tensor, y: Tensor, bias: Tensor | None, mixed: bool) -> bool:
    """Whether operands pass `operands` and `agree`: the common case, decided in a microsecond."""
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        return False
    dtype, device, strided = x.dtype, x.device, torch.strided
    if dtype not in DTYPES or x.layout is not strided or device.type == "meta":
        return False
    if y.dtype is not dtype and not (mixed and y.dtype in values_dtypes(dtype)):
        return False
    if y.device != device or y.layout is not strided:
        return False
    if bias is None:
        return True
    return (
        isinstance(bias, Tensor)
        and bias.dtype is dtype
        and bias.device == device
        and bias.layout is strided
    )


def is_pattern(op: str, pattern: object) -> None:
    """Refuse anything but a Pattern."""
    if not isinstance(pattern, Pattern):
        raise TypeError(
            f"{op}: pattern must be a sparsetile.Pattern, got {_kind(pattern)}; "
            "make one with sparsetile.pattern_of(mask, blocksize) or take BSR.pattern"
        )


def operands(op: str, tensors: dict[str, Tensor | None]) -> None:
    """Refuse what is not a strided floating tensor with memory; only bias may be None."""
    for name, t in tensors.items():
        if t is None and name == "bias":
            continue
        is_tensor(op, name, t)
        assert t is not None
        if t.dtype not in DTYPES:
            allowed = ", ".join(_name(dtype) for dtype in DTYPES)
            raise TypeError(
                f"{op}: {name} is {_name(t.dtype)}; allowed are {allowed}; convert it with .to()"
            )
        if t.layout is not torch.strided:
            raise TypeError(
                f"{op}: {name} has layout {t.layout}; only strided tensors are allowed: pass "
                "to_dense() of it, or turn a sparse matrix into a sparsetile.BSR"
            )
        if t.device.type == "meta":
            raise ValueError(
                f"{op}: {name} is on device meta, which holds no data; allowed are tensors with "
                "data: move it with .to_empty(), or use FakeTensorMode for shapes alone"
            )


def agree(op: str, tensors: dict[str, Tensor | None]) -> None:
    """Refuse operands whose dtype or device differs from the first one's.

    Operands called `values` may be narrower, as `values_dtypes` says.
    """
    (first, x), *others = tensors.items()
    assert x is not None
    for name, t in others:
        if t is None:
            continue
        if t.dtype is not x.dtype and not (name == "values" and t.dtype in values_dtypes(x.dtype)):
            half = ", or float32 beside values of bfloat16 or float16"
            raise TypeError(
                f"{op}: {first} is {_name(x.dtype)} but {name} is {_name(t.dtype)}; all operands "
                f"must have one dtype{half if 'values' in tensors else ''}: convert one with "
                ".to(), or use torch.autocast"
            )
        if t.device != x.device:
            raise ValueError(
                f"{op}: {first} is on {x.device} but {name} is on {t.device}; all operands must "
                "be on one device: move one with .to()"
            )


def is_tensor(op: str, name: str, t: object) -> None:
    """Refuse what is no tensor."""
    if not isinstance(t, Tensor):
        raise TypeError(f"{op}: {name} must be a torch.Tensor, got {_kind(t)}")


def indices(op: str, values: Tensor, crow: Tensor, col: Tensor, shape: Sequence[int]) -> None:
    """Refuse index tensors that do not fit `values` and the shape; their content is trusted."""
    _check_shape_pair(op, shape)
    if not isinstance(values, Tensor) or values.dim() != 3 or 0 in values.shape[1:]:
        raise ValueError(
            f"{op}: values must be blocks [nnzb, r, c] with r, c ≥ 1, got {_kind(values)}; see "
            "sparsetile.matrix.gather_blocks"
        )
    nnzb, r, _ = values.shape
    for name, t, size in (
        ("crow_indices", crow, -(-shape[0] // r) + 1),
        ("col_indices", col, nnzb),
    ):
        if not isinstance(t, Tensor) or t.dtype is not torch.int32:
            raise TypeError(
                f"{op}: {name} must be an int32 tensor, got {_kind(t)}; convert it with .int()"
            )
        if t.dim() != 1 or t.shape[0] != size or not t.is_contiguous():
            raise ValueError(
                f"{op}: {name} must be contiguous of shape [{size}] for values of shape "
                f"{list(values.shape)} in a {shape[0]}×{shape[1]} matrix, got {list(t.shape)}"
            )
        if t.device != values.device:
            raise ValueError(
                f"{op}: {name} is on {t.device} but values is on {values.device}; "
                "move one with .to()"
            )


def values_fit(op: str, values: Tensor, pattern: Pattern) -> None:
    """Refuse values that are not one block for each block of the pattern."""
    wanted = (pattern.col_indices.shape[0], *pattern.blocksize)
    if values.shape != wanted:
        raise ValueError(
            f"{op}: values has shape {list(values.shape)}, but the pattern needs [nnzb, r, c] = "
            f"{list(wanted)}; sparsetile.matrix.gather_blocks(w, pattern) makes them"
        )
    pattern_device(op, "values", values, pattern)


def pattern_device(op: str, name: str, t: Tensor, pattern: Pattern) -> None:
    """Refuse a pattern on another device than the operands."""
    if pattern.col_indices.device != t.device:
        raise ValueError(
            f"{op}: pattern is on {pattern.col_indices.device} but {name} is on {t.device}; "
            f"move the pattern with pattern.to({str(t.device)!r})"
        )


def size(op: str, name: str, t: Tensor, dim: int, wanted: int, axes: str) -> None:
    """Refuse a tensor without the wanted size along a dimension counted from the end."""
    if t.dim() < -dim or t.shape[dim] != wanted:
        raise ValueError(
            f"{op}: {name} has shape {list(t.shape)}, but it must be {axes} with size {wanted} "
            f"at dimension {dim}; transpose or reshape it"
        )


def _check_shape_pair(op: str, shape: Sequence[int]) -> None:
    if not isinstance(shape, (tuple, list)) or len(shape) != 2:
        raise TypeError(f"{op}: shape must be a pair (m, k), got {shape!r}")
    for size in shape:
        # Compilers pass symbols for sizes; anything else must be an integer, numpy's included.
        if type(size) is not int and not isinstance(size, (torch.SymInt, np.integer)):
            raise TypeError(
                f"{op}: shape must be a pair (m, k) of integers, got {tuple(shape)!r}; "
                "convert its sizes with int()"
            )
    if shape[0] < 0 or shape[1] < 0:
        raise ValueError(f"{op}: shape must be (m, k) with m, k ≥ 0, got {tuple(shape)}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _kind(thing: object) -> str:
    if isinstance(thing, Tensor):
        return f"a {_name(thing.dtype)} tensor of shape {list(thing.shape)}"
    return f"{type(thing).__name__} {thing!r:.60}"
