"""Whether masks, blocks, dtypes and operands fit each other."""

from collections.abc import Sequence

import torch
from jaxtyping import Shaped
from torch import Tensor

from sparsetile.matrix import Pattern
from sparsetile.matrix._check import describe, message

GRAIN = {"float16": 16, "float32": 8}


def as_patterns(patterns: Pattern | Sequence[Pattern]) -> tuple[Pattern, ...]:
    """Take one pattern, or one for each group, alike in shape and block."""
    given = (patterns,) if not isinstance(patterns, Sequence) else tuple(patterns)
    if not given or not all(isinstance(pattern, Pattern) for pattern in given):
        raise TypeError(
            message(
                "patterns",
                got=describe(patterns),
                allowed="a Pattern, or a list with one for each group",
                fix="make one with pattern_of or causal_pattern",
            )
        )
    if len({(pattern.shape, pattern.blocksize) for pattern in given}) > 1:
        raise ValueError(
            message(
                "patterns",
                got="; ".join(pattern.summary() for pattern in given),
                allowed="one shape and blocksize for all groups",
                fix="plan groups that differ one by one",
            )
        )
    if given[0].ragged:
        raise ValueError(
            message(
                "patterns",
                got=given[0].summary(),
                allowed="sizes that blocks divide",
                fix="pad the matrix to whole blocks",
            )
        )
    return tuple(pattern.to("cpu") for pattern in given)


def check_dtypes(dtype: str, partials: str) -> None:
    """Refuse dtypes that tiles do not multiply, and partial sums less precise than the input."""
    if dtype not in tuple(GRAIN) or partials not in tuple(GRAIN):
        raise ValueError(
            message(
                "dtype and partials",
                got=f"{dtype!r} and {partials!r}",
                allowed="float16 or float32",
                fix="name one of these as a string",
            )
        )
    if (dtype, partials) == ("float32", "float16"):
        raise ValueError(
            message(
                "partials",
                got="'float16' with float32 operands",
                allowed="partial sums at least as precise as the operands",
                fix="pass partials='float32', or multiply float16 operands",
            )
        )


def check_blocks(sizes: tuple[int, ...], block: tuple[int, ...], dtype: str) -> None:
    """Refuse blocks that do not divide sizes or that the matrix units do not take whole."""
    grain = GRAIN[dtype]
    if any(side % grain for side in block):
        raise ValueError(
            message(
                "blocks along m, k, n",
                got="×".join(map(str, block)),
                allowed=f"multiples of {grain} for {dtype}",
                fix=f"choose a blocksize such as {grain}",
            )
        )
    if any(size < 1 or size % side for size, side in zip(sizes, block, strict=True)):
        raise ValueError(
            message(
                "sizes m, k, n",
                got=f"{', '.join(map(str, sizes))} in blocks of {'×'.join(map(str, block))}",
                allowed="whole blocks, at least one",
                fix="pad the operands, or choose a smaller block",
            )
        )


def check_tensor(name: str, value: Shaped[Tensor, "..."], shape: Sequence[int], dtype: str) -> None:
    """Refuse a tensor that is not what a plan was made for."""
    wanted = getattr(torch, dtype)
    if (
        not isinstance(value, Tensor)
        or list(value.shape) != list(shape)
        or value.dtype != wanted
        or value.device.type != "cpu"
        or value.layout != torch.strided
    ):
        raise ValueError(
            message(
                name,
                got=describe(value),
                allowed=f"{dtype} {list(shape)}, dense, on cpu, groups one below the other",
                fix="convert it, or make a plan for what you have",
            )
        )
