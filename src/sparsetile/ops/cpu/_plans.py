"""Finding the plan of a product or a sampling: made once per pattern, found again in a moment."""

import weakref
from typing import NamedTuple

import torch
from torch import Tensor

from sparsetile.ops.cpu._amx_outer_plan import AmxOuterPlan
from sparsetile.ops.cpu._amx_plan import AmxPlan, fills_tiles
from sparsetile.ops.cpu._decode_plan import MOST_COLUMNS, DecodePlan
from sparsetile.ops.cpu._dot_plan import DotPlan
from sparsetile.ops.cpu._index import Index, index_of
from sparsetile.ops.cpu._isa import host
from sparsetile.ops.cpu._memo import TensorMemo
from sparsetile.ops.cpu._number import numbers_of
from sparsetile.ops.cpu._outer_plan import OuterPlan
from sparsetile.ops.cpu._panel_plan import PanelPlan
from sparsetile.ops.cpu._product import ProductPlan
from sparsetile.ops.cpu._sample import SamplePlan
from sparsetile.ops.cpu._sliced_plan import SlicedPlan, is_few

Size = tuple[int, int]

_indexes: TensorMemo[Index] = TensorMemo(most=512)
_products: TensorMemo[ProductPlan | DecodePlan] = TensorMemo(most=512)
_samples: TensorMemo[SamplePlan] = TensorMemo(most=512)


# Rows of a block from which the panel kernel makes enough of each row of the panel; more for the
# transpose, whose small blocks lie scattered. Below, it is better only for very wide blocks.
_ROWS, _ROWS_OF_TRANSPOSE, _INNER = 4, 8, 32
_TILE_ROWS = 16  # of a matrix tile


class Found(NamedTuple):
    """A plan, and the name of its kernel; no plan where no block is stored."""

    plan: ProductPlan | DecodePlan | None
    name: str
    ragged: bool  # blocks hold padding that the product meets


class _Recent(NamedTuple):
    """What was found for a call, valid as long as both tensors are the same, unchanged."""

    crow: "weakref.ref[Tensor]"
    col: "weakref.ref[Tensor]"
    versions: tuple[int, int]
    found: Found


# In front of the memo, which asks more: one entry for each way that a pattern is used.
_recent: dict[object, _Recent] = {}
_MOST_RECENT = 1024
_gone: list[object] = []  # entries whose tensors went since the last product


def find_product(
    op: str,
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    dtype: torch.dtype,
    shape: Size,
    transpose: bool,
    columns: int,
    in_lines: bool,
) -> Found:
    """Find the plan of a product by W, or by Wᵀ, with so many columns of the given format.

    ``in_lines`` tells that columns are contiguous, those of the result too.
    """
    if _gone:
        _gone.clear()
        for memo in (_products, _samples, _indexes):
            memo.forget_dead()
    # sorts numbers of columns into those that get the same plan: one, a few to decode, more
    if in_lines and columns <= MOST_COLUMNS:
        reach = 0 if columns == 1 else 1
    else:
        reach = 2 if is_few(columns) else 3
    stored = values.dtype
    key = (id(crow), id(col), values.shape, dtype, stored, shape, transpose, reach, op)
    recent = _recent.get(key)
    if (
        recent is not None
        and recent.crow() is crow
        and recent.col() is col
        and recent.versions == (crow._version, col._version)
    ):
        return recent.found
    _, r, c = values.shape
    dtypes = (dtype, stored)
    found = _find_product(op, (r, c), crow, col, dtypes, shape, transpose, columns, reach)
    if not (crow.is_inference() or col.is_inference()):
        if len(_recent) >= _MOST_RECENT:
            _recent.clear()
        versions = (crow._version, col._version)

        def forget(_: object) -> None:
            _recent.pop(key, None)
            _gone.append(key)

        _recent[key] = _Recent(weakref.ref(crow, forget), weakref.ref(col, forget), versions, found)
    return found


def _find_product(
    op: str,
    stored: Size,
    crow: Tensor,
    col: Tensor,
    dtypes: tuple[torch.dtype, torch.dtype],
    shape: Size,
    transpose: bool,
    columns: int,
    reach: int,
) -> Found:
    block, matrix = (stored[::-1], shape[::-1]) if transpose else (stored, shape)
    tiles = fills_tiles(host(), block, dtypes)
    decode = reach <= 1 and not transpose
    if decode and tiles:  # measured: from two columns on, whole tiles win
        decode, tiles = (False, True) if reach == 1 and block[0] >= _TILE_ROWS else (True, False)
    numbers = numbers_of(host(), *dtypes, inner=block[1], tiles=tiles)
    way = "_t" if transpose else ""
    name = f"cpu:{op}_{numbers.name}_b{stored[0]}x{stored[1]}{way}"
    if len(col) == 0:
        return Found(None, f"{name}/empty", False)
    rows = _ROWS_OF_TRANSPOSE if transpose else _ROWS
    sliced = block[0] < rows and block[1] <= _INNER

    def make() -> ProductPlan | DecodePlan:
        index = _index(crow, col, -(-shape[1] // stored[1]), transpose=transpose)
        if decode:
            return DecodePlan(index, block, matrix, numbers)
        if sliced:
            return SlicedPlan(index, block, matrix, transpose, numbers, columns)
        if tiles:
            return AmxPlan(index, block, matrix, transpose, numbers)
        return PanelPlan(index, block, matrix, transpose, numbers)

    kind = "decode" if decode else "few" if sliced and is_few(columns) else ""
    plan = _products.get((crow, col), (stored, shape, transpose, dtypes, kind), make)
    return Found(plan, f"{name}/{_kind(plan)}", matrix[1] % block[1] != 0)


def find_sample(
    crow: Tensor, col: Tensor, blocksize: Size, shape: Size, dtype: torch.dtype
) -> tuple[SamplePlan | None, str]:
    """Find the plan of sampling at a pattern, and the name of its kernel."""
    r, c = blocksize
    by_dots, tiles = r * c in (1, 2, 4), fills_tiles(host(), blocksize, {dtype})
    numbers = numbers_of(host(), dtype, dtype, inner=1 if by_dots else 2, tiles=tiles)
    name = f"cpu:sddmm_{numbers.name}_b{r}x{c}"
    if len(col) == 0:
        return None, f"{name}/empty"

    def make() -> SamplePlan:
        index = _index(crow, col, -(-shape[1] // c), transpose=False)
        family = DotPlan if by_dots else AmxOuterPlan if tiles else OuterPlan
        return family(index, blocksize, shape, numbers)

    plan = _samples.get((crow, col), (blocksize, shape, dtype), make)
    return plan, f"{name}/{_kind(plan)}"


def _index(crow: Tensor, col: Tensor, block_columns: int, *, transpose: bool) -> Index:
    return _indexes.get(
        (crow, col),
        (block_columns, transpose),
        lambda: index_of(crow, col, block_columns, transpose=transpose),
    )


def _kind(plan: object) -> str:
    name = type(plan).__name__.removesuffix("Plan")
    return "amx" if name.startswith("Amx") else name.lower()
