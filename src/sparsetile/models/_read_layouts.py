"""How other libraries spell a sparse weight as several tensors, and what each becomes."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sparsetile.matrix import BSR, Pattern, pattern_of
from sparsetile.models._read_parts import Parts, masked, natural_blocksize

_PACKED_ROWS = 1024


@dataclass(frozen=True)
class Layout:
    """One way to spell a weight.

    Attributes:
        name: Whose it is, in words.
        parts: Endings of the names that must be there.
        convert: Makes the weight of them.
        shape: Finds its shape without reading its values.
        values: The ending under which the values are.
        result: What the weight's name ends with.
        also: Endings that belong to it and are not needed.
        exact: Whether the shape is known, or only up to the last block.
    """

    name: str
    parts: tuple[str, ...]
    convert: Callable[[Parts], Tensor | BSR]
    shape: Callable[[Parts], tuple[int, ...]]
    values: str
    result: str = ""
    also: tuple[str, ...] = ()
    exact: Callable[[Parts], bool] = lambda parts: True


def _from_mask(values: str, mask: str) -> Callable[[Parts], Tensor | BSR]:
    def convert(parts: Parts) -> Tensor | BSR:
        weight, kept = parts.read(values), parts.read(mask)
        if weight.shape != kept.shape:
            raise parts.wrong(mask, f"shape {list(kept.shape)}", f"{list(weight.shape)}")
        if not bool(((kept == 0) | (kept == 1)).all()):
            raise parts.wrong(mask, "other numbers than 0 and 1", "a mask of zeros and ones")
        return masked(weight, kept != 0)

    return convert


def _shape_of(suffix: str) -> Callable[[Parts], tuple[int, ...]]:
    return lambda parts: parts.shape(suffix)


def _from_bsr(crow: str, col: str, values: str) -> Callable[[Parts], BSR]:
    def convert(parts: Parts) -> BSR:
        blocks = parts.read(values)
        if blocks.ndim != 3:
            raise parts.wrong(values, f"shape {list(blocks.shape)}", "blocks [nnzb, r, c]")
        offsets, cols = parts.index(crow), parts.index(col)
        m, k = _bsr_shape(crow, col, values)(parts)
        sides = (blocks.shape[1], blocks.shape[2])
        try:
            return BSR(blocks, Pattern((m, k), sides, offsets, cols))
        except (TypeError, ValueError) as error:
            raise parts.wrong(col, f"{error}", "the blocks of a matrix") from None

    return convert


def _bsr_shape(crow: str, col: str, values: str) -> Callable[[Parts], tuple[int, ...]]:
    def shape(parts: Parts) -> tuple[int, ...]:
        if (known := _noted_shape(parts)) is not None:
            return known
        blocks = parts.shape(values)
        if len(blocks) != 3:
            raise parts.wrong(values, f"shape {list(blocks)}", "blocks [nnzb, r, c]")
        cols = parts.index(col)
        last = int(cols.max()) if cols.numel() else 0
        return (max(parts.shape(crow)[0] - 1, 0) * blocks[1], (last + 1) * blocks[2])

    return shape


def _noted_shape(parts: Parts) -> tuple[int, int] | None:
    """The shape beside the blocks, as a tensor or as JSON in the file's metadata."""
    for suffix in (".shape", "_shape"):
        if parts.has(suffix):
            sizes = parts.index(suffix).flatten().tolist()
            if len(sizes) != 2 or min(sizes) < 0 or max(sizes) >= 2**31:
                raise parts.wrong(suffix, sizes, "two sizes")
            return sizes[0], sizes[1]
    base = parts.base.strip(".")
    for text in (parts.stored.metadata.get(key, "") for key in (base, "sparsetile")):
        try:
            noted = json.loads(text)
        except ValueError:
            continue
        if isinstance(noted, dict):
            inner = noted.get(base, noted)
            two = inner.get("shape") if isinstance(inner, dict) else None
            if isinstance(two, list) and [type(size) for size in two] == [int, int]:
                if min(two) < 0 or max(two) >= 2**31:
                    raise parts.wrong("", two, "two sizes")
                return two[0], two[1]
    return None


