"""Plans for products with a mask of blocks."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from jaxtyping import Int64

from sparsetile.machine import MachineSpec, load_machine
from sparsetile.matrix import Pattern
from sparsetile.matrix._check import as_choice, as_int, message
from sparsetile.plan._cost import Cost
from sparsetile.plan._units import up
from sparsetile.plan.masked._check import GRAIN, as_patterns, check_blocks, check_dtypes
from sparsetile.plan.masked._load import Load, pass_cost, score, total
from sparsetile.plan.masked._place import Placement, place, placements
from sparsetile.plan.masked._plan import METHODS, SUB_BLOCKS, Indices, MaskedPlan
from sparsetile.plan.masked._products import products

Pairs = Int64[np.ndarray, " pairs"]

# How much more cuts across rows and across the inner dimension are charged than they cost at once.
_CHARGES = ((1, 1), (4, 1), (16, 1), (1, 4), (4, 4), (16, 16))


def plan_dsd(
    machine: MachineSpec | str,
    patterns: Pattern | Sequence[Pattern],
    m: int,
    *,
    dtype: str = "float16",
    partials: str = "float32",
    block: int | None = None,
    transposed: bool = False,
    method: str = "strip",
    passes: int = 1,
    memory_cycle_ratio: float = 0.2,
) -> MaskedPlan:
    """Plan a product dense × sparse → dense on tiles.

    Groups are products of one size with a mask each, computed together. Blocks must be what
    matrix units take whole: multiples of 16 for float16 and of 8 for float32, as in popsparse.

    Args:
        machine: A machine, the name of a preset, or a TOML file that describes one.
        patterns: Stored blocks of the right operand, k×n, or n×k if it is transposed; one pattern,
            or one for each group.
        m: Rows of the left operand, of one group.
        dtype: `"float16"` or `"float32"`, of operands and result.
        partials: Dtype of partial sums, at least as precise.
        block: Rows of a block of the left operand; if None, as many as the sparse blocks have
            along k if these divide m, else the least that is allowed.
        transposed: Whether the sparse operand is multiplied as its transpose.
        method: How block products are dealt to tiles. `"strip"`: contiguous strips of the product,
            cut so that cycles and memory are least; `"block"`: by halving, each cut where least is
            held twice; `"block-naive"`: the largest first to the idlest tile.
        passes: Bands of rows computed one after the other, to need less memory; one group only.
        memory_cycle_ratio: Weight of memory against cycles, 0 to 1; `"block-naive"` has no use
            for it.

    Returns:
        The plan; the same one when asked again.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If arguments do not fit each other, or name no method.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import random_pattern
        >>> pattern = random_pattern(256, 128, blocksize=16, density=0.25, seed=0)
        >>> plan = plan_dsd(preset("bow-ipu"), pattern, 64)
        >>> plan.block, plan.cost.cycles > 0
        ((16, 16, 16), True)
    """
    groups = as_patterns(patterns)
    (k, n), (bk, bn) = groups[0].shape, groups[0].blocksize
    if transposed:
        (k, n), (bk, bn) = (n, k), (bn, bk)
    m = as_int("m", m, least=1, fix="pass the rows of the left operand")
    bm = _side("block", block, bk, m, dtype)
    shape, sides = (m, k, n), (bm, bk, bn)
    more = (dtype, partials, transposed, "none", method, passes, memory_cycle_ratio)
    return _checked(machine, "dsd", groups, shape, sides, *more)


def plan_dds(
    machine: MachineSpec | str,
    patterns: Pattern | Sequence[Pattern],
    k: int,
    *,
    dtype: str = "float16",
    partials: str = "float32",
    block: int | None = None,
    transposed: bool = False,
    sub_block: str = "none",
    method: str = "strip",
    passes: int = 1,
    memory_cycle_ratio: float = 0.2,
) -> MaskedPlan:
    """Plan a product dense × dense → sparse on tiles: only the blocks of a mask are computed.

    Args:
        machine: A machine, the name of a preset, or a TOML file that describes one.
        patterns: Stored blocks of the result, m×n; one pattern, or one for each group.
        k: Columns of the left operand.
        dtype: `"float16"` or `"float32"`, of operands and result.
        partials: Dtype of partial sums, at least as precise.
        block: Columns of a block of the left operand; if None, as many as the result's blocks have
            if these divide k, else the least that is allowed.
        transposed: Whether the right operand is given as n×k, as keys are in attention.
        sub_block: What is zeroed within blocks on the diagonal: `"none"`, `"zero_upper"` for what
            lies right of the diagonal, `"zero_lower"` for what lies left of it.
        method: As in `plan_dsd`.
        passes: As in `plan_dsd`.
        memory_cycle_ratio: As in `plan_dsd`.

    Returns:
        The plan; the same one when asked again.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If arguments do not fit each other, or name no method.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import causal_pattern
        >>> pattern = causal_pattern(64, 64, blocksize=16)
        >>> plan_dds(preset("bow-ipu"), pattern, 32, sub_block="zero_upper").grid
        (4, 2, 4)
    """
    groups = as_patterns(patterns)
    (m, n), (bm, bn) = groups[0].shape, groups[0].blocksize
    k = as_int("k", k, least=1, fix="pass the columns of the left operand")
    bk = _side("block", block, bn, k, dtype)
    shape, sides = (m, k, n), (bm, bk, bn)
    more = (dtype, partials, transposed, sub_block, method, passes, memory_cycle_ratio)
    return _checked(machine, "dds", groups, shape, sides, *more)


def _side(name: str, given: int | None, natural: int, size: int, dtype: str) -> int:
    if given is None:
        return natural if size % natural == 0 else GRAIN.get(dtype, 1)
    return as_int(name, given, least=1, fix="pass the side of a block, or None")


def _checked(
    machine: MachineSpec | str,
    kind: str,
    patterns: tuple[Pattern, ...],
    shape: tuple[int, int, int],
    block: tuple[int, int, int],
    dtype: str,
    partials: str,
    transposed: bool,
    sub_block: str,
    method: str,
    passes: int,
    memory_cycle_ratio: float,
) -> MaskedPlan:
    check_dtypes(dtype, partials)
    check_blocks(shape, block, dtype)
    as_choice("method", method, METHODS)
    as_choice("sub_block", sub_block, SUB_BLOCKS)
    most = shape[0] // block[0]
    fix = "pass 1, or at most the number of block rows"
    passes = as_int("passes", passes, least=1, most=most, fix=fix)
    if passes > 1 and len(patterns) > 1:
        raise ValueError(
            message(
                "passes",
                got=f"{passes} with {len(patterns)} groups",
                allowed="more than one pass for one group only",
                fix="pass passes=1, or plan the groups one by one",
            )
        )
    number = isinstance(memory_cycle_ratio, int | float)
    if not number or not 0 <= memory_cycle_ratio <= 1:
        raise ValueError(
            message(
                "memory_cycle_ratio",
                got=memory_cycle_ratio,
                allowed="0 for cycles alone to 1 for memory alone",
                fix="pass 0.2 if unsure",
            )
        )
    plan = MaskedPlan(
        machine=load_machine(machine),
        kind=kind,
        patterns=patterns,
        m=shape[0],
        k=shape[1],
        n=shape[2],
        block=block,
        dtype=dtype,
        partials=partials,
        transposed=bool(transposed),
        sub_block=sub_block,
        method=method,
        passes=passes,
        memory_cycle_ratio=float(memory_cycle_ratio),
    )
    return _completed(plan)


@lru_cache(maxsize=64)
def _completed(plan: MaskedPlan) -> MaskedPlan:
    if plan.method == "strip":
        plan = replace(plan, cuts=tuple(_best_strips(plan, band) for band in plan.bands))
    elif plan.method == "block":
        plan = replace(plan, cuts=tuple(_best_charge(plan, i) for i in range(plan.passes)))
    return replace(plan, cost=total([_pass_cost(plan, part) for part in placements(plan)]))


def _pass_cost(plan: MaskedPlan, part: Placement) -> Cost:
    return pass_cost(part.load(plan.machine.tiles), plan)


def _best_charge(plan: MaskedPlan, number: int) -> tuple[int, int]:
    """What to charge for cuts so that a pass that is halved until tiles run out costs least."""

    def cost(charge: tuple[int, int]) -> float:
        tried = replace(plan, cuts=(charge,) * plan.passes)
        return score(_pass_cost(tried, place(tried, number)), tried)

    return min(_CHARGES, key=cost)


def _best_strips(plan: MaskedPlan, band: tuple[int, int]) -> tuple[int, int]:
    """The strips of least cost: every number of parts along one dimension, the other to match."""
    work = products(plan, band)
    free, many = work.shape
    if not work.size:
        return (1, 1)
    axes = ("row", "inner", "column")
    outer = {axis: getattr(work, axis).reshape(free, many)[0] for axis in axes}
    tiles = plan.machine.tiles
    most = min(free, tiles)
    # Few parts of many sizes; many parts differ little from their neighbours.
    tried = np.unique(np.round(2.0 ** np.arange(0, np.log2(most) + 0.25, 0.25)).astype(int))
    choices = [(int(x), min(tiles // int(x), many)) for x in tried if x <= most]

    def cost(strips: tuple[int, int]) -> tuple[float, int]:
        load = _strip_load(plan, outer, free, strips)
        return score(pass_cost(load, plan), plan), strips[0] * strips[1]

    return min(choices, key=cost)


def _strip_load(
    plan: MaskedPlan, outer: dict[str, Indices], free: int, strips: tuple[int, int]
) -> Load:
    """What a tile of each strip has to do, of those with most; sums are added evenly by all."""
    (x, y), many = strips, len(outer["row"])
    strip = np.arange(many) * y // many
    high = int(up(free, x))
    size = np.bincount(strip, minlength=y)
    row, inner, column = (_distinct(strip, outer[axis]) for axis in ("row", "inner", "column"))
    if plan.kind == "dsd":
        in_strip, block = column
        # Columns that several strips share.
        depth = np.bincount(block)
        shared = depth[block] > 1
        left, right = np.bincount(inner[0], minlength=y) * high, size
        partial = np.bincount(in_strip, minlength=y) * high
        sent = np.bincount(in_strip[shared], minlength=y) * high
        sums, added = int(shared.sum()) * free, int((depth > 1).sum()) * free
    else:
        left, right = (np.bincount(pairs[0], minlength=y) * high for pairs in (row, column))
        partial, sent = size, size * (x > 1)
        sums, added = many * x * (x > 1), many * (x > 1)
    tiles = plan.machine.tiles
    each = np.ones(y, np.int64)
    return Load(
        products=size * high,
        left=left,
        right=right,
        partial=partial,
        sent=sent,
        received=each * up(sums, tiles),
        sums=each * up(sums, tiles),
        added=each * up(added, tiles),
        cast=partial - sent,
    )


def _distinct(strip: Indices, block: Indices) -> tuple[Pairs, Pairs]:
    """Each pair of a strip and a block in it, once."""
    width = int(block.max()) + 1
    pairs = np.unique(strip * width + block)
    return pairs // width, pairs % width
