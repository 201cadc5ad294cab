"""Self-attention with block-sparse projections: queries, keys and values in one product."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from sparsetile.nn import _check
from sparsetile.nn._linear import Linear


class SelfAttention(nn.Module):
    """Multi-head self-attention with two block-sparse `Linear` layers, `qkv` and `out`.

    Queries, keys and values come from one product: their weights are thirds of the rows of `qkv`,
    in this order, each with one head after the other, as `torch.nn.MultiheadAttention` keeps them
    in `in_proj_weight`. Attention itself is torch's own.

    Args:
        width: Size of each input and output.
        heads: Number of heads; must divide `width`.
        bias: Whether to add learned biases.
        causal: Whether a position sees itself and what is before it only.
        dropout: Share of attention weights set to zero in training.
        blocksize: Shape of the blocks, an int or `(r, c)`.
        density: Share of each weight's blocks to store, in (0, 1].
        device: Where the layers live.
        dtype: Floating type of their values.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or the heads do not divide the width.

    Examples:
        >>> attention = SelfAttention(64, 4, causal=True, density=0.25)
        >>> attention(torch.randn(2, 10, 64)).shape
        torch.Size([2, 10, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        bias: bool = True,
        *,
        causal: bool = False,
        dropout: float = 0.0,
        blocksize: int | tuple[int, int] = 16,
        density: float,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        width = _check.checked_size("width", width)
        heads = _check.checked_size("heads", heads)
        if heads == 0 or width % heads:
            raise ValueError(
                f"heads must divide width={width}, got {heads}; each head gets width / heads"
            )
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(f"dropout must be a share in [0, 1], got {dropout!r}")
        self.heads, self.causal, self.dropout = heads, causal, float(dropout)

        def layer(m: int) -> Linear:
            return Linear(
                width, m, bias, blocksize=blocksize, density=density, device=device, dtype=dtype
            )

        self.qkv, self.out = layer(3 * width), layer(width)

    def forward(
        self,
        x: Float[Tensor, "*batch time width"],
        mask: Bool[Tensor, "..."] | Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "*batch time width"]:
        """Let positions look at each other.

        Args:
            x: Sequences `[..., time, width]`.
            mask: As for `torch.nn.functional.scaled_dot_product_attention`, broadcast to
                `[..., heads, time, time]`: True where a position (rows) sees another (columns), or
                numbers to add. With `causal` what comes later is hidden as well.

        Returns:
            `[..., time, width]`.
        """
        *_, time, _ = x.shape
        thirds = self.qkv(x).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0)
        q, k, v = thirds.transpose(-2, -3)  # [..., heads, time, size] each
        if self.causal and mask is not None:
            before = torch.ones(time, time, dtype=torch.bool, device=x.device).tril()
            mask = (
                mask & before if mask.dtype == torch.bool else mask.masked_fill(~before, -torch.inf)
            )
        y = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal and mask is None,
        )
        result: Tensor = self.out(y.transpose(-2, -3).flatten(-2))
        return result

    def extra_repr(self) -> str:
        """Describe what the layers below do not say."""
        dropout = f", dropout={self.dropout}" if self.dropout else ""
        return f"heads={self.heads}, causal={self.causal}{dropout}"
