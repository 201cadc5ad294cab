"""The dense layers that have a sparse twin, and the checks their sizes must pass."""

import numbers
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sparsetile.matrix import Pattern, gather_blocks, pattern_from_dense


def is_conv1d(module: nn.Module) -> bool:
    """Whether a module is transformers' `Conv1D`, known by name so that nothing is imported."""
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"


def layout(module: nn.Module) -> Literal["linear", "conv1d"]:
    """How a dense layer lays out its weight: `[out, in]`, or `[in, out]` for `Conv1D`."""
    return "conv1d" if is_conv1d(module) else "linear"


def parts(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Weight as `[out, in]` and bias of a dense layer.

    Raises:
        TypeError: If the module is no dense linear layer.
        ValueError: If its weight is computed or does not exist yet.
    """
    if not isinstance(module, nn.Linear) and not is_conv1d(module):
        raise TypeError(
            "linear must be a torch.nn.Linear or a transformers Conv1D, "
            f"got {type(module).__name__}"
        )
    why = unfit(module)
    if why:
        raise ValueError(f"linear cannot be made sparse: {why}")
    weight, bias = module._parameters["weight"], module._parameters.get("bias")
    assert weight is not None
    if not is_conv1d(module):
        return weight, bias
    turned = weight.detach().t()
    return (turned.requires_grad_(weight.requires_grad), bias)


def unfit(module: nn.Module) -> str | None:
    """Why a dense layer's weight cannot be taken, with the way out; None if it can."""
    weight = module._parameters.get("weight")
    if weight is None:
        return (
            "its weight is computed by a parametrization or a pruning mask; make it plain with "
            "torch.nn.utils.prune.remove or parametrize.remove_parametrizations, or leave it out "
            "with filter"
        )
    if isinstance(weight, nn.parameter.UninitializedParameter):
        return "it is lazy and has no weight yet; run the model once first"
    if not weight.is_floating_point():
        return f"its weight is {weight.dtype}, and only floating types are taken"
    if weight.is_meta:
        return "its weight is on the meta device; load its values first"
    return None


def strongest(
    weight: Tensor, blocksize: int | tuple[int, int], density: float, score: str
) -> Pattern:
    """Pattern of the strongest blocks of a weight."""
    return pattern_from_dense(weight.detach(), blocksize, density, score=score)


def kept(weight: Tensor, pattern: Pattern) -> Tensor:
    """A copy of a weight's blocks at a pattern."""
    return gather_blocks(weight.detach(), pattern.to(weight.device)).contiguous()


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
        TypeError: If it is no floating type.
    """
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(
            f"dtype must be a floating torch.dtype such as torch.float32, got {dtype!r}"
        )
    return dtype


def check_source(
    shape: tuple[int, ...],
    blocksize: Any,
    density: Any,
    pattern: Any,
) -> None:
    """Check that exactly one of density and pattern is given, and that the pattern fits.

    Raises:
        TypeError: If `pattern` is no Pattern.
        ValueError: If both or neither are given, or shape or block size differ.
    """
    if (density is None) == (pattern is None):
        given = "neither" if density is None else "both"
        raise ValueError(
            f"give exactly one of density and pattern, got {given}; density=0.1 draws a random "
            "pattern, pattern=… stores the blocks you choose"
        )
    if pattern is None:
        return
    check_pattern(pattern, shape, None)
    square = (blocksize, blocksize) if isinstance(blocksize, int) else blocksize
    if square not in ((16, 16), pattern.blocksize):  # 16 is what the caller gets by saying nothing
        raise ValueError(
            f"blocksize={blocksize!r} differs from the pattern's {pattern.blocksize}; "
            "leave blocksize out, the pattern brings its own"
        )


def check_pattern(pattern: Any, shape: tuple[int, ...], blocksize: tuple[int, int] | None) -> None:
    """Check that a pattern fits a layer.

    Raises:
        TypeError: If it is no Pattern.
        ValueError: If its shape or block size differ.
    """
    if not isinstance(pattern, Pattern):
        raise TypeError(
            f"pattern must be a sparsetile Pattern, got {type(pattern).__name__}; "
            "pattern_of(mask, blocksize) makes one of a mask"
        )
    if pattern.shape != tuple(shape):
        hint = "; it is (out_features, in_features)" if pattern.shape == tuple(shape)[::-1] else ""
        raise ValueError(
            f"pattern must have the weight's shape {tuple(shape)}, got {pattern.shape}{hint}"
        )
    if blocksize is not None and pattern.blocksize != blocksize:
        raise ValueError(
            f"pattern must have the layer's blocksize {blocksize}, got {pattern.blocksize}; "
            "make a new layer for other blocks"
        )
