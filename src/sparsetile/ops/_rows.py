"""Rows of a block-sparse table, gathered by number, and the gradient that goes back into it."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from sparsetile.matrix import Pattern
from sparsetile.ops import _check
from sparsetile.ops._autograd import Gradients, autograd_rule, dispatched
from sparsetile.ops._register import LIBRARY
from sparsetile.ops._tap import WATCHED

_OP = "embedding"


def embedding(
    indices: Int[Tensor, "*batch"],
    values: Float[Tensor, "nnzb r c"],
    pattern: Pattern,
    *,
    padding_idx: int | None = None,
) -> Float[Tensor, "*batch k"]:
    """Look rows of a block-sparse table up, as `torch.nn.functional.embedding` does in a dense one.

    The gradient of the values is gathered into the stored blocks alone, summed over repeated
    indices in float32 or better.

    Args:
        indices: Numbers of rows, int32 or int64, any shape.
        values: Stored blocks of the table `[nnzb, r, c]`. Elements outside the table (ragged last
            blocks) are never read, and their gradient is zero.
        pattern: Which blocks of the `m×k` table are stored.
        padding_idx: A row that gets no gradient.

    Returns:
        The rows, dense, zero where nothing is stored, `[..., k]`, in the dtype of the values;
        autocast leaves it, as in torch.

    Raises:
        TypeError: If an operand has a wrong type or dtype.
        ValueError: If shapes or devices do not fit.
        IndexError: If there is no row of such a number.

    Examples:
        >>> import torch
        >>> from sparsetile.matrix import Pattern
        >>> from sparsetile.ops import embedding
        >>> p = Pattern((3, 4), (1, 2), [0, 1, 2, 2], [0, 1])
        >>> embedding(torch.tensor([1, 2]), torch.ones(2, 1, 2), p)
        tensor([[0., 0., 1., 1.],
                [0., 0., 0., 0.]])
    """
    _check.is_pattern(_OP, pattern)
    _check.operands(_OP, {"values": values})
    _check.values_fit(_OP, values, pattern)
    crow, col = pattern.crow_indices, pattern.col_indices
    return embedding_from_indices(
        indices, values, crow, col, pattern.shape, padding_idx=padding_idx
    )


def embedding_from_indices(
    indices: Int[Tensor, "*batch"],
    values: Float[Tensor, "nnzb r c"],
    crow_indices: Int[Tensor, " mb1"],
    col_indices: Int[Tensor, " nnzb"],
    shape: tuple[int, int],
    *,
    padding_idx: int | None = None,
) -> Float[Tensor, "*batch k"]:
    """Look rows up as `embedding` does, in a table whose pattern is two index tensors.

    The index tensors may be changed in place between calls, compiled ones too. Their content is
    trusted, as by `linear_from_indices`.

    Args:
        indices: Numbers of rows, int32 or int64, any shape.
        values: Stored blocks of the table `[nnzb, r, c]`.
        crow_indices: Where each block row starts, int32 `[ceil(m / r) + 1]`.
        col_indices: Block column of each stored block, int32 `[nnzb]`, ascending in a row.
        shape: `(m, k)` of the table.
        padding_idx: A row that gets no gradient.

    Returns:
        The rows, dense, `[..., k]`.

    Raises:
        TypeError: If an operand has a wrong type or dtype.
        ValueError: If shapes or devices do not fit.
        IndexError: If there is no row of such a number.

    Examples:
        >>> import torch
        >>> from sparsetile.ops import embedding_from_indices
        >>> crow, col = torch.tensor([0, 1, 2]).int(), torch.tensor([0, 1]).int()
        >>> embedding_from_indices(torch.tensor([1]), torch.ones(2, 1, 2), crow, col, (2, 4))
        tensor([[0., 0., 1., 1.]])
    """
    _check_rows(_OP, indices)
    _check.operands(_OP, {"values": values})
    _check.indices(_OP, values, crow_indices, col_indices, shape)
    if indices.device != values.device:
        raise ValueError(
            f"{_OP}: indices is on {indices.device} but values is on {values.device}; all "
            "operands must be on one device: move one with .to()"
        )
    m, k = shape
    if padding_idx is not None and not 0 <= padding_idx < m:
        raise ValueError(
            f"{_OP}: padding_idx is {padding_idx}, but the table has {m} rows; it must be one of "
            "them, or None"
        )
    padding = -1 if padding_idx is None else padding_idx
    args = (indices, values, crow_indices, col_indices, m, k, padding)
    return dispatched(Rows, EMBEDDING, *args)


def embedding_grad(
    indices: Int[Tensor, "*batch"], dy: Float[Tensor, "*batch k"], pattern: Pattern
) -> Float[Tensor, "nnzb r c"]:
    """Sum rows into the blocks of a table: the gradient of `embedding` at any pattern.

    Args:
        indices: Numbers of rows, int32 or int64, any shape.
        dy: What to add to each of these rows.
        pattern: Which blocks of the table are wanted.

    Returns:
        The blocks, in the dtype of dy, summed in float32 or better.

    Raises:
        TypeError: If an operand has a wrong type or dtype.
        ValueError: If shapes or devices do not fit.
        IndexError: If there is no row of such a number.

    Examples:
        >>> import torch
        >>> from sparsetile.matrix import Pattern
        >>> from sparsetile.ops import embedding_grad
        >>> p = Pattern((2, 4), (1, 2), [0, 1, 2], [0, 1])
        >>> embedding_grad(torch.tensor([1, 1]), torch.ones(2, 4), p).tolist()
        [[[0.0, 0.0]], [[2.0, 2.0]]]
    """
    op = "embedding_grad"
    _check.is_pattern(op, pattern)
    _check_rows(op, indices)
    _check.operands(op, {"dy": dy})
    wanted = (*indices.shape, pattern.shape[1])
    if tuple(dy.shape) != wanted:
        raise ValueError(
            f"{op}: dy has shape {list(dy.shape)}, but it must be {list(wanted)}, a row of the "
            "table for each of indices; reshape it"
        )
    _check.pattern_device(op, "dy", dy, pattern)
    _refuse_missing(indices, pattern.shape[0])
    crow, col = pattern.crow_indices, pattern.col_indices
    return dispatched(Blocks, EMBEDDING_GRAD, indices, dy, crow, col, *pattern.blocksize)


def run_embedding(
    indices: Tensor, values: Tensor, crow: Tensor, col: Tensor, m: int, k: int, padding: int
) -> Tensor:
    """Gather rows of a table on real tensors."""
    _refuse_missing(indices, m)
    _, r, c = values.shape
    width = -(-k // c)
    target, source = _pieces(indices, crow, col, r, width)
    out = values.new_zeros(indices.numel() * width, c)
    out.index_copy_(0, target, values.reshape(-1, c).index_select(0, source))
    return out.view(*indices.shape, width * c)[..., :k].contiguous()


def run_embedding_grad(
    indices: Tensor, dy: Tensor, crow: Tensor, col: Tensor, r: int, c: int
) -> Tensor:
    """Sum rows into the stored blocks of a table on real tensors."""
    if WATCHED and (see := WATCHED.get(crow.data_ptr())):
        see(indices, dy)
    k = dy.shape[-1]
    width = -(-k // c)
    target, source = _pieces(indices, crow, col, r, width)
    dtype = torch.promote_types(dy.dtype, torch.float32)
    blocks = dy.new_zeros(len(col) * r, c, dtype=dtype)
    pieces = F.pad(dy, (0, width * c - k)).reshape(-1, c).index_select(0, target)
    return blocks.index_add_(0, source, pieces.to(dtype)).view(-1, r, c).to(dy.dtype)


def _pieces(
    indices: Tensor, crow: Tensor, col: Tensor, r: int, width: int
) -> tuple[Tensor, Tensor]:
    """Where the stored pieces of the asked rows come and lie, in units of block rows of length c.

    Returns:
        Their places in the result seen as `[n * width, c]`, and in the values as `[nnzb * r, c]`.
    """
    flat = indices.reshape(-1).long()
    row = flat.div(r, rounding_mode="floor")
    start = crow[row].long()
    count = crow[row + 1].long() - start
    asked = torch.arange(len(flat), device=flat.device).repeat_interleave(count)
    # Counts on through the blocks of one asked row, then starts at those of the next.
    block = torch.arange(len(asked), device=flat.device) + (start - count.cumsum(0) + count)[asked]
    return asked * width + col[block], block * r + (flat - row * r)[asked]


def _check_rows(op: str, indices: Tensor) -> None:
    _check.is_tensor(op, "indices", indices)
    if indices.dtype not in (torch.int32, torch.int64):
        raise TypeError(
            f"{op}: indices is {indices.dtype}; allowed are int32 and int64, the numbers of rows; "
            "convert it with .long()"
        )


def _refuse_missing(indices: Tensor, m: int) -> None:
    if indices.numel() == 0:
        return
    low, high = (int(end) for end in indices.aminmax())
    if low < 0 or high >= m:
        wrong = low if low < 0 else high
        raise IndexError(
            f"{_OP}: row {wrong} was asked for, but the table has rows 0 to {m - 1}; check the "
            "tokenizer's size, or make the table larger"
        )


LIBRARY.define(
    "embedding(Tensor indices, Tensor values, Tensor crow, Tensor col, int m, int k, int padding) "
    "-> Tensor"
)
LIBRARY.define(
    "embedding_grad(Tensor indices, Tensor dy, Tensor crow, Tensor col, int r, int c) -> Tensor"
)
LIBRARY.impl("embedding", run_embedding, "CompositeExplicitAutograd")
LIBRARY.impl("embedding_grad", run_embedding_grad, "CompositeExplicitAutograd")
EMBEDDING = torch.ops.sparsetile.embedding.default
EMBEDDING_GRAD = torch.ops.sparsetile.embedding_grad.default


def _like_rows(
    indices: Tensor, values: Tensor, crow: Tensor, col: Tensor, m: int, k: int, padding: int
) -> Tensor:
    return values.new_empty(*indices.shape, k)


def _like_blocks(indices: Tensor, dy: Tensor, crow: Tensor, col: Tensor, r: int, c: int) -> Tensor:
    return dy.new_empty(col.shape[0], r, c)


torch.library.register_fake("sparsetile::embedding", _like_rows, lib=LIBRARY)
torch.library.register_fake("sparsetile::embedding_grad", _like_blocks, lib=LIBRARY)


class Rows(torch.autograd.Function):
    """Y = W[indices]; dvalues sums the rows of dY that came from the same piece of a block."""

    @staticmethod
    def forward(*args: Any) -> Tensor:
        """Gather the rows."""
        with torch._C._AutoDispatchBelowAutograd():
            return EMBEDDING(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what says where the rows came from; the values are not needed."""
        indices, values, crow, col, *ctx.rest = inputs
        ctx.r, ctx.c = values.shape[1:]
        ctx.save_for_backward(indices, crow, col)
        ctx.save_for_forward(indices, crow, col)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        """Give dvalues."""
        indices, crow, col = ctx.saved_tensors
        dy = _unpadded(dy, indices, ctx.rest[2])
        dvalues = dispatched(Blocks, EMBEDDING_GRAD, indices, dy, crow, col, ctx.r, ctx.c)
        return None, dvalues, None, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        """Give the directional derivative: the rows of the tangent."""
        indices, crow, col = ctx.saved_tensors
        rows = dispatched(Rows, EMBEDDING, indices, tangents[1], crow, col, *ctx.rest)
        return _unpadded(rows, indices, ctx.rest[2])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        """Batch over the indices (one lookup), or over tables (one each)."""
        if in_dims[1] is None:
            return dispatched(Rows, EMBEDDING, args[0].movedim(in_dims[0], 0), *args[1:]), 0
        return _each(Rows, EMBEDDING, info.batch_size, in_dims, args), 0


