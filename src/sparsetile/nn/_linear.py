"""A linear layer that stores, computes and trains a part of its weight's blocks."""

from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from sparsetile import ops
from sparsetile.matrix import Pattern, scatter_blocks
from sparsetile.nn import _check, _dense, _init
from sparsetile.nn._forward_set import ForwardSet


class Linear(ForwardSet):
    """Applies `y = x Wᵀ + b` with a block-sparse `W`, called as `torch.nn.Linear` is.

    `values` is an ordinary parameter of shape `[nnzb, r, c]`: any optimizer, clipper or
    averaging takes it as it is. `crow_indices` and `col_indices` are int32 buffers; they move
    with the layer and are never cast.

    The first values are drawn as `torch.nn.Linear` draws them, with the true fan-in: the number
    of inputs stored in each row.

    Args:
        in_features: Size of each input, `k`.
        out_features: Size of each output, `m`.
        bias: Whether to add a learned bias.
        blocksize: Shape of the blocks, an int or `(r, c)`. Sizes that the block does not divide
            are padded inside. A given `pattern` brings its own.
        density: Share of the blocks to store, in (0, 1]; the pattern is drawn with torch's
            global generator, so `torch.manual_seed` makes it repeatable.
        pattern: Which blocks to store. Give this or `density`.
        device: Where the layer lives.
        dtype: Floating type of values and bias.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If sizes, density, block size and pattern do not fit together.

    Examples:
        >>> layer = Linear(512, 256, density=0.1, blocksize=16)
        >>> layer
        Linear(in_features=512, out_features=256, bias=True, blocksize=16, density=0.10, nnzb=51)
        >>> layer(torch.ones(8, 3, 512)).shape
        torch.Size([8, 3, 256])
    """

    in_features: int
    out_features: int
    bias: nn.Parameter | None
    # Applied by every call; `freeze_` sets it where the module after the layer was an activation.
    activation: ops.Activation | None = None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        blocksize: int | tuple[int, int] = 16,
        density: float | None = None,
        pattern: Pattern | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        shape = (
            _check.checked_size("out_features", out_features),
            _check.checked_size("in_features", in_features),
        )
        dtype, device = _check.checked_dtype(dtype), _check.checked_device(device)
        _dense.check_source(shape, blocksize, density, pattern)
        if pattern is None:
            assert density is not None
            pattern = _dense.drawn(shape, blocksize, density)
        super().__init__(pattern, device, dtype)
        self.out_features, self.in_features = shape
        if bias:
            self.bias = nn.Parameter(torch.empty(shape[0], device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        if device.type != "meta":
            self.reset_parameters()

    def forward(
        self, x: Float[Tensor, "*batch k"], *, activation: ops.Activation | None = None
    ) -> Float[Tensor, "*batch m"]:
        """Multiply: `x[..., in_features]` to `[..., out_features]`, with an activation if named."""
        activation = activation or self.activation
        crow, col, blocks = self.crow_indices, self.col_indices, self.forward_blocks
        if blocks is None:
            return ops.linear_from_indices(
                x, self.values, crow, col, self.shape, self.bias, activation=activation
            )
        its_crow, its_col = self._forward_crow, self._forward_col
        assert its_crow is not None and its_col is not None
        return ops.linear_subset(
            x,
            self.values,
            crow,
            col,
            blocks,
            its_crow,
            its_col,
            self.shape,
            self.bias,
            activation=activation,
        )

    def reset_parameters(self) -> None:
        """Draw values and bias anew, at the present pattern."""
        _init.fill_(self.values, self.bias, self.pattern)

    @torch.no_grad()
    def redraw_(self, blocks: Int64[Tensor, " n"], generator: torch.Generator) -> "Linear":
        """Draw some stored blocks anew, as first values are drawn at the present pattern.

        Args:
            blocks: Which of the stored blocks.
            generator: A generator on the CPU, so that every device draws alike.

        Returns:
            The layer.

        Examples:
            >>> layer = Linear(32, 32, density=0.5, blocksize=8)
            >>> before = layer.values.detach().clone()
            >>> layer.redraw_(torch.tensor([2, 5]), torch.Generator().manual_seed(0))
            Linear(in_features=32, out_features=32, bias=True, blocksize=8, density=0.50, nnzb=8)
            >>> (layer.values != before).flatten(1).any(1).nonzero()[:, 0]
            tensor([2, 5])
        """
        new = _init.drawn(self.pattern, blocks, generator)
        self.values.index_copy_(0, blocks, new.to(self.values.dtype))
        return self

    @classmethod
    def from_linear(
        cls,
        linear: nn.Module,
        *,
        blocksize: int | tuple[int, int] = 16,
        density: float | None = None,
        pattern: Pattern | None = None,
        method: Literal["magnitude", "random"] = "magnitude",
        score: Literal["l1", "l2", "max"] = "l1",
    ) -> "Linear":
        """Keep some blocks of a dense layer.

        Args:
            linear: A `torch.nn.Linear`, or a `Conv1D` of transformers (GPT-2).
            blocksize: Shape of the blocks, an int or `(r, c)`.
            density: Share of the blocks to keep. Give this or `pattern`.
            pattern: Which blocks to keep.
            method: With `density`: keep the strongest blocks, or random ones.
            score: Strength of a block for `method="magnitude"`.

        Returns:
            A layer with copies of the kept values and of the bias.

        Raises:
            TypeError: If `linear` is of another kind.
            ValueError: If the other arguments do not fit it.

        Examples:
            >>> dense = torch.nn.Linear(64, 64)
            >>> sparse = Linear.from_linear(dense, density=0.25)
            >>> bool((sparse.to_linear().weight != 0).float().mean() == 0.25)
            True
        """
        weight, dense_bias = _dense.parts(linear)
        pattern = _dense.chosen(weight, blocksize, density, pattern, method, score)
        layer = cls(
            weight.shape[1],
            weight.shape[0],
            bias=False,
            blocksize=pattern.blocksize,
            pattern=pattern,
            device="meta",
            dtype=weight.dtype,
        )
        layer._take(weight, pattern)
        if dense_bias is not None:
            layer.bias = _copied(dense_bias)
        layer._layout = _dense.layout(linear)
        layer.train(linear.training)
        return layer

    def to_linear(self) -> nn.Linear:
        """Make the dense layer of the same function.

        Returns:
            A `torch.nn.Linear` with copies of the values that the product uses, zero elsewhere,
            and of the bias; all of the bias's dtype, which dense layers need.

        Examples:
            >>> Linear(64, 32, density=0.5).to_linear()
            Linear(in_features=64, out_features=32, bias=True)
        """
        dense = nn.Linear(self.in_features, self.out_features, bias=False, device="meta")
        weight = self.weight
        full = scatter_blocks(weight.values.detach(), weight.pattern)
        full = full if self.bias is None else full.to(self.bias.dtype)
        dense.weight = nn.Parameter(full, requires_grad=self.values.requires_grad)
        if self.bias is not None:
            dense.bias = _copied(self.bias)
        return dense.train(self.training)

    def extra_repr(self) -> str:
        """Describe the layer for its one-line repr."""
        r, c = self.blocksize
        density = "?" if self.crow_indices.is_meta else f"{self.density:.2f}"
        fused = f", activation={self.activation!r}" if self.activation else ""
        used = "" if self.forward_blocks is None else f", forward_nnzb={len(self.forward_blocks)}"
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, blocksize={r if r == c else (r, c)}, "
            f"density={density}, nnzb={self.nnzb}{used}{fused}"
        )


def _copied(bias: Tensor) -> nn.Parameter:
    return nn.Parameter(bias.detach().clone(), requires_grad=bias.requires_grad)
