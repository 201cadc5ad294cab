"""What modules with one block-sparse weight have in common: values, indices, pattern, loading."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparsetile.matrix import Pattern
from sparsetile.nn import _dense, _load
from sparsetile.nn._copies import note_copy, note_whole
from sparsetile.nn._weight import Weight


class BlockSparse(nn.Module):
    """A module that owns one block-sparse weight: what trainers look for in a model.

    `values` is an ordinary parameter of shape `[nnzb, r, c]`: any optimizer, clipper or
    averaging takes it as it is. `crow_indices` and `col_indices` are int32 buffers; they move
    with the module and are never cast.

    Attributes:
        shape: Sizes `(m, k)` of the weight.
        blocksize: Shape `(r, c)` of its blocks.
        values: The stored blocks.
        crow_indices: Where each block row starts.
        col_indices: Block column of each stored block.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> model = nn.Sequential(Linear(64, 32, density=0.25), nn.ReLU())
        >>> [layer.shape for layer in model.modules() if isinstance(layer, BlockSparse)]
        [(32, 64)]
    """

    shape: tuple[int, int]
    blocksize: tuple[int, int]
    values: nn.Parameter
    crow_indices: Tensor
    col_indices: Tensor

    # Pattern of the present index tensors, with the tensors and versions it was made from.
    _seen: tuple[Tensor, int, Tensor, int, Pattern] | None = None
    # How a dense checkpoint lays out the weight: [m, k], or GPT-2's [k, m].
    _layout: Literal["linear", "conv1d"] = "linear"
    # Buffers that index: None where a subclass has none now.
    _index_buffers: tuple[str, ...] = ("crow_indices", "col_indices")

    def __init__(self, pattern: Pattern, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.shape, self.blocksize = pattern.shape, pattern.blocksize
        self.values = nn.Parameter(
            torch.empty(pattern.nnzb, *pattern.blocksize, device=device, dtype=dtype)
        )
        # Copies: training overwrites them in place, and a Pattern never changes.
        self.register_buffer("crow_indices", pattern.crow_indices.to(device, copy=True))
        self.register_buffer("col_indices", pattern.col_indices.to(device, copy=True))

    @property
    def nnzb(self) -> int:
        """Number of stored blocks."""
        return self.values.shape[0]

    @property
    def density(self) -> float:
        """Stored values over all values of the dense weight."""
        (m, k), (r, c) = self.shape, self.blocksize
        return self.pattern.density if m % r or k % c else self.values.numel() / max(m * k, 1)

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
            >>> from sparsetile.nn import Linear
            >>> Linear(32, 32, density=0.25).weight.to_dense().shape
            torch.Size([32, 32])
        """
        return Weight(self.values, self.pattern)

    @torch.no_grad()
    def set_pattern_(
        self, pattern: Pattern, values: Float[Tensor, "nnzb r c"] | None = None
    ) -> "BlockSparse":
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
            >>> from sparsetile.nn import Linear
            >>> layer = Linear(4, 4, blocksize=2, density=0.25)
            >>> layer.set_pattern_(Pattern((4, 4), 2, [0, 2, 2], [0, 1])).nnzb
            2
        """
        _dense.check_pattern(pattern, self.shape, self.blocksize)
        pattern = pattern.to(self.values.device)
        if values is None:
            values = _moved(self.values, self.pattern, pattern)
        else:
            values = _dense.checked_values(values, pattern)
        self._resize_(pattern.nnzb)
        self.values.copy_(values)
        self.crow_indices.copy_(pattern.crow_indices)
        self.col_indices.copy_(pattern.col_indices)
        note_whole(self)
        return self

    def __getstate__(self) -> dict[str, Any]:
        # A copy counts versions from elsewhere, so what was seen must not follow it.
        return {name: value for name, value in self.__dict__.items() if name != "_seen"}

    def __deepcopy__(self, memo: dict[int, Any]) -> "BlockSparse":
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        note_copy(self, twin)
        return twin

    def _validated(self, crow: Tensor, col: Tensor) -> Pattern:
        return Pattern(self.shape, self.blocksize, crow, col)

    def _take(self, weight: Tensor, pattern: Pattern) -> None:
        """Fill a module on the meta device from a dense weight `[m, k]`."""
        self.values = nn.Parameter(_dense.kept(weight, pattern), requires_grad=weight.requires_grad)
        self.crow_indices = pattern.crow_indices.to(weight.device, copy=True)
        self.col_indices = pattern.col_indices.to(weight.device, copy=True)

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

    def _make_room_(self, state: dict[str, Any], prefix: str) -> None:
        """Make the entries of a checkpoint and the tensors they go to fit, or change nothing."""
        self._resize_(_load.translate_(state, prefix, self))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "BlockSparse":
        """Move as every module does, but keep the indices' type and content.

        `module.type(torch.half)` would cast them and `to_empty` would leave rubbish in them,
        which a kernel would then follow. Indices that leave the meta device store no block until
        a checkpoint is loaded.
        """
        before = {name: self._buffers[name] for name in self._index_buffers}
        super()._apply(fn, recurse)
        for name, old in before.items():
            new = self._buffers[name]
            if old is not None and new is not None and new is not old and not new.is_meta:
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
            self._make_room_(state_dict, prefix)
        except (TypeError, ValueError) as refusal:
            name = prefix.rstrip(".") or type(self).__name__
            error_msgs.append(f'While loading "{name}": {refusal}')
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
        note_whole(self)


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