def _stk(parts: Parts) -> BSR:
    """STK: square blocks, int16 indices, int32 offsets."""
    blocks = parts.read(".data")
    rows = parts.index(".row_indices")
    if blocks.ndim != 3 or blocks.shape[1] != blocks.shape[2]:
        raise parts.wrong(".data", f"shape {list(blocks.shape)}", "square blocks [nnzb, b, b]")
    _check_counts(parts, ".row_indices", len(rows), len(blocks))
    try:
        found = _from_bsr(".offsets", ".column_indices", ".data")(parts)
    except ValueError as error:
        raise parts.wrong(".offsets", f"{error}", "offsets of block rows") from None
    if not torch.equal(found.pattern.row_indices.long(), rows):
        raise parts.wrong(".row_indices", "other rows than .offsets says", "the same rows")
    return found


def _pbs(parts: Parts) -> BSR:
    """pytorch_block_sparse: blocks under each other, each of them transposed."""
    data, mask = parts.read(".data"), parts.read(".block_mask")
    pairs = parts.index(".cols_a")
    if mask.ndim != 2 or mask.dtype != torch.bool:
        raise parts.wrong(".block_mask", f"{mask.dtype} {list(mask.shape)}", "a mask of blocks")
    count = int(mask.sum())
    if data.ndim != 2 or data.shape[0] != count * data.shape[1] or not data.shape[1]:
        got = f"shape {list(data.shape)} for {count} blocks"
        raise parts.wrong(".data", got, "square blocks under each other")
    if pairs.shape != (count, 2):
        got = f"shape {list(pairs.shape)}"
        raise parts.wrong(".cols_a", got, f"a column and a number for each of {count} blocks")
    at = mask.nonzero()
    number = pairs[:, 1]
    if not torch.equal(number.sort().values, torch.arange(count)):
        raise parts.wrong(".cols_a", "numbers of blocks that are not there", f"0 to {count - 1}")
    if not torch.equal(at[:, 1], pairs[:, 0]):
        raise parts.wrong(".cols_a", "other columns than .block_mask", "the same columns")
    side = data.shape[1]
    blocks = data.view(count, side, side)[number].transpose(1, 2).contiguous()
    crow = torch.nn.functional.pad(mask.sum(dim=1).cumsum(0), (1, 0))
    shape = (mask.shape[0] * side, mask.shape[1] * side)
    return BSR(blocks, Pattern(shape, side, crow, at[:, 1]))


def _pbs_shape(parts: Parts) -> tuple[int, ...]:
    mask, data = parts.shape(".block_mask"), parts.shape(".data")
    if len(mask) != 2 or len(data) != 2:
        raise parts.wrong(".block_mask", f"shape {list(mask)}", "a mask of blocks")
    return mask[0] * data[1], mask[1] * data[1]


