"""Learning rates for sparse models."""

import math

from sparsetile.train._check import checked_share


def sparse_lr(
    dense_lr: float, sparsity: float | None = None, *, density: float | None = None
) -> float:
    """Scale a dense model's learning rate to a sparse one of the same layer sizes.

    The rule lr · exp(1.969 s² + 0.2905 s) was fitted to statically sparse BERT-Medium under Adam
    and held for dynamic patterns, blocks of 16×16 and other model sizes (Dietrich et al., "Towards
    Structured Dynamic Sparse Pre-Training of BERT", 2021). It is for Adam; SGD was not studied.
    Where the width changes too, `supar_groups` scales rates by width times density; at density 0.1
    it asks for 10 times the dense rate, this rule for 6.4 times.

    Args:
        dense_lr: Best learning rate of the dense model.
        sparsity: Share of the weights that is not stored, 1 − density.
        density: Share of the weights that is stored, instead.

    Returns:
        The learning rate for the sparse model.

    Raises:
        TypeError: If an argument is no number, or not one of sparsity and density is given.
        ValueError: If the rate is negative or not finite, or the sparsity or density is not in
            [0, 1].

    Examples:
        >>> round(sparse_lr(2e-4, sparsity=0.9), 6)
        0.00128
        >>> round(sparse_lr(2e-4, density=0.1), 6)
        0.00128
    """
    if (sparsity is None) == (density is None):
        raise TypeError(
            f"sparse_lr takes one of sparsity and density, which is 1 − sparsity, got {sparsity=} "
            f"and {density=}; give sparse_lr(lr, density=0.1), for example"
        )
    s = (
        checked_share("sparsity", sparsity)
        if density is None
        else 1 - checked_share("density", density)
    )
    if isinstance(dense_lr, bool) or not isinstance(dense_lr, int | float):
        raise TypeError(f"dense_lr must be a number, got {type(dense_lr).__name__}")
    if not 0 <= dense_lr < math.inf:
        raise ValueError(f"dense_lr must be finite and 0 or more, got {dense_lr}")
    return dense_lr * math.exp(1.969 * s * s + 0.2905 * s)
