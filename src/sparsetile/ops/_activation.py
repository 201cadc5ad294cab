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


def activate(y: Tensor, name: str) -> Tensor:
    """Apply the activation of that name; none if the name is empty."""
    return ACTIVATIONS[name](y) if name else y
