"""The inverse Hessian of a layer's output error, as a triangular factor."""

import torch
from jaxtyping import Float
from torch import Tensor

# How often damping is raised tenfold before a matrix counts as hopeless.
_TRIES = 6


def damped(
    gram: Float[Tensor, "k k"], damping: float, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "k k"]:
    """Add a share of the mean of the diagonal to the diagonal.

    Args:
        gram: Gram matrix of the inputs.
        damping: The share.
        dtype: Type of the result.

    Returns:
        A matrix that is positive definite but for rounding, also where inputs were all zero.

    Examples:
        >>> damped(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), 0.5)
        tensor([[2.5000, 0.0000],
                [0.0000, 0.5000]], dtype=torch.float64)
    """
    wide = gram.to(dtype)
    mean = float(wide.diagonal().mean()) if len(wide) else 0.0
    extra = damping * mean if mean > 0 else 1.0
    return (wide + wide.T).div_(2) + extra * torch.eye(len(wide), dtype=dtype, device=wide.device)


def inverse_factor(
    gram: Float[Tensor, "k k"], damping: float, dtype: torch.dtype, name: str
) -> tuple[Float[Tensor, "k k"], Float[Tensor, "k k"]]:
    """Factor the inverse of the damped Gram matrix, `H⁻¹ = Uᵀ U`, with `U` upper triangular.

    Rows of `U` from column j on belong to the inverse of `H` without the columns before j, which is
    what OBS needs once those are settled.

    Args:
        gram: Gram matrix of the inputs.
        damping: Share of its mean diagonal to add.
        dtype: Type to compute in.
        name: What to call the layer in errors.

    Returns:
        `U` and its inverse `R`, so `H = R Rᵀ`.

    Raises:
        ValueError: If the matrix is singular at a hundred thousand times the damping too.

    Examples:
        >>> U, R = inverse_factor(torch.eye(2), 1.0, torch.float64, "up")
        >>> U @ R
        tensor([[1., 0.],
                [0., 1.]], dtype=torch.float64)
    """
    for attempt in range(_TRIES):
        H = damped(gram, damping * 10**attempt, dtype)
        # The factor of H read from its last row and column is that of its inverse from the first.
        L, failed = torch.linalg.cholesky_ex(H.flip(0, 1))
        if not int(failed):
            R = L.flip(0, 1).contiguous()
            eye = torch.eye(len(R), dtype=dtype, device=R.device)
            return torch.linalg.solve_triangular(R, eye, upper=True), R
    raise ValueError(
        f"the inputs of layer {name!r} have a singular Gram matrix even with damping "
        f"{damping * 10 ** (_TRIES - 1)}; allowed: inputs whose squares do not overflow; give "
        "dtype=torch.float64, or more and other calibration data"
    )
