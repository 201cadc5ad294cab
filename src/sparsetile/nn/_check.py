"""Checks of the sizes, types and places that layers are built with."""

import math
import numbers
from typing import Any

import torch

from sparsetile.matrix import random_pattern

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

# Larger numbers overflow torch's own sizes, or the memory of any machine.
_MOST_POSITIONS = 2**40
_MOST_IN_A_BLOCK = 2**31 - 1


def checked_size(name: str, size: Any) -> int:
    """Check one of a layer's two sizes.

    Raises:
        TypeError: If it is no integer.
        ValueError: If it is negative.
    """
    if isinstance(size, bool) or not isinstance(size, numbers.Integral):
        raise TypeError(f"{name} must be an int, got {size!r} of type {type(size).__name__}")
    if size < 0:
        raise ValueError(f"{name} must be 0 or more, got {size}")
    return int(size)


def checked_dtype(dtype: Any) -> torch.dtype:
    """Check a layer's type of values; None is torch's default.

    Raises:
        TypeError: If layers cannot be of this type.
    """
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype not in DTYPES:
        raise TypeError(f"dtype must be a floating torch.dtype, {dtype_names()}, got {dtype!r}")
    return dtype


def dtype_names() -> str:
    """The types layers can have, for messages."""
    return "one of " + ", ".join(map(str, DTYPES))


def checked_device(device: Any) -> torch.device:
    """Check that tensors can be made on a device; None is torch's default.

    Raises:
        TypeError: If it names no device.
        ValueError: If this machine or this build of torch does not have it.
    """
    allowed = 'give a device of this machine such as "cpu"'
    if not isinstance(device, torch.device | str | int | None) or isinstance(device, bool):
        raise TypeError(f"device must be a torch.device, str or int, got {device!r}; {allowed}")
    try:
        return torch.empty(0, device=device).device
    # Torch reports what it was not built for by an AssertionError.
    except (RuntimeError, AssertionError, ImportError, ValueError) as fault:
        why = str(fault).splitlines()[0]
        raise ValueError(
            f"device must be one that torch can use here, got {device!r} ({why}); {allowed}"
        ) from fault


def check_draw(shape: tuple[int, ...] | None, blocksize: Any, density: Any) -> tuple[int, int]:
    """Check block size and density, and that a shape is not cut into too many blocks.

    Returns:
        Rows and columns of a block.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.
    """
    r, c = random_pattern(0, 0, blocksize=blocksize, density=density, seed=0).blocksize
    if r * c > _MOST_IN_A_BLOCK:
        raise ValueError(
            f"blocksize must have at most {_MOST_IN_A_BLOCK} values in a block, got {r}×{c}; "
            "use smaller blocks"
        )
    if shape is None:
        return r, c
    positions = math.ceil(shape[0] / r) * math.ceil(shape[1] / c)
    if positions > _MOST_POSITIONS:
        raise ValueError(
            f"out_features={shape[0]} and in_features={shape[1]} make {positions} block positions "
            f"of {r}×{c}, too many to draw from; at most {_MOST_POSITIONS} are allowed: use larger "
            "blocks, or give pattern="
        )
    return r, c
