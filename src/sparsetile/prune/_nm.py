"""N of every M consecutive inputs: the pattern of sparse tensor cores."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sparsetile.matrix import Pattern, block_scores, pattern_of
from sparsetile.nn import Candidate
from sparsetile.prune._check import checked_int, message


@dataclass(frozen=True)
class NM:
    """Keeps `n` of every `m` consecutive inputs of each output.

    Give it as the density of `prune_`, at blocksize 1. A last group of fewer than `m` inputs keeps
    `n` of them, or all. A weight that has this form already is taken over without loss: its zeros
    are the weakest of each group.

    Mishra et al., "Accelerating Sparse Deep Neural Networks" (2021), for 2:4. As a budget of
    `sparsify_` it keeps the strongest magnitudes.

    Args:
        n: Values kept of each group.
        m: Consecutive inputs in a group.

    Raises:
        TypeError: If one is no int.
        ValueError: If `n` is not 1 to `m`.

    Examples:
        >>> from torch import nn
        >>> from sparsetile.prune import prune_
        >>> model = nn.Sequential(nn.Linear(64, 32))
        >>> report = prune_(model, density=NM(2, 4), blocksize=1)
        >>> model[0].density, NM(2, 4).fits(model[0].weight.to_dense())
        (0.5, True)
    """

    n: int
    m: int

    def __post_init__(self) -> None:
        checked_int("m", self.m, fix="NM(2, 4) keeps two of four")
        if checked_int("n", self.n, fix="NM(2, 4) keeps two of four") > self.m:
            raise ValueError(
                message("n", got=self.n, allowed=f"1 to m={self.m}", fix="NM(2, 4) keeps 2 of 4")
            )

    def __str__(self) -> str:
        return f"{self.n}:{self.m}"

    def count(self, shape: tuple[int, int]) -> int:
        """How many values of a weight are kept.

        Args:
            shape: Outputs and inputs `(m, k)` of the weight.

        Returns:
            Number of values.

        Examples:
            >>> NM(2, 4).count((3, 9))
            15
        """
        whole, rest = divmod(shape[1], self.m)
        return shape[0] * (whole * self.n + min(rest, self.n))

    @torch.no_grad()
    def strongest(self, scores: Float[Tensor, "m k"]) -> Bool[Tensor, "m k"]:
        """Mark the values with the largest scores in each group, the first among equals.

        Args:
            scores: One score for each value.

        Returns:
            True where a value is kept.

        Examples:
            >>> NM(1, 2).strongest(torch.tensor([[1.0, 2.0, 0.0, 0.0, -5.0]]))
            tensor([[False,  True,  True, False,  True]])
        """
        rows, k = scores.shape
        padded = torch.nn.functional.pad(scores, (0, -k % self.m), value=-torch.inf)
        groups = padded.view(rows, padded.shape[1] // self.m, self.m)
        best = groups.argsort(dim=2, descending=True, stable=True)[..., : self.n]
        kept = torch.zeros_like(groups, dtype=torch.bool).scatter_(2, best, True)
        return kept.view(padded.shape)[:, :k].contiguous()

    def fits(self, weight: Float[Tensor, "m k"]) -> bool:
        """Whether a dense weight has this form already.

        Args:
            weight: Any dense weight, outputs first.

        Returns:
            True if no group has more than `n` values that are not zero.

        Examples:
            >>> NM(2, 4).fits(torch.tensor([[0.0, 1.0, 2.0, 0.0]])), NM(2, 4).fits(torch.ones(1, 4))
            (True, False)
        """
        padded = torch.nn.functional.pad(weight != 0, (0, -weight.shape[1] % self.m))
        return bool((padded.unflatten(1, (-1, self.m)).sum(2) <= self.n).all())

    def share(self, layers: Sequence[Candidate]) -> list[Pattern]:
        """Keep the strongest magnitudes of each layer, as budgets of `sparsify_` answer.

        Args:
            layers: The weights to become sparse, at blocksize 1.

        Returns:
            Which values each stores.

        Raises:
            ValueError: If blocks are larger than 1, or a weight holds NaN or infinity.
        """
        patterns = []
        for layer in layers:
            self.check_blocksize(layer.blocksize)
            patterns.append(pattern_of(self.strongest(block_scores(layer.weight, 1)), 1))
        return patterns

    def check_blocksize(self, blocksize: tuple[int, int]) -> None:
        """Refuse blocks larger than one value.

        Args:
            blocksize: Shape of the blocks.

        Raises:
            ValueError: If they are larger.
        """
        if blocksize != (1, 1):
            r, c = blocksize
            raise ValueError(
                message(
                    "blocksize",
                    got=f"{r}×{c} with the pattern {self}",
                    allowed="1, for the pattern is one of single values",
                    fix="pass blocksize=1, or a number as density",
                )
            )
