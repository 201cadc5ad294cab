"""Patterns read off a mask or off the strongest blocks of a dense matrix."""

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.nn.functional import pad

from sparsetile.matrix._check import (
    as_blocksize,
    as_choice,
    as_density,
    check_dense,
    describe,
    message,
)
from sparsetile.matrix._generate import block_count, pattern_of_blocks
from sparsetile.matrix._pattern import Pattern

SCORES = {"l1": 1.0, "l2": 2.0, "max": float("inf")}


def pattern_of(mask: Bool[Tensor, "m k"], blocksize: int | tuple[int, int]) -> Pattern:
    """Find the blocks of a mask that hold at least one true element.

    Args:
        mask: True where the matrix may be non-zero `[m, k]`.
        blocksize: Side of a square block or `(r, c)`; need not divide the mask.

    Returns:
        The pattern of the blocks to store, on the mask's device.

    Raises:
        TypeError: If the mask is not a boolean tensor.
        ValueError: If it is not a dense matrix that holds data.

    Examples:
        >>> pattern_of(torch.eye(5, dtype=torch.bool), blocksize=2).nnzb
        3
    """
    check_dense("mask", mask, dtype=torch.bool)
    r, c = as_blocksize(blocksize)
    kept = _blocked(mask, (r, c)).any(dim=3).any(dim=1)
    return pattern_of_blocks(kept, (mask.shape[0], mask.shape[1]), (r, c))


def pattern_from_dense(
    w: Shaped[Tensor, "m k"],
    blocksize: int | tuple[int, int],
    density: float,
    score: str = "l1",
) -> Pattern:
    """Keep the strongest blocks of a dense matrix.

    Args:
        w: Dense matrix `[m, k]`.
        blocksize: Side of a square block or `(r, c)`; need not divide the matrix.
        density: Fraction of the blocks to keep, in (0, 1].
        score: Strength of a block: `"l1"` or `"l2"` norm, or `"max"`, the largest magnitude.

    Returns:
        A pattern of exactly `round(density * blocks)` blocks, at least one unless there are
        none; among equal scores the first in row order wins.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument is out of range, or `w` holds NaN or infinity.

    Examples:
        >>> w = torch.tensor([[1.0, 1.0, 0.0, 3.0]])
        >>> pattern_from_dense(w, (1, 2), density=0.5, score="l1").col_indices
        tensor([1], dtype=torch.int32)
    """
    scores = block_scores(w, blocksize, score)
    density, (r, c) = as_density(density), as_blocksize(blocksize)
    kept = _strongest(scores.flatten(), block_count(scores.numel(), density))
    return pattern_of_blocks(kept.view(scores.shape), (w.shape[0], w.shape[1]), (r, c))


def block_scores(
    w: Shaped[Tensor, "m k"], blocksize: int | tuple[int, int], score: str = "l1"
) -> Float[Tensor, "mb kb"]:
    """Measure the strength of every block of a dense matrix.

    Args:
        w: Dense matrix `[m, k]`.
        blocksize: Side of a square block or `(r, c)`; need not divide the matrix.
        score: `"l1"` or `"l2"` norm, or `"max"`, the largest magnitude.

    Returns:
        One number a block `[mb, kb]`, in float32, or float64 if `w` is of it.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument is out of range, or `w` holds NaN or infinity.

    Examples:
        >>> block_scores(torch.tensor([[1.0, -1.0, 0.0, 3.0, 2.0]]), (1, 2))
        tensor([[2., 3., 2.]])
    """
    check_dense("w", w)
    r, c = as_blocksize(blocksize)
    order = SCORES[as_choice("score", score, tuple(SCORES))]
    dtype = w.dtype if w.dtype in (torch.float64, torch.complex128) else torch.float32
    blocked = _blocked(w.detach(), (r, c))
    if not (w.is_floating_point() or w.is_complex()):
        blocked = blocked.to(dtype)
    scores = torch.linalg.vector_norm(
        blocked, order, dim=(1, 3), dtype=torch.complex64 if w.is_complex() else dtype
    )
    if not bool(scores.isfinite().all()):
        row, col = (~scores.isfinite()).nonzero()[0].tolist()
        raise ValueError(
            message(
                "w",
                got=f"NaN, infinity or an overflow in block ({row}, {col}) of {describe(w)}",
                allowed="blocks whose scores are finite",
                fix="repair the weights, or pass a pattern of your own",
            )
        )
    return scores


def choose_pattern(
    w: Shaped[Tensor, "m k"],
    blocksize: int | tuple[int, int] | None,
    pattern: Pattern | None,
    density: float | None,
    drop_zero_blocks: bool,
) -> Pattern:
    """Find the blocks that `BSR.from_dense` stores.

    Args:
        w: Dense matrix `[m, k]`.
        blocksize: Block shape; may be None beside a pattern.
        pattern: Taken as it is, if given.
        density: Fraction of the strongest blocks to keep, if given.
        drop_zero_blocks: With neither, leave out blocks of zeros.

    Returns:
        The pattern.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If arguments exclude each other.

    Examples:
        >>> choose_pattern(torch.eye(4), 2, None, None, True).nnzb
        2
    """
    check_dense("w", w)
    if pattern is not None:
        _check_beside_pattern(pattern, blocksize, density)
        return pattern
    if blocksize is None:
        raise ValueError(
            message(
                "blocksize",
                got="None",
                allowed="a block shape, unless there is a pattern",
                fix="pass one, as in blocksize=16",
            )
        )
    if density is not None:
        return pattern_from_dense(w, blocksize, density)
    if drop_zero_blocks:
        return pattern_of(w.detach() != 0, blocksize)
    (m, k), (r, c) = w.shape, as_blocksize(blocksize)
    every = torch.ones(-(-m // r), -(-k // c), dtype=torch.bool, device=w.device)
    return pattern_of_blocks(every, (m, k), (r, c))


def _check_beside_pattern(pattern: object, blocksize: object, density: object) -> None:
    """Refuse what is no pattern, or contradicts it."""
    if not isinstance(pattern, Pattern):
        raise TypeError(
            message(
                "pattern",
                got=describe(pattern),
                allowed="a sparsetile.Pattern",
                fix="make one with pattern_of or random_pattern",
            )
        )
    if density is not None:
        raise ValueError(
            message(
                "density",
                got=f"{density} beside a pattern",
                allowed="one of the two",
                fix="leave out density: the pattern has its own",
            )
        )
    if blocksize is not None and as_blocksize(blocksize) != pattern.blocksize:
        raise ValueError(
            message(
                "blocksize",
                got=f"{blocksize} beside a pattern of {pattern.summary()}",
                allowed="the pattern's own",
                fix="leave out blocksize",
            )
        )


def _strongest(scores: Tensor, count: int) -> Tensor:
    """Mark the `count` largest scores, the first ones among equals."""
    if count == 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    # Only the threshold: neither torch nor numpy promises which of several equals it selects.
    # numpy's selection needs a fifth of the memory and time of torch's, which carries indices.
    least = len(scores) - count
    threshold = np.partition(scores.numpy(force=True), least)[least]
    kept = scores > threshold
    level = (scores == threshold).nonzero()[:, 0]
    kept[level[: count - int(kept.sum())]] = True
    return kept


def _blocked(w: Tensor, blocksize: tuple[int, int]) -> Tensor:
    """View a matrix as `[mb, r, kb, c]`, padded with zeros where it is ragged."""
    (m, k), (r, c) = w.shape, blocksize
    if m % r or k % c:
        w = pad(w, (0, -k % c, 0, -m % r))
    return w.unflatten(1, (-(-k // c), c)).unflatten(0, (-(-m // r), r))
