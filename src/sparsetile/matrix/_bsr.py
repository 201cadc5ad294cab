"""A block-sparse matrix: a pattern and the values of its blocks."""

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from sparsetile.matrix._blocks import check_values, gather_blocks, scatter_blocks
from sparsetile.matrix._check import as_device, describe, message
from sparsetile.matrix._generate import random_pattern
from sparsetile.matrix._operators import multiply, multiply_left
from sparsetile.matrix._pattern import Pattern
from sparsetile.matrix._select import choose_pattern

_MATMULS = frozenset(
    {torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.__rmatmul__}
)


@dataclass(frozen=True, eq=False, repr=False)
class BSR:
    """A block-sparse matrix: the values `[nnzb, r, c]` of a pattern's blocks.

    `values` is an ordinary tensor, so that gradients and optimizers work on it. In a ragged last
    block row or column, what lies beyond the edge of the matrix is never read.

    Attributes:
        values: The blocks `[nnzb, r, c]`, in the pattern's order.
        pattern: Which blocks they are.

    Raises:
        TypeError: If the arguments are not a tensor and a Pattern.
        ValueError: If shape or device do not fit.

    Examples:
        >>> A = BSR.from_dense(torch.eye(6), blocksize=2)
        >>> A
        BSR(6×6, blocksize=2, density=0.33, 3 blocks, float32, cpu)
    """

    values: Shaped[Tensor, "nnzb r c"]
    pattern: Pattern

    # numpy arrays leave `array @ A` to us, which explains, instead of looping over objects.
    __array_ufunc__ = None

    def __post_init__(self) -> None:
        check_values(self.values, self.pattern)

    @classmethod
    def from_dense(
        cls,
        w: Shaped[Tensor, "m k"],
        blocksize: int | tuple[int, int] | None = None,
        *,
        pattern: Pattern | None = None,
        density: builtins.float | None = None,
        drop_zero_blocks: bool = True,
    ) -> "BSR":
        """Store blocks of a dense matrix: the non-zero ones, the strongest, or a pattern's.

        Args:
            w: Dense matrix `[m, k]`; gradients flow back to it.
            blocksize: Side of a square block or `(r, c)`; may be left out beside a pattern.
            pattern: The blocks to take.
            density: Keep this fraction of the blocks, the strongest by L1 norm.
            drop_zero_blocks: With neither, leave out blocks of zeros; False stores all blocks.

        Returns:
            The matrix, with values of its own.

        Raises:
            TypeError: If an argument is of the wrong type.
            ValueError: If arguments exclude each other or do not fit.

        Examples:
            >>> BSR.from_dense(torch.ones(4, 4), blocksize=2, density=0.25).nnzb
            1
        """
        pattern = choose_pattern(w, blocksize, pattern, density, drop_zero_blocks)
        return cls(gather_blocks(w, pattern), pattern)

    @classmethod
    def random(
        cls,
        m: int,
        k: int,
        *,
        blocksize: int | tuple[int, int],
        density: builtins.float,
        seed: int,
        balanced: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> "BSR":
        """Draw a pattern and standard normal values, the same ones for a seed.

        Args:
            m: Rows.
            k: Columns.
            blocksize: Side of a square block or `(r, c)`.
            density: Fraction of the blocks to store, in (0, 1].
            seed: Integer from 0 up.
            balanced: Give every block row the same count of blocks.
            device: Where the matrix shall live.
            dtype: Floating type of the values; torch's default if None.

        Returns:
            The matrix.

        Raises:
            TypeError: If an argument is of the wrong type.
            ValueError: If an argument is out of range.

        Examples:
            >>> BSR.random(64, 32, blocksize=8, density=0.25, seed=0)
            BSR(64×32, blocksize=8, density=0.25, 8 blocks, float32, cpu)
        """
        device, dtype = as_device(device), torch.get_default_dtype() if dtype is None else dtype
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            got, allowed = describe(dtype), "a floating dtype, as torch.float32"
            raise TypeError(message("dtype", got=got, allowed=allowed, fix="convert afterwards"))
        pattern = random_pattern(
            m, k, blocksize=blocksize, density=density, seed=seed, balanced=balanced
        )
        generator = torch.Generator().manual_seed(seed)
        values = torch.randn(pattern.nnzb, *pattern.blocksize, generator=generator)
        return cls(values.to(device, dtype), pattern.to(device))

    @classmethod
    def from_torch(
        cls,
        t: Tensor,
        blocksize: int | tuple[int, int] | None = None,
        *,
        drop_zero_blocks: bool = False,
    ) -> "BSR":
        """Take a torch tensor of layout BSR, BSC, CSR, CSC, COO or strided.

        Duplicates are summed and unsorted indices sorted. No gradient flows through.

        Args:
            t: The tensor, of two dimensions.
            blocksize: Blocks to store it in; None keeps those of BSR and BSC, else takes 1.
            drop_zero_blocks: Leave out blocks whose values are all zero.

        Returns:
            The matrix, with values of its own.

        Raises:
            TypeError: If `t` is not a tensor.
            ValueError: If it is batched, or its indices are out of range.

        Examples:
            >>> BSR.from_torch(torch.eye(4).to_sparse_coo(), blocksize=2).nnzb
            2
        """
        from sparsetile.matrix._torch import from_torch

        return from_torch(t, blocksize, drop_zero_blocks=drop_zero_blocks)

    def to_torch(self, layout: torch.layout | str = "bsr", *, drop_zeros: bool = False) -> Tensor:
        """Make a torch tensor of another layout. No gradient flows through.

        Args:
            layout: `"bsr"`, `"bsc"`, `"csr"`, `"csc"`, `"coo"`, `"strided"`, or a torch layout.
            drop_zeros: Leave out blocks (BSR, BSC) or elements (the others) that are zero.

        Returns:
            The tensor, with memory of its own and int64 indices.

        Raises:
            ValueError: If torch cannot hold it: BSR and BSC of ragged blocks.

        Examples:
            >>> BSR.from_dense(torch.eye(4), blocksize=2).to_torch("coo", drop_zeros=True)._nnz()
            4
        """
        from sparsetile.matrix._torch import to_torch

        return to_torch(self, layout, drop_zeros=drop_zeros)

    @classmethod
    def from_scipy(
        cls,
        s: Any,
        blocksize: int | tuple[int, int] | None = None,
        *,
        drop_zero_blocks: bool = False,
    ) -> "BSR":
        """Take a scipy sparse array or matrix of any format.

        Duplicates are summed and unsorted indices sorted.

        Args:
            s: The scipy matrix.
            blocksize: Blocks to store it in; None keeps those of BSR, else takes 1.
            drop_zero_blocks: Leave out blocks whose values are all zero.

        Returns:
            The matrix on the CPU, with values of its own.

        Raises:
            TypeError: If `s` is not sparse or its dtype is unknown to torch.
            ValueError: If it is not of two dimensions, or its indices are out of range.

        Examples:
            >>> from scipy.sparse import eye_array
            >>> BSR.from_scipy(eye_array(4), blocksize=2).nnzb
            2
        """
        from sparsetile.matrix._scipy import from_scipy

        return from_scipy(s, blocksize, drop_zero_blocks=drop_zero_blocks)

    def to_scipy(self, format: str = "bsr", *, drop_zeros: bool = False) -> Any:
        """Make a scipy sparse array, on the CPU.

        Args:
            format: `"bsr"`, `"csr"`, `"csc"`, `"coo"`, `"dia"`, `"dok"` or `"lil"`.
            drop_zeros: Leave out blocks (BSR) or elements (the others) that are zero.

        Returns:
            The array, with memory of its own.

        Raises:
            TypeError: If scipy has no such dtype.
            ValueError: If the format is unknown, or BSR is asked for and blocks are ragged.

        Examples:
            >>> BSR.from_dense(torch.eye(4), blocksize=2).to_scipy("csr").shape
            (4, 4)
        """
        from sparsetile.matrix._scipy import to_scipy

        return to_scipy(self, format, drop_zeros=drop_zeros)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns `(m, k)`."""
        return self.pattern.shape

    @property
    def blocksize(self) -> tuple[int, int]:
        """Rows and columns `(r, c)` of a block."""
        return self.pattern.blocksize

    @property
    def nnzb(self) -> int:
        """Number of stored blocks."""
        return self.pattern.nnzb

    @property
    def density(self) -> builtins.float:
        """Stored values inside the matrix over m·k."""
        return self.pattern.density

    @property
    def dtype(self) -> torch.dtype:
        """Type of the values."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Where the values and the pattern live."""
        return self.values.device

    @property
    def requires_grad(self) -> bool:
        """Whether the values collect a gradient."""
        return self.values.requires_grad

    @property
    def T(self) -> "BSR":  # noqa: N802  torch's spelling
        """The transposed matrix, with values of its own; gradients flow back."""
        values = self.values[self.pattern.transpose_permutation].transpose(1, 2)
        return BSR(values.contiguous(), self.pattern.T)

    def to_dense(self) -> Shaped[Tensor, "m k"]:
        """Write the blocks into a dense matrix of zeros; gradients flow back.

        Returns:
            The dense matrix `[m, k]`.

        Examples:
            >>> BSR.from_dense(torch.eye(3), blocksize=2).to_dense().sum()
            tensor(3.)
        """
        return scatter_blocks(self.values, self.pattern)

    def to(self, *args: Any, **kwargs: Any) -> "BSR":
        """Change device or dtype; takes what `torch.Tensor.to` takes.

        Args:
            *args: As for `torch.Tensor.to`.
            **kwargs: The same.

        Returns:
            The matrix there; gradients flow back.

        Raises:
            ValueError: If there is no such device here, or it holds no data.

        Examples:
            >>> BSR.from_dense(torch.eye(2), blocksize=1).to(torch.float64).dtype
            torch.float64
        """
        # Whether it comes first or by name: torch's own error would not say what is wrong.
        device = kwargs.get("device", args[0] if args else None)
        if isinstance(device, (str, int, torch.device)):
            as_device(device)
        values = self.values.to(*args, **kwargs)
        return BSR(values, self.pattern.to(values.device))

    def half(self) -> "BSR":
        """The matrix in float16."""
        return self.to(torch.float16)

    def bfloat16(self) -> "BSR":
        """The matrix in bfloat16."""
        return self.to(torch.bfloat16)

    def float(self) -> "BSR":
        """The matrix in float32."""
        return self.to(torch.float32)

    def double(self) -> "BSR":
        """The matrix in float64."""
        return self.to(torch.float64)

    def cpu(self) -> "BSR":
        """The matrix on the CPU."""
        return self.to("cpu")

    def cuda(self) -> "BSR":
        """The matrix on the current GPU."""
        return self.to("cuda")

    def clone(self) -> "BSR":
        """The matrix with a copy of the values; gradients flow back."""
        return BSR(self.values.clone(), self.pattern)

    def detach(self) -> "BSR":
        """The matrix with the same values, cut off from the graph."""
        return BSR(self.values.detach(), self.pattern)

    def requires_grad_(self, requires_grad: bool = True) -> "BSR":
        """Let the values collect a gradient, in place; returns the matrix itself."""
        self.values.requires_grad_(requires_grad)
        return self

    def __matmul__(self, x: Tensor) -> Tensor:
        return multiply(self.values, self.pattern, x)

    def __rmatmul__(self, x: Tensor) -> Tensor:
        flipped = self.T
        return multiply_left(x, flipped.values, flipped.pattern)

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func in _MATMULS and len(args) == 2 and not kwargs:
            left, right = args
            return left @ right if isinstance(left, BSR) else right.__rmatmul__(left)
        raise TypeError(
            message(
                f"torch.{getattr(func, '__name__', func)}",
                got="a BSR",
                allowed="A @ x, x @ A and torch.matmul",
                fix="work on A.values, or on A.to_dense()",
            )
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return BSR, (self.values, self.pattern)

    def __repr__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        grad = ", requires_grad=True" if self.requires_grad else ""
        return f"BSR({self.pattern.summary()}, {dtype}, {self.device}{grad})"

    def _repr_html_(self) -> str:
        from sparsetile.matrix._svg import spy_svg

        return f"<div>{spy_svg(self, cells=64)}<br><code>{self!r}</code></div>"