def _bitmask(parts: Parts) -> BSR:
    """compressed-tensors: values row by row, and a bit for each element."""
    values = parts.read(".compressed").flatten()
    if values.dtype.itemsize < 2:
        raise parts.wrong(".compressed", f"{values.dtype}", "float32, float16 or bfloat16")
    m, k = _bitmask_shape(parts)
    bits = parts.read(".bitmask")
    wide = -(-k // 8)
    if bits.dtype != torch.uint8 or tuple(bits.shape) != (m, wide):
        got = f"{bits.dtype} {list(bits.shape)}"
        raise parts.wrong(".bitmask", got, f"uint8 [{m}, {wide}] for a matrix {m}×{k}")
    mask = torch.empty(m, k, dtype=torch.bool)
    weight = torch.arange(8, dtype=torch.uint8)
    for start in range(0, m, _PACKED_ROWS):
        some = bits[start : start + _PACKED_ROWS]
        spelled = (some.unsqueeze(-1) >> weight) & 1
        mask[start : start + _PACKED_ROWS] = spelled.flatten(1)[:, :k] != 0
    _check_counts(parts, ".compressed", len(values), int(mask.sum()))
    each = mask.sum(dim=1)
    if parts.has(".row_offsets"):
        if not torch.equal(parts.index(".row_offsets").flatten(), each.cumsum(0) - each):
            raise parts.wrong(".row_offsets", "other counts than .bitmask", "the same counts")
    elif 2 * int(mask.sum()) != m * k:
        raise parts.wrong(".bitmask", "more or fewer than two of four", "two kept of each four")
    if natural_blocksize(mask) > 1:
        dense = torch.zeros(m, k, dtype=values.dtype)
        dense[mask] = values
        return BSR.from_dense(dense, pattern=pattern_of(mask, natural_blocksize(mask)))
    crow = torch.nn.functional.pad(each.cumsum(0), (1, 0))
    return BSR(values.view(-1, 1, 1), Pattern((m, k), 1, crow, mask.nonzero()[:, 1]))


def _bitmask_shape(parts: Parts) -> tuple[int, int]:
    sizes = parts.index(".shape").flatten().tolist() if parts.shape(".shape") else []
    bits = parts.shape(".bitmask")
    fits = len(sizes) == 2 and len(bits) == 2 and min(sizes) >= 0
    if not fits or sizes[0] != bits[0] or -(-sizes[1] // 8) != bits[1]:
        got = f"{sizes} beside a bitmask of shape {list(bits)}"
        raise parts.wrong(".shape", got, "the two sizes of the weight")
    return sizes[0], sizes[1]


def _check_counts(parts: Parts, suffix: str, got: int, wanted: int) -> None:
    if got != wanted:
        raise parts.wrong(suffix, f"{got} numbers", f"{wanted}, as the other parts say")


def _bsr_layout(name: str, prefix: str, result: str) -> Layout:
    crow, col, values = (prefix + end for end in ("crow_indices", "col_indices", "values"))
    return Layout(
        name,
        (values, crow, col),
        _from_bsr(crow, col, values),
        _bsr_shape(crow, col, values),
        values,
        result,
        also=(".shape", "_shape"),
        exact=lambda parts: _noted_shape(parts) is not None,
    )


# In the order in which they are looked for: the more telling names first.
LAYOUTS: tuple[Layout, ...] = (
    Layout(
        "pytorch_block_sparse",
        (".data", ".block_mask", ".cols_a"),
        _pbs,
        _pbs_shape,
        ".data",
        also=(".row_start_ends_a", ".rows_b", ".col_start_ends_b", ".blocks"),
    ),
    Layout(
        "STK",
        (".data", ".row_indices", ".column_indices", ".offsets"),
        _stk,
        _bsr_shape(".offsets", ".column_indices", ".data"),
        ".data",
        also=(".column_indices_t", ".offsets_t", ".block_offsets_t", ".shape"),
        exact=lambda parts: _noted_shape(parts) is not None,
    ),
    Layout(
        "compressed-tensors sparse-bitmask",
        (".compressed", ".bitmask", ".row_offsets", ".shape"),
        _bitmask,
        _bitmask_shape,
        ".compressed",
    ),
    Layout(
        "compressed-tensors sparse-24-bitmask",
        (".compressed", ".bitmask", ".shape"),
        _bitmask,
        _bitmask_shape,
        ".compressed",
        ".weight",
    ),
    *(_bsr_layout("torchao BlockSparseTensor", f"{dot}bsr_", "") for dot in (".", "_", ":")),
    _bsr_layout("sparsetile", ".", ".weight"),
    Layout(
        "torch.ao.pruning",
        (".parametrizations.weight.original", ".parametrizations.weight.0.mask"),
        _from_mask(".parametrizations.weight.original", ".parametrizations.weight.0.mask"),
        _shape_of(".parametrizations.weight.original"),
        ".parametrizations.weight.original",
        ".weight",
    ),
    Layout(
        "torch.nn.utils.prune", ("_orig", "_mask"), _from_mask("_orig", "_mask"),
        _shape_of("_orig"), "_orig",
    ),
    Layout(
        "mask buffers", (".weight", ".weight_mask"), _from_mask(".weight", ".weight_mask"),
        _shape_of(".weight"), ".weight", ".weight",
    ),
    Layout(
        "mask buffers", (".weight", ".mask"), _from_mask(".weight", ".mask"),
        _shape_of(".weight"), ".weight", ".weight",
    ),
)  # fmt: skip
