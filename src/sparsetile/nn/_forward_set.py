"""A weight of which the product uses a part, while gradients are for all that is stored."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sparsetile.matrix import Pattern
from sparsetile.nn import _load
from sparsetile.nn._block_sparse import BlockSparse
from sparsetile.nn._weight import Weight


class ForwardSet(BlockSparse):
    """A block-sparse weight with an optional forward set: the blocks that the product uses.

    Attributes:
        forward_blocks: Which of the stored blocks are used, int32, ascending; None for all. Saved
            with the layer.
    """

    forward_blocks: Tensor | None
    # The pattern of those blocks, kept beside them so that compiled graphs follow.
    _forward_crow: Tensor | None
    _forward_col: Tensor | None

    _index_buffers = (
        *BlockSparse._index_buffers,
        "forward_blocks",
        "_forward_crow",
        "_forward_col",
    )

    def __init__(self, pattern: Pattern, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(pattern, device, dtype)
        self.register_buffer("forward_blocks", None)
        self.register_buffer("_forward_crow", None, persistent=False)
        self.register_buffer("_forward_col", None, persistent=False)

    @property
    def weight(self) -> Weight:
        """The weight of the product as one `BSR` matrix.

        It shares the layer's memory; with a forward set it is a copy of the blocks in it.

        Examples:
            >>> from sparsetile.nn import Linear
            >>> Linear(32, 32, density=0.25).weight.to_dense().shape
            torch.Size([32, 32])
        """
        blocks, crow, col = self.forward_blocks, self._forward_crow, self._forward_col
        if blocks is None or crow is None or col is None:
            return super().weight
        return Weight(self.values.index_select(0, blocks), self._validated(crow, col))

    @property
    def used(self) -> Bool[Tensor, " nnzb"] | None:
        """Which of the stored blocks the product uses, as `set_forward_` takes it; None for all."""
        if self.forward_blocks is None:
            return None
        used = torch.zeros(self.nnzb, dtype=torch.bool, device=self.forward_blocks.device)
        return used.index_fill_(0, self.forward_blocks.long(), True)

    @torch.no_grad()
    def set_forward_(self, used: Bool[Tensor, " nnzb"] | None) -> "ForwardSet":
        """Choose the blocks that the product uses.

        Outputs and the gradient of the input are those of a layer that stores only these. The
        gradient of `values` is still computed for every stored block, so that blocks left out can
        show that they should come in. `weight`, `to_linear()` and `densify_` give what the
        product uses; `pattern`, `nnzb` and `density` what is stored.

        Another set of the same size is written in place: compiled graphs go on. `set_pattern_`
        ends the set.

        Args:
            used: Which of the stored blocks to use; None for all of them.

        Returns:
            The layer.

        Raises:
            TypeError: If it is no bool tensor.
            ValueError: If it has not one entry for each block, or the layer is on the meta device.

        Examples:
            >>> from sparsetile.nn import Linear
            >>> layer = Linear(4, 4, blocksize=2, density=1.0)
            >>> layer.set_forward_(torch.tensor([True, False, False, True])).weight.nnzb
            2
        """
        if used is None:
            self.forward_blocks = self._forward_crow = self._forward_col = None
            return self
        if not isinstance(used, Tensor) or used.dtype != torch.bool:
            kind = used.dtype if isinstance(used, Tensor) else type(used).__name__
            raise TypeError(
                f"used must be a bool tensor that says of each block whether it is used, or None, "
                f"got {kind}"
            )
        if used.shape != (self.nnzb,):
            raise ValueError(
                f"used must have shape [{self.nnzb}], one entry for each stored block, got "
                f"{list(used.shape)}; it is a mask, not a list of blocks"
            )
        if used.is_meta or self.crow_indices.is_meta:
            raise ValueError(
                "used and the layer must hold data, but one is on the meta device; load the "
                "layer's values first"
            )
        self._set_buffer("forward_blocks", used.to(self.crow_indices.device).nonzero()[:, 0].int())
        self._renew_forward_()
        return self

    def set_pattern_(
        self, pattern: Pattern, values: Float[Tensor, "nnzb r c"] | None = None
    ) -> "ForwardSet":
        """Store other blocks, in place, and use all of them; see `BlockSparse.set_pattern_`."""
        super().set_pattern_(pattern, values)
        return self.set_forward_(None)

    def _renew_forward_(self) -> None:
        """Work out the pattern of the forward set from the present indices."""
        blocks, crow, col = self.forward_blocks, self.crow_indices, self.col_indices
        if blocks is None:
            self._forward_crow = self._forward_col = None
            return
        self._set_buffer("_forward_crow", torch.searchsorted(blocks, crow, out_int32=True))
        self._set_buffer("_forward_col", col.index_select(0, blocks))

    def _set_buffer(self, name: str, value: Tensor) -> None:
        """Write in place where the size allows: compiled graphs hold the tensor."""
        old = self._buffers[name]
        if old is None or old.shape != value.shape or old.device != value.device:
            self._buffers[name] = value
        else:
            old.copy_(value)

    def _make_room_(self, state: dict[str, Any], prefix: str) -> None:
        used = _load.checked_forward(state, prefix)
        super()._make_room_(state, prefix)
        if used is not None:
            self._set_buffer("forward_blocks", torch.empty_like(used, device=self.values.device))
        elif prefix + "values" in state:
            self.set_forward_(None)

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
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )
        self._renew_forward_()
