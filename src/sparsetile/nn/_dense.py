"""The dense layers that have a sparse twin, and what can be taken from them."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from sparsetile.matrix import Pattern, gather_blocks, pattern_from_dense, random_pattern
from sparsetile.nn._check import DTYPES, check_draw, dtype_names


def plain_type(module: nn.Module) -> type[nn.Module]:
    """The class a module was built as; a parametrization gives it a class of its own."""
    kind: type[nn.Module] = parametrize.type_before_parametrizations(module)
    return kind


def is_conv1d(module: nn.Module) -> bool:
    """Whether a module is transformers' `Conv1D`, known by name so that nothing is imported."""
    kind = plain_type(module)
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
    hidden = "bias" not in module._parameters and getattr(module, "bias", None) is not None
    if weight is None or hidden:
        return (
            f"its {'bias' if hidden else 'weight'} is computed by a parametrization or a pruning "
            "mask; make it plain with torch.nn.utils.prune.remove or "
            "parametrize.remove_parametrizations, or leave it out with filter"
        )
    if isinstance(weight, nn.parameter.UninitializedParameter):
        return "it is lazy and has no weight yet; run the model once first"
    if weight.dtype not in DTYPES:
        return f"its weight is {weight.dtype}, and only {dtype_names()} is taken"
    if weight.is_meta:
        return "its weight is on the meta device; load its values first"
    return None


def chosen(
    weight: Tensor,
    blocksize: Any,
    density: float | None,
    pattern: Pattern | None,
    method: str,
    score: str,
) -> Pattern:
    """Which blocks of a dense weight to keep, of checked arguments.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If one is out of range, or they do not fit together.
    """
    shape = (weight.shape[0], weight.shape[1])
    check_source(shape, blocksize, density, pattern)
    if method not in ("magnitude", "random"):
        raise ValueError(f'method must be "magnitude" or "random", got {method!r}')
    if pattern is not None:
        return pattern
    assert density is not None
    if method == "random":
        return drawn(shape, blocksize, density)
    return pattern_from_dense(weight.detach(), blocksize, density, score=score)


def drawn(
    shape: tuple[int, int],
    blocksize: int | tuple[int, int],
    density: float,
    balanced: bool = False,
) -> Pattern:
    """A random pattern, seeded by torch's global generator."""
    with torch.device("cpu"):  # also inside `with torch.device("meta")`
        seed = int(torch.randint(2**31, ()))
        return random_pattern(
            *shape, blocksize=blocksize, density=density, seed=seed, balanced=balanced
        )


def kept(weight: Tensor, pattern: Pattern) -> Tensor:
    """A copy of a weight's blocks at a pattern."""
    return gather_blocks(weight.detach(), pattern.to(weight.device)).contiguous()


def checked_values(values: Any, pattern: Pattern) -> Tensor:
    """Check that values are those of a pattern's blocks.

    Raises:
        TypeError: If they are no tensor of a floating type.
        ValueError: If they have another shape, or hold no data.
    """
    if not isinstance(values, Tensor) or not values.is_floating_point():
        got = values.dtype if isinstance(values, Tensor) else f"{values!r}"
        raise TypeError(f"values must be a tensor of a floating type, got {got}")
    if values.layout != torch.strided or values.is_meta:
        got = "the meta device" if values.is_meta else f"layout {values.layout}"
        raise ValueError(f"values must be a plain (strided) tensor that holds data, got {got}")
    if tuple(values.shape) != (pattern.nnzb, *pattern.blocksize):
        raise ValueError(
            f"values must have shape {[pattern.nnzb, *pattern.blocksize]}, one block for each "
            f"of the pattern's, got {list(values.shape)}"
        )
    return values


def check_source(
    shape: tuple[int, ...],
    blocksize: Any,
    density: Any,
    pattern: Any,
) -> None:
    """Check that exactly one of density and pattern is given, and that it fits.

    Raises:
        TypeError: If `pattern` is no Pattern, or density or block size are of a wrong type.
        ValueError: If both or neither are given, one is out of range, or shape or block size
            differ.
    """
    if (density is None) == (pattern is None):
        given = "neither" if density is None else "both"
        raise ValueError(
            f"give exactly one of density and pattern, got {given}; density=0.1 draws a random "
            "pattern, pattern=… stores the blocks you choose"
        )
    if pattern is None:
        check_draw(shape, blocksize, density)
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
