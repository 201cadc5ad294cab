"""How new blocks take their first steps."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from sparsetile.train._check import checked_int


@runtime_checkable
class Young(Protocol):
    """Scales the optimizer's step for blocks that are new."""

    @property
    def steps(self) -> int:
        """For how many steps a block is young."""
        ...

    def factors(
        self, ages: Int64[Tensor, " n"], group: dict[str, Any], state: dict[str, Any]
    ) -> Float[Tensor, " n"]:
        """Give the factor of each young block's step; ages count from 1."""
        ...


@dataclass(frozen=True)
class AsPublished:
    """New blocks step as all others do.

    With Adam, whose step count is the whole tensor's, the zero moments of a new block make its
    first steps larger: with a steady gradient 3.2 times the learning rate in the first step, up to
    6.5 times after 10 to 20, and 1.3 times after 1,000.

    Examples:
        >>> AsPublished().steps
        0
    """

    steps: int = 0

    def factors(
        self, ages: Int64[Tensor, " n"], group: dict[str, Any], state: dict[str, Any]
    ) -> Float[Tensor, " n"]:
        """Give 1 for every block."""
        return torch.ones(len(ages))


@dataclass(frozen=True)
class Ramp:
    """The step of a new block grows linearly to the full one.

    Attributes:
        steps: After so many steps it is full.

    Examples:
        >>> Ramp(4).factors(torch.tensor([1, 2]), {}, {})
        tensor([0.2000, 0.4000])
    """

    steps: int

    def __post_init__(self) -> None:
        checked_int("steps", self.steps, least=1)

    def factors(
        self, ages: Int64[Tensor, " n"], group: dict[str, Any], state: dict[str, Any]
    ) -> Float[Tensor, " n"]:
        """Give age / (steps + 1) for every block."""
        return ages.float() / (self.steps + 1)


@dataclass(frozen=True)
class OwnStepCount:
    """Adam's bias correction of a new block counts from its own first step.

    With a steady gradient every step of it is then as long as the learning rate. For Adam, AdamW
    and others that keep `betas` and a `step` count; what they add to the moments' quotient (weight
    decay, epsilon) is scaled along, both of which are next to nothing for a block that began at 0.

    Attributes:
        steps: For how many steps the correction is applied; with β₂ = 0.999 it is 1.01 after 5,000.

    Examples:
        >>> group, state = {"betas": (0.9, 0.999)}, {"step": torch.tensor(10_000.0)}
        >>> OwnStepCount().factors(torch.tensor([1]), group, state)
        tensor([0.3162])
    """

    steps: int = 5000

    def __post_init__(self) -> None:
        checked_int("steps", self.steps, least=1)

    def factors(
        self, ages: Int64[Tensor, " n"], group: dict[str, Any], state: dict[str, Any]
    ) -> Float[Tensor, " n"]:
        """Give the quotient of the two bias corrections for every block.

        Raises:
            ValueError: If the optimizer is none of Adam's kind.
        """
        betas, step = group.get("betas"), state.get("step")
        if betas is None or step is None:
            raise ValueError(
                "young=OwnStepCount() corrects the bias of Adam's moments, and the optimizer keeps "
                "no betas and step count; use Adam or AdamW, young=Ramp(…) or young=AsPublished()"
            )
        count, age = float(step), ages.double()
        first = (1 - betas[0] ** count) / (1 - betas[0] ** age)
        second = (1 - betas[1] ** age) / (1 - betas[1] ** count)
        return (first * second.sqrt()).float()
