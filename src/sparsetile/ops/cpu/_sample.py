"""Sampling a dense product at one pattern, planned once and applied to many operands."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from sparsetile.ops.cpu._index import Index
from sparsetile.ops.cpu._number import Numbers
from sparsetile.ops.cpu._operand import Dense


class SamplePlan(ABC):
    """What sampling at one pattern needs that depends on the pattern alone.

    Args:
        index: The stored blocks.
        block: Rows and columns of a block.
        shape: Rows and columns of the matrix.
        numbers: The formats of the operands.
    """

    def __init__(
        self, index: Index, block: tuple[int, int], shape: tuple[int, int], numbers: Numbers
    ) -> None:
        self.nnzb, self.block, self.numbers = index.nnzb, block, numbers
        self.m, self.k = shape

    @property
    def written(self) -> tuple[int, int]:
        """Shape in which the kernel writes blocks; what lies past the block is cut off."""
        return self.block

    @abstractmethod
    def add(self, a: Dense, b: Dense, item: int, out: Tensor, keep: bool, last: bool) -> None:
        """Write the blocks of one batch item's product, or add them to ``out`` if ``keep``.

        ``out`` is float32; it need hold them only once the ``last`` product for it was added.
        """

    def sample(self, a: Dense, b: Dense, reduce: bool) -> Tensor:
        """Compute the stored blocks of a[B, m, t] · b[B, t, k]: their sum, or one set an item.

        ``a`` counts its columns along t, ``b`` along k.
        """
        (r, c), t = self.block, a.columns
        sets = 1 if reduce else a.batch
        out = a.tensor.new_empty(sets, self.nnzb, *self.written, dtype=torch.float32)
        if t == 0 or out.numel() == 0 or a.batch == 0:
            out.zero_()
        else:
            for item in range(a.batch):
                target = out[0 if reduce else item]
                last = not reduce or item == a.batch - 1
                self.add(a, b, item, target, keep=reduce and item > 0, last=last)
        out = out if self.written == self.block else out[:, :, :r, :c].contiguous()
        out = out.to(a.tensor.dtype)
        return out[0] if reduce else out
