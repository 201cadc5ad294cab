"""Plans products whose pattern changes."""

import logging
import math
from dataclasses import replace
from functools import lru_cache

from sparsetile.machine import MachineSpec, load_machine
from sparsetile.matrix._check import as_blocksize
from sparsetile.plan._check import (
    PlanError,
    check_density,
    check_dtype,
    check_flag,
    check_share,
    check_size,
    check_sizes,
)
from sparsetile.plan._cost import Cost, Term
from sparsetile.plan.dynamic._added import (
    REARRANGE,
    SUPERSTEPS,
    SYNC,
    UNEVEN,
    rearrangement,
    uneven_parts,
    zeroing,
)
from sparsetile.plan.dynamic._case import Case, bucket_meta, bucket_values
from sparsetile.plan.dynamic._estimate import MULTIPLY, Phase
from sparsetile.plan.dynamic._plan import PROGRAMS, DynamicOptions, DynamicPlan
from sparsetile.plan.dynamic._search import Found, candidates, search
from sparsetile.plan.dynamic._vertex_sum import zero_partials_planned

_log = logging.getLogger(__name__)


def plan_dynamic(
    m: int,
    k: int,
    n: int,
    *,
    density: float | None = None,
    max_blocks: int | None = None,
    blocksize: int | tuple[int, int] = 1,
    dtype: str = "float16",
    machine: MachineSpec | str = "bow-ipu",
    options: DynamicOptions | None = None,
) -> DynamicPlan:
    """Plan products of sparse matrices of a shape and a density with dense ones.

    The pattern is not known; any that stores no more blocks can be encoded for the plan. Searches
    for the cheapest way to cut rows, columns and batch into equal parts, for all planned passes
    together, as the dynamic planner of PopSparse (arXiv 2303.16999) does. If no partition fits the
    memory, twice as much is allowed, with a warning, and so on; at last any. Plans are kept: asking
    again for the same one costs nothing.

    Args:
        m: Rows of the sparse operand.
        k: Columns of the sparse operand.
        n: Columns of the dense operand, k×n.
        density: Most stored blocks over all blocks; give this or `max_blocks`.
        max_blocks: Most stored blocks.
        blocksize: Side of a square block or `(r, c)`.
        dtype: `"float16"` or `"float32"`, of operands and results.
        machine: A machine, the name of a preset, or a TOML file that describes one.
        options: What else is asked for.

    Returns:
        The plan, with what each pass is expected to cost.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.
        PlanError: If a fixed partition is impossible.

    Examples:
        >>> plan = plan_dynamic(4096, 4096, 1024, density=1 / 16, blocksize=16)
        >>> plan.x, plan.y, plan.z
        (8, 11, 16)
    """
    spec = load_machine(machine)
    m, k, n = check_sizes("plan_dynamic", m, k, n)
    check_dtype("plan_dynamic", dtype)
    block = as_blocksize(blocksize)
    if m % block[0] or k % block[1]:
        raise ValueError(
            f"plan_dynamic got a {m}×{k} matrix in blocks of {block[0]}×{block[1]}; its buckets "
            "hold whole blocks: give sizes that are multiples of the block, or smaller blocks"
        )
    grid = -(-m // block[0]), -(-k // block[1])
    stored = _stored(grid, density, max_blocks)
    asked = _checked(DynamicOptions() if options is None else options, dtype, block)
    return _planned(m, k, n, block, stored, dtype, spec, asked)


def _stored(grid: tuple[int, int], density: float | None, max_blocks: int | None) -> int:
    whole = grid[0] * grid[1]
    if (density is None) == (max_blocks is None):
        raise ValueError(
            f"plan_dynamic got density={density} and max_blocks={max_blocks}; give one of them"
        )
    if density is not None:
        check_density("plan_dynamic", density)
        return min(whole, math.ceil(density * whole))
    assert max_blocks is not None
    max_blocks = check_size("plan_dynamic", "max_blocks", max_blocks, least=0)
    if not 0 <= max_blocks <= whole:
        raise ValueError(
            f"plan_dynamic got max_blocks={max_blocks}; the matrix has {whole} blocks: "
            f"give 0 to {whole}"
        )
    return max_blocks


def _checked(options: DynamicOptions, dtype: str, block: tuple[int, int]) -> DynamicOptions:
    if not isinstance(options, DynamicOptions):
        raise TypeError(f"plan_dynamic got options {options!r:.80}; give DynamicOptions(...)")
    check_share("plan_dynamic", "memory", options.memory, above=PROGRAMS)
    if options.oversize != 0 or isinstance(options.oversize, bool):
        check_share("plan_dynamic", "oversize", options.oversize, most=1e6)
    for name in ("shared_buckets", "grad_a", "grad_w", "optimise_for_speed", "force_spills"):
        check_flag("plan_dynamic", name, getattr(options, name))
    if options.exchange_buckets is not None:
        check_flag("plan_dynamic", "exchange_buckets", options.exchange_buckets)
    check_dtype("plan_dynamic, for partials,", options.partials)
    for name in ("x", "y", "z"):
        if getattr(options, name) is not None:
            check_size("plan_dynamic", name, getattr(options, name))
    if options.partials == "float16" and (dtype == "float32" or block == (1, 1)):
        why = "of float32 operands" if dtype == "float32" else "of single numbers"
        _log.warning("partial sums %s are float32; partials='float16' is not used", why)
        return replace(options, partials="float32")
    return options


@lru_cache(maxsize=128)
def _planned(
    m: int,
    k: int,
    n: int,
    block: tuple[int, int],
    stored: int,
    dtype: str,
    machine: MachineSpec,
    options: DynamicOptions,
) -> DynamicPlan:
    kernel = kernel_block(block, dtype)
    grid = -(-m // kernel[0]), -(-k // kernel[1])
    blocks = min(stored * (block[0] // kernel[0]) * (block[1] // kernel[1]), grid[0] * grid[1])
    x, y, z, rows, columns, z_size = candidates(grid, n, kernel == (1, 1), dtype, machine, options)
    if not len(x):
        raise PlanError(
            f"plan_dynamic got partitions x={options.x}, y={options.y}, z={options.z} for "
            f"{machine.tiles} tiles; their product must not be larger, and z must be at most the "
            "number of batch columns: leave one to be searched"
        )
    case = Case(
        machine=machine,
        dtype=dtype,
        options=options,
        block=kernel,
        density=blocks / max(grid[0] * grid[1], 1),
        blocks=blocks,
        amp_grad_w=False,
        x=x,
        y=y,
        z=z,
        rows=rows,
        columns=columns,
        z_size=z_size,
    )
    found = _within_memory([case, *_amp(case, n)])
    return _plan(m, k, n, block, found)


def kernel_block(blocksize: tuple[int, int], dtype: str) -> tuple[int, int]:
    """Blocks on which the kernels work: the largest square one that divides a square block.

    Args:
        blocksize: Rows and columns of a block.
        dtype: `"float16"`, with kernels for 4, 8 and 16, or `"float32"`, for 4 and 8.

    Returns:
        Rows and columns; blocks that are not square, or that no kernel divides, stay as they are.

    Examples:
        >>> kernel_block((16, 16), "float32"), kernel_block((4, 8), "float16")
        ((8, 8), (4, 8))
    """
    r, c = blocksize
    sides = (16, 8, 4) if dtype == "float16" else (8, 4)
    fits = [side for side in sides if r == c and r % side == 0]
    return (fits[0], fits[0]) if fits else blocksize


def _amp(case: Case, n: int) -> list[Case]:
    """The same product with the gradient of the weight on the multiplying unit, if it can be."""
    grain = 16 if case.dtype == "float16" else 8
    if not case.options.grad_w or n % grain or any(side % 4 for side in case.block):
        return []
    whole = case.z_size % grain == 0
    axes = ("x", "y", "z", "rows", "columns", "z_size")
    return [replace(case, amp_grad_w=True, **{axis: getattr(case, axis)[whole] for axis in axes})]


def _within_memory(cases: list[Case]) -> Found:
    """The cheapest partition in the memory allowed; if none, in twice that, with a warning."""
    machine, share = cases[0].machine, cases[0].options.memory
    while True:
        found = [f for case in cases if (f := search(case, share * machine.memory_per_tile))]
        if found:
            return min(found, key=lambda f: f.cycles)
        if math.isinf(share):
            raise PlanError(
                f"plan_dynamic found no partition whose offsets fit into 16 bits on "
                f"{machine.name}; take fewer columns at a time, or larger blocks"
            )
        larger = math.inf if share >= 1 else share * 2
        _log.warning(
            "no partition fits %g of a tile's memory; allowing %s",
            share,
            "any" if math.isinf(larger) else f"{larger:g}",
        )
        share = larger


def _plan(m: int, k: int, n: int, block: tuple[int, int], found: Found) -> DynamicPlan:
    case = found.case
    one = {axis: int(getattr(case, axis)[0]) for axis in ("x", "y", "z", "rows", "columns")}
    separate = not case.is_block and case.options.grad_a and not case.options.shared_buckets
    if case.is_block:
        last = "GradWAMPBlock" if case.amp_grad_w else "GradWBlock"
        methods = ("ForwardAMPBlock", "TransposeAMPBlock", last)
    else:
        methods = ("Forward", "GradA" if separate else "Transpose", "GradW")
    return DynamicPlan(
        machine=case.machine,
        m=m,
        k=k,
        n=n,
        blocksize=block,
        kernel_block=case.block,
        max_blocks=case.blocks,
        dtype=case.dtype,
        options=case.options,
        x=one["x"],
        y=one["y"],
        z=one["z"],
        x_size=one["rows"] * case.block[0],
        y_size=one["columns"] * case.block[1],
        z_size=int(case.z_size[0]),
        methods=methods,
        exchange_buckets=found.exchange_buckets,
        bucket_values=int(bucket_values(case)[0]),
        bucket_meta=int(bucket_meta(case)[0]),
        bucket_meta_grad_a=int(bucket_meta(case, grad_a=True)[0]) if separate else 0,
        costs=tuple(
            (name, _cost(case, name, phases, m, k, n)) for name, phases in found.passes.items()
        ),
    )


def _cost(case: Case, name: str, phases: dict[str, Phase], m: int, k: int, n: int) -> Cost:
    """The planner's phases, and those it leaves out."""
    r, c = case.block
    if name == "grad_w":
        sums, moved = int(bucket_values(case)[0]), (m + k) * n
    else:
        turned = name == "grad_a"
        made = case.columns * c if turned else case.rows * r
        sums, moved = int((made * case.z_size)[0]), (m if turned else k) * n
    cycles = {phase: float(p.cycles[0]) for phase, p in phases.items()}
    bytes_ = {phase: math.ceil(p.bytes[0]) for phase, p in phases.items()}
    zeroed = float(zero_partials_planned(sums, case.machine.workers))
    added = {
        UNEVEN: uneven_parts(case, cycles[MULTIPLY] - zeroed),
        REARRANGE: rearrangement(moved, case.dtype, case.machine),
        SYNC: float(SUPERSTEPS * case.machine.sync_cycles),
    }
    cycles[MULTIPLY] += zeroing(case, sums)
    return Cost(
        tuple(Term(phase, cycles[phase], bytes_[phase]) for phase in cycles)
        + tuple(Term(phase, extra) for phase, extra in added.items())
    )
