"""An embedding that stores, looks up and trains a part of its table's blocks."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sparsetile import ops
from sparsetile.matrix import Pattern, scatter_blocks
from sparsetile.nn import _check, _dense, _init
from sparsetile.nn._block_sparse import BlockSparse


class Embedding(BlockSparse):
    """Looks rows of a block-sparse table up, called as `torch.nn.Embedding` is.

    Rows come out dense, with zeros where nothing is stored; gradients go into the stored blocks
    alone. `TiedHead` multiplies by the same table. The first values are drawn from N(0, 1), as
    torch draws them.

    Args:
        num_embeddings: Number of rows, `m`.
        embedding_dim: Length of a row, `k`.
        padding_idx: A row that starts at zero and gets no gradient; may count from the end.
        blocksize: Shape of the blocks, an int or `(r, c)`. Sizes that the block does not divide
            are padded inside. A given `pattern` brings its own.
        density: Share of the blocks to store, in (0, 1]; the pattern is drawn with torch's
            global generator, so `torch.manual_seed` makes it repeatable.
        pattern: Which blocks to store. Give this or `density`.
        device: Where the table lives.
        dtype: Floating type of the values.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If sizes, density, block size, pattern and padding row do not fit together.

    Examples:
        >>> table = Embedding(1024, 64, density=0.25, blocksize=(1, 16))
        >>> table
        Embedding(1024, 64, blocksize=(1, 16), density=0.25, nnzb=1024)
        >>> table(torch.tensor([[3, 3, 1023]])).shape
        torch.Size([1, 3, 64])
    """

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        blocksize: int | tuple[int, int] = 16,
        density: float | None = None,
        pattern: Pattern | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        shape = (
            _check.checked_size("num_embeddings", num_embeddings),
            _check.checked_size("embedding_dim", embedding_dim),
        )
        padding_idx = checked_padding(padding_idx, shape[0])
        dtype, device = _check.checked_dtype(dtype), _check.checked_device(device)
        _dense.check_source(shape, blocksize, density, pattern)
        if pattern is None:
            assert density is not None
            pattern = _dense.drawn(shape, blocksize, density)
        super().__init__(pattern, device, dtype)
        self.num_embeddings, self.embedding_dim = shape
        self.padding_idx = padding_idx
        if device.type != "meta":
            self.reset_parameters()

    def forward(self, indices: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch k"]:
        """Look up: numbers of rows to the rows, `[...]` to `[..., embedding_dim]`."""
        return ops.embedding_from_indices(
            indices,
            self.values,
            self.crow_indices,
            self.col_indices,
            (self.num_embeddings, self.embedding_dim),
            padding_idx=self.padding_idx,
        )

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the values anew, at the present pattern."""
        self.values.normal_()
        pattern = self.pattern
        if pattern.ragged:
            self.values.masked_fill_(~_init.inside(pattern), 0)
        if self.padding_idx is not None:
            row, inner = divmod(self.padding_idx, self.blocksize[0])
            first, last = pattern.crow_indices[row : row + 2].tolist()
            self.values[first:last, inner] = 0

    @classmethod
    def from_embedding(
        cls,
        embedding: nn.Embedding,
        *,
        blocksize: int | tuple[int, int] = 16,
        density: float | None = None,
        pattern: Pattern | None = None,
        method: Literal["magnitude", "random"] = "magnitude",
        score: Literal["l1", "l2", "max"] = "l1",
    ) -> "Embedding":
        """Keep some blocks of a dense table.

        Args:
            embedding: A `torch.nn.Embedding` without `max_norm`, `scale_grad_by_freq` and `sparse`.
            blocksize: Shape of the blocks, an int or `(r, c)`.
            density: Share of the blocks to keep. Give this or `pattern`.
            pattern: Which blocks to keep.
            method: With `density`: keep the strongest blocks, or random ones.
            score: Strength of a block for `method="magnitude"`.

        Returns:
            A table with copies of the kept values.

        Raises:
            TypeError: If `embedding` is of another kind.
            ValueError: If it does more than look up, or the other arguments do not fit it.

        Examples:
            >>> dense = torch.nn.Embedding(64, 32)
            >>> sparse = Embedding.from_embedding(dense, density=0.25)
            >>> bool((sparse.to_embedding().weight != 0).float().mean() == 0.25)
            True
        """
        if not isinstance(embedding, nn.Embedding):
            raise TypeError(
                f"embedding must be a torch.nn.Embedding, got {type(embedding).__name__}"
            )
        if why := unfit(embedding):
            raise ValueError(f"embedding cannot be made sparse: {why}")
        weight = embedding.weight
        pattern = _dense.chosen(weight, blocksize, density, pattern, method, score)
        table = cls(
            *pattern.shape,
            embedding.padding_idx,
            blocksize=pattern.blocksize,
            pattern=pattern,
            device="meta",
            dtype=weight.dtype,
        )
        table._take(weight, pattern)
        table.train(embedding.training)
        return table

    def to_embedding(self) -> nn.Embedding:
        """Make the dense table of the same function.

        Returns:
            A `torch.nn.Embedding` with copies of the values, zero elsewhere.

        Examples:
            >>> Embedding(64, 32, density=0.5).to_embedding()
            Embedding(64, 32)
        """
        dense = nn.Embedding(*self.shape, self.padding_idx, device="meta")
        full = scatter_blocks(self.values.detach(), self.pattern)
        dense.weight = nn.Parameter(full, requires_grad=self.values.requires_grad)
        return dense.train(self.training)

    def extra_repr(self) -> str:
        """Describe the table for its one-line repr."""
        r, c = self.blocksize
        density = "?" if self.crow_indices.is_meta else f"{self.density:.2f}"
        padding = "" if self.padding_idx is None else f"padding_idx={self.padding_idx}, "
        return (
            f"{self.num_embeddings}, {self.embedding_dim}, {padding}"
            f"blocksize={r if r == c else (r, c)}, density={density}, nnzb={self.nnzb}"
        )


def unfit(embedding: nn.Embedding) -> str | None:
    """Why a dense table cannot be made sparse, with the way out; None if it can."""
    for name, plain in (("max_norm", None), ("scale_grad_by_freq", False), ("sparse", False)):
        if getattr(embedding, name) != plain:
            return (
                f"it has {name}={getattr(embedding, name)}, which block-sparse tables do not do; "
                f"build it with {name}={plain}"
            )
    return _dense.unfit(embedding)


def checked_padding(padding_idx: int | None, rows: int) -> int | None:
    """Check a padding row, and count it from the start."""
    if padding_idx is None:
        return None
    if isinstance(padding_idx, bool) or not isinstance(padding_idx, int):
        raise TypeError(f"padding_idx must be an int or None, got {padding_idx!r}")
    if not -rows <= padding_idx < rows:
        raise ValueError(
            f"padding_idx must be a row, {-rows} to {rows - 1} for num_embeddings={rows}, "
            f"got {padding_idx}"
        )
    return padding_idx % rows
