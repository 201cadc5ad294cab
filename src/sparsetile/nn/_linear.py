"""A linear layer that stores, computes and trains a part of its weight's blocks."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparsetile import ops
from sparsetile.matrix import Pattern, random_pattern, scatter_blocks
from sparsetile.nn import _check, _dense, _init, _load
from sparsetile.nn._weight import Weight

_INDICES = ("crow_indices", "col_indices")


class Linear(nn.Module):
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
    values: nn.Parameter
    crow_indices: Tensor
    col_indices: Tensor
    bias: nn.Parameter | None

    # Pattern of the present index tensors, with the tensors and versions it was made from.
    _seen: tuple[Tensor, int, Tensor, int, Pattern] | None = None
    # How a dense checkpoint of this layer is laid out: [out, in], or GPT-2's [in, out].
    _layout: Literal["linear", "conv1d"] = "linear"

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
        super().__init__()
        shape = (
            _check.checked_size("out_features", out_features),
            _check.checked_size("in_features", in_features),
        )
        dtype, device = _check.checked_dtype(dtype), _check.checked_device(device)
        _dense.check_source(shape, blocksize, density, pattern)
        if pattern is None:
            assert density is not None
            pattern = _drawn(shape, blocksize, density)
        self.out_features, self.in_features = shape
        self.blocksize = pattern.blocksize
        self.values = nn.Parameter(
            torch.empty(pattern.nnzb, *pattern.blocksize, device=device, dtype=dtype)
        )
        # Copies: training overwrites them in place, and a Pattern never changes.
        self.register_buffer("crow_indices", pattern.crow_indices.to(device, copy=True))
        self.register_buffer("col_indices", pattern.col_indices.to(device, copy=True))
        if bias:
            self.bias = nn.Parameter(torch.empty(shape[0], device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        if device.type != "meta":
            self.reset_parameters()

    def forward(self, x: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch m"]:
        """Multiply: `x[..., in_features]` to `[..., out_features]`."""
        return ops.linear_from_indices(
            x,
            self.values,
            self.crow_indices,
            self.col_indices,
            (self.out_features, self.in_features),
            self.bias,
        )

    @property
    def nnzb(self) -> int:
        """Number of stored blocks."""
        return self.values.shape[0]

    @property
    def density(self) -> float:
        """Stored values over all values of the dense weight."""
        if self.out_features % self.blocksize[0] or self.in_features % self.blocksize[1]:
            return self.pattern.density
        return self.values.numel() / max(self.in_features * self.out_features, 1)

    @property
    def pattern(self) -> Pattern:
        """The stored blocks as a validated `Pattern`, made anew after the indices change.

        Raises:
            ValueError: If the index tensors are on the meta device, or were damaged.
        """
        crow, col = self.crow_indices, self.col_indices
        if crow.is_meta:
            raise ValueError(
                "asked for the pattern of a layer on the meta device, whose indices hold no data; "
                "call to_empty(device=…) and load_state_dict first"
            )
        if crow.is_inference() or col.is_inference():  # these count no versions
            return self._validated(crow, col)
        seen = self._seen
        if seen and seen[0] is crow and seen[2] is col:
            if seen[1] == crow._version and seen[3] == col._version:
                return seen[4]
        pattern = self._validated(crow, col)
        self._seen = (crow, crow._version, col, col._version, pattern)
        return pattern

    @property
    def weight(self) -> Weight:
        """Values and pattern as one `BSR` matrix that shares the layer's memory.

        Examples:
            >>> Linear(32, 32, density=0.25).weight.to_dense().shape
            torch.Size([32, 32])
        """
        return Weight(self.values, self.pattern)

    def reset_parameters(self) -> None:
        """Draw values and bias anew, at the present pattern."""
        _init.fill_(self.values, self.bias, self.pattern)

    @torch.no_grad()
    def set_pattern_(
        self, pattern: Pattern, values: Float[Tensor, "nnzb r c"] | None = None
    ) -> "Linear":
        """Store other blocks, in place.

        The parameter stays the same object. With another number of blocks it changes its shape,
        its gradient is dropped, and the optimizer's state for it must be built anew.

        Args:
            pattern: The blocks to store; same shape and block size as the layer.
            values: Their values. Without them, blocks stored before and after keep theirs and
                new blocks are zero.

        Returns:
            The layer.

        Raises:
            TypeError: If the pattern is no Pattern, or the values are no floating tensor.
            ValueError: If the pattern or the values do not fit the layer.

        Examples:
            >>> layer = Linear(4, 4, blocksize=2, density=0.25)
            >>> layer.set_pattern_(Pattern((4, 4), 2, [0, 2, 2], [0, 1])).nnzb
            2
        """
        shape = (self.out_features, self.in_features)
        _dense.check_pattern(pattern, shape, self.blocksize)
        pattern = pattern.to(self.values.device)
        if values is None:
            values = _moved(self.values, self.pattern, pattern)
        else:
            values = _dense.checked_values(values, pattern)
        self._resize_(pattern.nnzb)
        self.values.copy_(values)
        self.crow_indices.copy_(pattern.crow_indices)
        self.col_indices.copy_(pattern.col_indices)
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
        _dense.check_source(tuple(weight.shape), blocksize, density, pattern)
        if method not in ("magnitude", "random"):
            raise ValueError(f'method must be "magnitude" or "random", got {method!r}')
        if pattern is None:
            assert density is not None
            pattern = (
                _drawn((weight.shape[0], weight.shape[1]), blocksize, density)
                if method == "random"
                else _dense.strongest(weight, blocksize, density, score)
            )
        layer = cls(
            weight.shape[1],
            weight.shape[0],
            bias=False,
            blocksize=pattern.blocksize,
            pattern=pattern,
            device="meta",
            dtype=weight.dtype,
        )
        layer._take(weight, dense_bias, pattern)
        layer._layout = _dense.layout(linear)
        layer.train(linear.training)
        return layer

    def to_linear(self) -> nn.Linear:
        """Make the dense layer of the same function.

        Returns:
            A `torch.nn.Linear` with copies of the values, zero elsewhere, and of the bias; all of
            the bias's dtype, which dense layers need.

        Examples:
            >>> Linear(64, 32, density=0.5).to_linear()
            Linear(in_features=64, out_features=32, bias=True)
        """
        dense = nn.Linear(self.in_features, self.out_features, bias=False, device="meta")
        full = scatter_blocks(self.values.detach(), self.pattern)
        full = full if self.bias is None else full.to(self.bias.dtype)
        dense.weight = nn.Parameter(full, requires_grad=self.values.requires_grad)
        if self.bias is not None:
            dense.bias = _copied(self.bias)
        return dense.train(self.training)

    def extra_repr(self) -> str:
        """Describe the layer for its one-line repr."""
        r, c = self.blocksize
        density = "?" if self.crow_indices.is_meta else f"{self.density:.2f}"
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, blocksize={r if r == c else (r, c)}, "
            f"density={density}, nnzb={self.nnzb}"
        )

    def __getstate__(self) -> dict[str, Any]:
        # A copy counts versions from elsewhere, so what was seen must not follow it.
        return {name: value for name, value in self.__dict__.items() if name != "_seen"}

    def _validated(self, crow: Tensor, col: Tensor) -> Pattern:
        return Pattern((self.out_features, self.in_features), self.blocksize, crow, col)

    def _take(self, weight: Tensor, bias: Tensor | None, pattern: Pattern) -> None:
        """Fill a meta layer from a dense weight `[out, in]`."""
        device = weight.device
        self.values = nn.Parameter(_dense.kept(weight, pattern), requires_grad=weight.requires_grad)
        self.crow_indices = pattern.crow_indices.to(device, copy=True)
        self.col_indices = pattern.col_indices.to(device, copy=True)
        if bias is not None:
            self.bias = _copied(bias)

    def _resize_(self, nnzb: int) -> None:
        """Make room for another number of blocks; the parameter stays the same object."""
        if nnzb == self.nnzb:
            return
        self.values.grad = None
        # By way of another dtype: this makes autograd forget the shape it noted in graphs that
        # are still alive (a kept loss), where a new shape alone does not.
        dtype = self.values.dtype
        other = torch.float32 if dtype == torch.float64 else torch.float64
        self.values.data = self.values.data.new_empty(0, dtype=other)
        self.values.data = self.values.data.new_empty(nnzb, *self.blocksize, dtype=dtype)
        self.col_indices = self.col_indices.new_empty(nnzb)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Linear":
        """Move as every module does, but keep the indices' type and content.

        `module.type(torch.half)` would cast them and `to_empty` would leave rubbish in them,
        which a kernel would then follow. Indices that leave the meta device store no block until
        a checkpoint is loaded.
        """
        before = {name: self._buffers[name] for name in _INDICES}
        super()._apply(fn, recurse)
        for name, old in before.items():
            new = self._buffers[name]
            assert old is not None and new is not None
            if new is not old and not new.is_meta:
                kept = torch.zeros_like(new, dtype=old.dtype) if old.is_meta else old.to(new.device)
                self._buffers[name] = kept
        return self

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        try:
            self._resize_(_load.translate_(state_dict, prefix, self))
        except (TypeError, ValueError) as refusal:
            error_msgs.append(f'While loading "{prefix.rstrip(".") or "Linear"}": {refusal}')
            return
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )


def _drawn(shape: tuple[int, int], blocksize: int | tuple[int, int], density: float) -> Pattern:
    """A random pattern, seeded by torch's global generator."""
    with torch.device("cpu"):  # also inside `with torch.device("meta")`
        seed = int(torch.randint(2**31, ()))
        return random_pattern(*shape, blocksize=blocksize, density=density, seed=seed)


def _copied(bias: Tensor) -> nn.Parameter:
    return nn.Parameter(bias.detach().clone(), requires_grad=bias.requires_grad)


def _moved(values: Tensor, old: Pattern, new: Pattern) -> Tensor:
    """Blocks of `new`: those also in `old` with their values, the others zero."""
    width = old.grid[1]
    had = old.row_indices.long() * width + old.col_indices
    want = new.row_indices.long() * width + new.col_indices
    if not len(had):
        return values.new_zeros(new.nnzb, *new.blocksize)
    at = torch.searchsorted(had, want).clamp(max=len(had) - 1)
    out = values[at]
    out[had[at] != want] = 0
    return out
