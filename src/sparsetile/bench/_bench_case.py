"""One cell of a benchmark: which product on which sizes, its operands and its right answer."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from sparsetile.matrix import BSR, gather_blocks, random_pattern, scatter_blocks

#: What is timed, by name.
OPS = {
    "linear": "x · Wᵀ, a layer's forward pass",
    "linear+grad": "forward pass and both gradients",
    "dx": "gradient of the input",
    "dvalues": "gradient of the stored values",
    "spmm": "W · X",
    "sddmm": "the stored blocks of A · B",
    "train-step": "forward, backward and AdamW of one layer",
}
_TRAINING = ("linear+grad", "train-step")
_SAMPLED = ("dvalues", "sddmm")
DTYPES = ("float32", "bfloat16", "float16", "float32*bfloat16", "float32*float16")


class CannotError(Exception):
    """A peer cannot do a cell; the message says why in a few words."""


@dataclass(frozen=True)
class Case:
    """A product and its sizes.

    Args:
        op: One of `OPS`.
        m: Outputs.
        k: Inputs.
        n: Rows of the batch, or columns of X.
        r: Rows of a block.
        c: Columns of a block.
        density: Share of the blocks that is stored.
        dtype: One of `DTYPES`; `float32*bfloat16` is float32 with stored values in bfloat16.
        threads: Threads of every library.

    Examples:
        >>> Case("linear", 8, 8, 2, 4, 4, 0.5, "float32*bfloat16", 1).formats
        (torch.float32, torch.bfloat16)
    """

    op: str
    m: int
    k: int
    n: int
    r: int
    c: int
    density: float
    dtype: str
    threads: int

    @property
    def formats(self) -> tuple[torch.dtype, torch.dtype]:
        """Dtype of the dense operands, and of the stored values."""
        dense, _, values = self.dtype.partition("*")
        return getattr(torch, dense), getattr(torch, values or dense)

    @property
    def products(self) -> int:
        """Products of the size m·k·n that it takes: three with both gradients."""
        return 3 if self.op in _TRAINING else 1

    @property
    def memory(self) -> int:
        """Bytes that all peers together need, about; never much less than they do."""
        size = self.formats[0].itemsize
        dense = self.m * self.k * (4 + size) * (3 if self.products == 3 else 2)
        # Blocks with 64-bit indices as several peers keep them, one element at a time.
        stored = int(self.density * self.m * self.k) * 40
        return dense + stored + 6 * self.n * (self.m + self.k) * 4


class Operands:
    """Random operands of a case, the same for every peer and process.

    Args:
        case: What they are for.
        seed: Decides pattern and numbers.
    """

    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        dense, stored = case.formats
        draw = torch.Generator().manual_seed(seed)
        self.pattern = random_pattern(
            case.m, case.k, blocksize=(case.r, case.c), density=case.density, seed=seed
        )
        size = (self.pattern.nnzb, case.r, case.c)
        scale = max(1.0, case.k * case.density) ** -0.5
        self.values = (torch.randn(size, generator=draw) * scale).to(stored)
        self.x = torch.randn(case.n, case.k, generator=draw).to(dense)
        self.g = torch.randn(case.n, case.m, generator=draw).to(dense)

    @cached_property
    def w(self) -> Tensor:
        """The weight as a dense matrix `[m, k]` in the dtype of the dense operands."""
        return scatter_blocks(self.values, self.pattern).to(self.x.dtype)

    @cached_property
    def xt(self) -> Tensor:
        """X `[k, n]`, contiguous: the layout that libraries of sparse matrices like best."""
        return self.x.t().contiguous()

    @cached_property
    def gt(self) -> Tensor:
        """The gradient of the output `[m, n]`, contiguous."""
        return self.g.t().contiguous()

    def sparse(self) -> BSR:
        """The matrix of the product, values in the dtype of the dense operands; Wᵀ for `dx`."""
        matrix = BSR(self.values.to(self.x.dtype), self.pattern)
        return matrix.T if self.case.op == "dx" else matrix

    def dense(self) -> Tensor:
        """What the matrix of the product is multiplied with, `[k, n]`, or `[m, n]` for `dx`."""
        return self.gt if self.case.op == "dx" else self.xt

    def truth(self) -> tuple[Tensor, ...]:
        """The right answer, by dense products in float32 of the rounded operands.

        Returns:
            Y `[m, n]`; dX `[k, n]` for `dx`; blocks `[nnzb, r, c]` for `dvalues` and `sddmm`;
            dX and blocks where both gradients are computed.
        """
        op = self.case.op
        g = self.g.float()
        blocks = dx = None
        if op in _SAMPLED or op in _TRAINING:
            blocks = gather_blocks(g.t() @ self.x.float(), self.pattern)
        if op == "dx" or op in _TRAINING:
            dx = (g @ self.w.float()).t()
        if blocks is None and dx is None:
            return ((self.x.float() @ self.w.float().t()).t(),)
        return tuple(t for t in (dx, blocks) if t is not None)


def difference(found: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> float:
    """Largest difference of any result, over the largest number of the right one."""
    worst = 0.0
    for a, b in zip(found, right, strict=True):
        top = float(b.abs().max()) or 1.0
        gap = float((a.float() - b).abs().max()) / top
        worst = max(worst, gap if gap == gap else float("inf"))  # NaN is not small
    return worst


def tolerance(dtype: torch.dtype) -> float:
    """Largest difference that rounding explains, for results of a dtype."""
    return {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