class Blocks(torch.autograd.Function):
    """The sum of rows into blocks; its derivative gathers the rows again."""

    @staticmethod
    def forward(*args: Any) -> Tensor:
        """Sum the rows."""
        with torch._C._AutoDispatchBelowAutograd():
            return EMBEDDING_GRAD(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what says where the rows went."""
        indices, dy, crow, col, ctx.r, ctx.c = inputs
        ctx.k = dy.shape[-1]
        ctx.save_for_backward(indices, crow, col)
        ctx.save_for_forward(indices, crow, col)

    @staticmethod
    def backward(ctx: Any, dblocks: Tensor) -> Gradients:
        """Give the gradient of the rows."""
        indices, crow, col = ctx.saved_tensors
        m = (crow.shape[0] - 1) * ctx.r
        dy = dispatched(Rows, EMBEDDING, indices, dblocks, crow, col, m, ctx.k, -1)
        return None, dy, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        """Give the directional derivative: the sum of the tangent's rows."""
        indices, crow, col = ctx.saved_tensors
        return dispatched(Blocks, EMBEDDING_GRAD, indices, tangents[1], crow, col, ctx.r, ctx.c)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        """Batch over indices or rows, one table each."""
        return _each(Blocks, EMBEDDING_GRAD, info.batch_size, in_dims, args), 0


def _unpadded(rows: Tensor, indices: Tensor, padding: int) -> Tensor:
    """Rows with those of the padding index set to zero."""
    return rows if padding < 0 else rows.masked_fill((indices == padding)[..., None], 0)


def _each(
    function: type[torch.autograd.Function],
    op: Any,
    size: int,
    in_dims: tuple[Any, ...],
    args: tuple[Any, ...],
) -> Tensor:
    """Call an operator once for each sample of a batch."""
    return torch.stack(
        [
            dispatched(
                function,
                op,
                *(a if d is None else a.select(d, i) for a, d in zip(args, in_dims, strict=True)),
            )
            for i in range(size)
        ]
    )


autograd_rule("embedding", Rows, EMBEDDING, 7)
autograd_rule("embedding_grad", Blocks, EMBEDDING_GRAD, 6)
