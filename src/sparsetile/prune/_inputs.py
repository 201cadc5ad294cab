"""What calibration keeps of a layer's inputs: how many, their norms, their Gram matrix."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(eq=False)
class Inputs:
    """Sums over the input vectors `x` that a layer saw; memory does not grow with their number.

    Attributes:
        rows: Number of input vectors.
        squares: Sum of `x²`, float64.
        gram: Sum of `x xᵀ`, float64; None where only the norms are collected.

    Examples:
        >>> inputs = Inputs.of(torch.tensor([[3.0, 0.0], [4.0, 1.0]]))
        >>> inputs.norms, inputs.gram
        (tensor([5., 1.], dtype=torch.float64), tensor([[25.,  4.],
                [ 4.,  1.]], dtype=torch.float64))
    """

    rows: int
    squares: Float[Tensor, " k"]
    gram: Float[Tensor, "k k"] | None

    @classmethod
    def nothing(cls, k: int, gram: bool, device: torch.device | None = None) -> "Inputs":
        """Begin with no input.

        Args:
            k: Size of the inputs.
            gram: Whether to collect the Gram matrix.
            device: Where the sums live.

        Returns:
            Zeros.

        Examples:
            >>> Inputs.nothing(3, gram=False).rows
            0
        """
        zeros = torch.zeros(k, dtype=torch.float64, device=device)
        return cls(0, zeros, zeros.new_zeros(k, k) if gram else None)

    @classmethod
    def of(cls, x: Float[Tensor, "n k"]) -> "Inputs":
        """Sum up inputs that are at hand.

        Args:
            x: One input a row.

        Returns:
            Their sums.

        Examples:
            >>> Inputs.of(torch.ones(5, 2)).rows
            5
        """
        inputs = cls.nothing(x.shape[1], gram=True, device=x.device)
        inputs.add(len(x), x.double().square().sum(0), product(x))
        return inputs

    @property
    def norms(self) -> Float[Tensor, " k"]:
        """Euclidean norm of each feature over all inputs."""
        return self.squares.sqrt()

    def add(
        self, rows: int, squares: Float[Tensor, " k"], gram: Float[Tensor, "k k"] | None
    ) -> None:
        """Add the sums of further inputs.

        Args:
            rows: How many there are.
            squares: Their sum of squares.
            gram: Their Gram matrix, of any precision.
        """
        self.rows += rows
        self.squares += squares
        if self.gram is not None and gram is not None:
            self.gram += gram

    def error(self, before: Float[Tensor, "m k"], after: Float[Tensor, "m k"]) -> float:
        """Measure how far a layer's output moved: `‖(W - Ŵ) X‖ / ‖W X‖` over all inputs.

        Args:
            before: The weight `W`.
            after: The weight `Ŵ`.

        Returns:
            The relative error; 0 where the outputs were zero and still are.

        Examples:
            >>> inputs = Inputs.of(torch.eye(2))
            >>> inputs.error(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 4.0]]))
            0.6
        """
        assert self.gram is not None
        moved, was = (_energy(w.double(), self.gram) for w in (before - after, before))
        if was == 0:
            return 0.0 if moved == 0 else float("inf")
        return (moved / was) ** 0.5


def product(x: Float[Tensor, "n k"]) -> Float[Tensor, "k k"]:
    """The Gram matrix of inputs, in float32 or better.

    Args:
        x: One input a row.

    Returns:
        `xᵀ x`.

    Examples:
        >>> product(torch.ones(2, 1))
        tensor([[2.]])
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return wide.T @ wide


def _energy(w: Tensor, gram: Tensor) -> float:
    return max(float(((w @ gram) * w).sum()), 0.0)
