"""Functions that may follow the product of a layer, by the name that a caller gives."""

import functools
from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

#: By name, as torch computes them: the twin of what a back end fuses, and what is differentiated.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


def activate(y: Tensor, name: str = "") -> Tensor:
    """Apply the activation of that name; none if the name is empty."""
    return ACTIVATIONS[name](y) if name else y


def activation_name(op: str, activation: str | None) -> str:
    """Check what a caller gives; an empty name means none."""
    if activation is None:
        return ""
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        allowed = ", ".join(map(repr, ACTIVATIONS))
        raise ValueError(
            f"{op}: activation is {activation!r:.60}; allowed are {allowed} and None: apply any "
            "other function to the result"
        )
    return activation
