"""Whether a product may write into a tensor that the caller gives."""

import torch
from torch import Tensor


def fit_out(op: str, out: Tensor, shape: tuple[int, ...], first: Tensor) -> None:
    """Refuse a tensor that is not of the result's shape, dtype, device and layout.

    Args:
        op: The product, for errors.
        out: Where the result shall go.
        shape: Shape of the result.
        first: An operand of the result's dtype and device.
    """
    if out.dtype is not first.dtype:
        raise TypeError(
            f"{op}: out is {_name(out.dtype)}, but the result is {_name(first.dtype)}; give a "
            f"tensor of {first.dtype}"
        )
    if out.layout is not torch.strided:
        raise TypeError(
            f"{op}: out has layout {out.layout}; only strided tensors are allowed: make one with "
            "torch.empty"
        )
    if out.device != first.device:
        raise ValueError(
            f"{op}: out is on {out.device}, but the operands are on {first.device}; give a tensor "
            "there"
        )
    if tuple(out.shape) != shape:
        raise ValueError(
            f"{op}: out has shape {list(out.shape)}, but the result is {list(shape)}; give a "
            "tensor of that shape: out is never resized"
        )


def plain(op: str, out: Tensor) -> None:
    """Refuse a tensor that a kernel may not write to: an inference tensor, or a lazy view."""
    if out.is_inference() and not torch.is_inference_mode_enabled():
        raise RuntimeError(
            f"{op}: out was made in torch.inference_mode and is written outside of it; inference "
            "tensors may be written only inside: call there, or give a clone() made outside"
        )
    if out.is_neg() or out.is_conj():
        bit = "negative" if out.is_neg() else "conjugate"
        raise ValueError(
            f"{op}: out is a lazy view with torch's {bit} bit, such as .conj().imag gives; only "
            "tensors whose memory holds their own elements are allowed: give a tensor made with "
            "torch.empty and copy it over"
        )


def apart(op: str, out: Tensor, operands: dict[str, Tensor | None]) -> None:
    """Refuse an output whose elements share memory with each other or with an operand."""
    if not _distinct(out):
        raise ValueError(
            f"{op}: out has shape {list(out.shape)} and strides {list(out.stride())}, so elements "
            "may share memory; give a tensor whose elements lie one after the other, such as "
            "torch.empty or a slice of it"
        )
    for name, t in operands.items():
        if t is not None and _share(out, t):
            raise ValueError(
                f"{op}: out shares memory with {name}; give a tensor with memory of its own, or "
                "other columns of the same matrix"
            )


def _distinct(t: Tensor) -> bool:
    """Whether each dimension steps over all that the smaller steps reach."""
    extent = t.element_size()
    for step, size in _axes(t):
        if step < extent:
            return t.numel() == 0
        extent += (size - 1) * step
    return True


def _share(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have memory in common; False only if surely not."""
    if a.numel() == 0 or b.numel() == 0:
        return False
    distance = b.data_ptr() - a.data_ptr()
    if distance >= _extent(a) or -distance >= _extent(b):
        return False
    # Columns of one matrix lie between each other, yet apart: all larger steps of both are whole
    # rows, and within a row the bytes of one begin after those of the other.
    steps = {step for step, _ in _axes(a) + _axes(b)}
    for row in steps - {0}:
        between = distance % row
        whole = all(step < row or step % row == 0 for step in steps)
        if whole and _extent(a, row) <= between and between + _extent(b, row) <= row:
            return False
    return True


def _extent(t: Tensor, below: float = float("inf")) -> int:
    """Bytes from the first to past the last element along dimensions of steps below a bound."""
    return t.element_size() + sum(step * (n - 1) for step, n in _axes(t) if step < below)


def _axes(t: Tensor) -> list[tuple[int, int]]:
    """Give step in bytes and size of the dimensions with several elements, small steps first."""
    width = t.element_size()
    return sorted((s * width, n) for s, n in zip(t.stride(), t.shape, strict=True) if n > 1)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
