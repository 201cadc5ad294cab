"""The feed-forward part of a transformer layer, with block-sparse weights."""

from functools import partial
from typing import get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from sparsetile import ops
from sparsetile.nn._linear import Linear

_ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


class MLP(nn.Module):
    """Two block-sparse `Linear` layers, `up` and `down`, with an activation between them.

    Where no gradient is wanted the activation is part of the first product, which saves a pass
    over its result.

    Args:
        width: Size of each input.
        hidden: Size between the layers.
        out: Size of each output; `width` if left out.
        activation: "relu", "gelu", "gelu_tanh" or "silu".
        bias: Whether to add learned biases.
        blocksize: Shape of the blocks, an int or `(r, c)`.
        density: Share of each weight's blocks to store, in (0, 1].
        device: Where the layers live.
        dtype: Floating type of their values.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or there is no such activation.

    Examples:
        >>> mlp = MLP(64, 256, density=0.25)
        >>> mlp(torch.randn(8, 3, 64)).shape, mlp.up.nnzb
        (torch.Size([8, 3, 64]), 16)
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        out: int | None = None,
        activation: ops.Activation = "gelu",
        bias: bool = True,
        *,
        blocksize: int | tuple[int, int] = 16,
        density: float,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if activation not in get_args(ops.Activation):
            raise ValueError(
                f"activation must be one of {', '.join(map(repr, get_args(ops.Activation)))}, got "
                f"{activation!r}; for another, put two Linear layers around it"
            )
        self.activation = activation

        def layer(k: int, m: int) -> Linear:
            return Linear(
                k, m, bias, blocksize=blocksize, density=density, device=device, dtype=dtype
            )

        self.up = layer(width, hidden)
        self.down = layer(hidden, width if out is None else out)

    def forward(self, x: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch m"]:
        """Compute: `x[..., width]` to `[..., out]`."""
        if isinstance(self.up, Linear):
            hidden = self.up(x, activation=self.activation)
        else:  # made dense
            hidden = _ACTIVATIONS[self.activation](self.up(x))
        y: Tensor = self.down(hidden)
        return y

    def extra_repr(self) -> str:
        """Describe what the layers below do not say."""
        return f"activation={self.activation!r}"
