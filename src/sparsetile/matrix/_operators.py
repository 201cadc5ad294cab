"""The `@` of a block-sparse matrix: the room of the products, which is above, hooks itself in."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Shaped
from torch import Tensor

from sparsetile.matrix._check import describe, message
from sparsetile.matrix._pattern import Pattern


class Product(NamedTuple):
    """The two products that `@` needs."""

    spmm: Callable[[Tensor, Pattern, Tensor], Tensor]
    linear: Callable[[Tensor, Tensor, Pattern], Tensor]


_registered: list[Product] = []


def register_product(
    spmm: Callable[[Tensor, Pattern, Tensor], Tensor],
    linear: Callable[[Tensor, Tensor, Pattern], Tensor],
) -> None:
    """Say how `@` multiplies; the room `ops` calls this when it is imported.

    Args:
        spmm: `(values, pattern, x[..., k, n]) -> y[..., m, n]`.
        linear: `(x[..., k], values, pattern) -> y[..., m]`.

    Examples:
        >>> from sparsetile.matrix import register_product
        >>> from sparsetile.ops import linear, spmm
        >>> register_product(spmm, linear)
    """
    _registered[:] = [Product(spmm, linear)]


def multiply(values: Shaped[Tensor, "nnzb r c"], pattern: Pattern, x: Tensor) -> Tensor:
    """Compute A x for a vector, a matrix or a batch of matrices, as `torch.matmul` would.

    Args:
        values: Blocks of A `[nnzb, r, c]`.
        pattern: Pattern of A, shape `(m, k)`.
        x: `[k]` or `[..., k, n]`.

    Returns:
        `[m]` or `[..., m, n]`.

    Raises:
        TypeError: If `x` is not a tensor.
        ValueError: If its size does not fit.
    """
    _check_operand("A @ x", x, axis=-1 if getattr(x, "ndim", 0) < 2 else -2, size=pattern.shape[1])
    if x.ndim == 1:
        return _product().linear(x, values, pattern)
    return _product().spmm(values, pattern, x)


def multiply_left(x: Tensor, values: Shaped[Tensor, "nnzb r c"], pattern: Pattern) -> Tensor:
    """Compute x A for a vector or anything with rows of length m, as `torch.matmul` would.

    Args:
        x: `[..., m]`.
        values: Blocks of the transpose of A `[nnzb, c, r]`.
        pattern: Pattern of the transpose of A, shape `(k, m)`.

    Returns:
        `[..., k]`.

    Raises:
        TypeError: If `x` is not a tensor.
        ValueError: If its size does not fit.
    """
    _check_operand("x @ A", x, axis=-1, size=pattern.shape[1])
    return _product().linear(x, values, pattern)


def _product() -> Product:
    if not _registered:
        raise RuntimeError(
            message(
                "@",
                got="a product, but no room of products is loaded",
                allowed="the products of sparsetile.ops",
                fix="import sparsetile.ops first",
            )
        )
    return _registered[0]


def _check_operand(asked: str, x: object, *, axis: int, size: int) -> None:
    if not isinstance(x, torch.Tensor):
        raise TypeError(
            message(
                asked,
                got=f"x = {describe(x)}",
                allowed="a dense torch tensor",
                fix="convert it with torch.as_tensor, or a BSR with to_dense()",
            )
        )
    if x.layout != torch.strided or x.ndim == 0 or x.shape[axis] != size:
        raise ValueError(
            message(
                asked,
                got=f"x = {describe(x)}",
                allowed=f"a dense tensor with {size} elements along dimension {axis}",
                fix="transpose x or A so that the inner sizes agree",
            )
        )
