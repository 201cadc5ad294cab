"""The programs of an embedding whose table is a sparse weight."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Int64, Shaped

from sparsetile.machine import (
    Codelet,
    Compute,
    Exchange,
    Memory,
    Program,
    Repeat,
    Step,
    Variable,
)
from sparsetile.plan.dynamic._embedding_cycles import apply_cycles, slice_cycles, update_cycles
from sparsetile.plan.dynamic._embedding_layout import Chunks
from sparsetile.plan.dynamic._embedding_rows import PADDING, Hits, Reader, Table
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._program import TRAVEL, bucket, on_tile
from sparsetile.plan.dynamic._propagate import Control, control, read_overflow
from sparsetile.plan.dynamic._reduce import zero
from sparsetile.plan.dynamic._spread import coordinates, runs, tile_variable

_CONTROL = 10  # instructions that read how far buckets travel

_Tiles = Int64[np.ndarray, " tiles"]
_Cycles = Callable[[DynamicPlan, _Tiles, _Tiles, _Tiles, _Tiles, Hits], _Tiles]


@dataclass(frozen=True, eq=False)
class EmbeddingProgram:
    """A program of a plan for some number of indices, whatever the pattern.

    Attributes:
        chunks: How indices and rows lie.
        program: The program.
        inputs: Its inputs by name: `"meta"`, `"values"`, `"indices"`, for an update also `"slices"`
            and `"scale"`, and `"overflow"` where there are several column partitions.
        output: The rows, or the new values of the buckets.
    """

    chunks: Chunks
    program: Program
    inputs: dict[str, Variable]
    output: Variable


@lru_cache(maxsize=16)
def slice_program(plan: DynamicPlan, count: int) -> EmbeddingProgram:
    """The program that copies rows out of the table.

    The rows stay where they are wanted and the buckets travel: round all tiles of their column
    partition, which are always as many; and, as often as something has spilled so far, on to the
    next column partition and round again.

    Args:
        plan: The plan of the weight.
        count: Number of indices.

    Returns:
        The program.
    """
    chunks, steer = Chunks(plan, count), control(plan)
    stored = bucket(plan, "bucket", plan.bucket_meta, plan.dtype, persistent=True)
    travelling = bucket(plan, "travelling bucket", plan.bucket_meta, plan.dtype)
    home, indices, rows = chunks.indices_home(), chunks.indices(), chunks.rows("rows")
    ring, column = chunks.next_in_ring(TRAVEL), chunks.next_column(TRAVEL)
    reader, (_, iy, _) = Reader(plan, (ring, column)), coordinates(plan)

    def look(memory: Memory) -> tuple[Table, _Tiles, _Tiles]:
        meta = memory[travelling.meta].reshape(plan.tiles, -1)
        return (*reader.read(meta), iy)

    def run(memory: Memory) -> None:
        hits = _found(chunks, look(memory), memory[indices])
        values = memory[travelling.values].reshape(plan.tiles, -1)
        out = memory[rows].reshape(plan.tiles, chunks.size, chunks.width)
        for j in range(plan.kernel_block[1]):
            taken = values[hits.block_tile, hits.value + j]
            out[hits.block_tile, hits.block_at, hits.column + j] = taken

    reads = (*travelling.variables, indices, rows)
    cycles = _counted(chunks, look, indices, slice_cycles)
    compute = Compute("Slice compute", (Codelet("Slice", run, cycles, reads, (rows,)),))
    begin = tuple(
        on_tile(plan, a, b) for a, b in zip(stored.variables, travelling.variables, strict=True)
    )
    inputs = {"meta": stored.meta, "values": stored.values, "indices": home}
    steps: tuple[Step, ...] = (
        Exchange("Distribution exchange", (chunks.broadcast(home, indices), *begin)),
        zero(plan, rows),
        *_circulate(
            chunks, steer, compute, TRAVEL, travelling.variables, travelling.variables, inputs
        ),
    )
    return _program(f"embedding slice of {count}", chunks, steps, inputs, rows)


@lru_cache(maxsize=16)
def update_program(plan: DynamicPlan, count: int) -> EmbeddingProgram:
    """The program that adds scaled rows to the table.

    The buckets stay, and with them float32 sums for their numbers. Rows travel with their indices
    and the number of their column partition, the other way round than buckets would.

    Args:
        plan: The plan of the weight.
        count: Number of indices.

    Returns:
        The program.
    """
    chunks, steer = Chunks(plan, count), control(plan)
    stored = bucket(plan, "bucket", plan.bucket_meta, plan.dtype, persistent=True)
    given, home = chunks.rows("slices"), chunks.indices_home()
    rows, indices = chunks.rows("travelling slices"), chunks.indices()
    part = tile_variable(plan, "column partition", "uint16", 1)
    sums = tile_variable(plan, "sums", "float32", plan.bucket_values)
    scale_home, scale = _on_last_tile(plan, "scale"), tile_variable(plan, "factor", "float32", 1)
    reader = Reader(plan, ())

    def look(memory: Memory) -> tuple[Table, _Tiles, _Tiles]:
        table, held = reader.read(memory[stored.meta].reshape(plan.tiles, -1))
        return table, held, memory[part].astype(np.int64)

    def run(memory: Memory) -> None:
        hits = _found(chunks, look(memory), memory[indices])
        slices = memory[rows].reshape(plan.tiles, chunks.size, chunks.width)
        begin = hits.block_tile * plan.bucket_values + hits.value
        for j in range(plan.kernel_block[1]):
            added = slices[hits.block_tile, hits.block_at, hits.column + j]
            np.add.at(memory[sums], begin + j, added.astype(np.float32))

    reads = (stored.meta, rows, indices, part, sums)
    cycles = _counted(chunks, look, indices, update_cycles)
    compute = Compute("Update compute", (Codelet("Update", run, cycles, reads, (sums,)),))
    inputs = {
        "meta": stored.meta,
        "values": stored.values,
        "indices": home,
        "slices": given,
        "scale": scale_home,
    }
    factor = runs(scale_home, scale, np.zeros(1, np.int64), np.arange(plan.tiles), 1)
    copies = (chunks.broadcast(home, indices), on_tile(plan, given, rows), factor)
    steps: tuple[Step, ...] = (
        Exchange("Distribution exchange", copies),
        Compute("Zero partials", (*zero(plan, sums).codelets, _number(plan, part))),
        # All column partitions have the same indices in the same places.
        *_circulate(chunks, steer, compute, -TRAVEL, (rows, indices), (rows, part), inputs),
        _apply(plan, sums, scale, stored.values),
    )
    return _program(f"embedding update of {count}", chunks, steps, inputs, stored.values)


def _circulate(
    chunks: Chunks,
    steer: Control,
    compute: Compute,
    by: int,
    in_ring: tuple[Variable, ...],
    in_columns: tuple[Variable, ...],
    inputs: dict[str, Variable],
) -> tuple[Step, ...]:
    """Compute on what comes by: all round a column partition, then all round the next ones."""
    plan = chunks.plan
    turn: tuple[Step, ...] = (compute,)
    if chunks.ring > 1:
        copies = chunks.move(chunks.next_in_ring(by), *in_ring)
        shift = Exchange("Distribution exchange of a turn", copies)
        turn = (compute, Repeat(chunks.ring - 1, (shift, compute)))
    if plan.y == 1:
        return turn
    inputs["overflow"] = steer.overflow

    def read(memory: Memory) -> None:
        _, y_end, _ = read_overflow(memory[steer.overflow], plan)
        memory[steer.y_turns][:] = y_end - 1

    cycles = np.zeros(plan.machine.tiles, np.int64)
    cycles[-1] = _CONTROL * plan.machine.workers
    reads, writes = (steer.overflow,), (steer.y_turns,)
    start = Compute("Propagation control", (Codelet("control", read, cycles, reads, writes),))
    copies = chunks.move(chunks.next_column(by), *in_columns)
    onward = (Exchange("Propagation exchange", copies), *turn)
    return (start, *turn, Repeat(steer.y_turns, onward))


def _found(
    chunks: Chunks,
    looked: tuple[Table, _Tiles, _Tiles],
    indices: Shaped[np.ndarray, " n"],
) -> Hits:
    table, held, iy = looked
    return table.find(held, iy, indices.reshape(chunks.plan.tiles, -1))


def _counted(
    chunks: Chunks,
    look: Callable[[Memory], tuple[Table, _Tiles, _Tiles]],
    indices: Variable,
    cycles: _Cycles,
) -> Callable[[Memory], _Tiles]:
    """A function that counts cycles of all tiles of the machine."""
    plan = chunks.plan

    def counted(memory: Memory) -> _Tiles:
        looked = look(memory)
        table, held, iy = looked
        own, rows = table.own(held, iy)
        asked = (memory[indices].reshape(plan.tiles, -1) != PADDING).sum(1)
        hits = _found(chunks, looked, memory[indices])
        all_tiles = np.zeros(plan.machine.tiles, np.int64)
        all_tiles[: plan.tiles] = cycles(plan, table.subgroups(held), own, rows, asked, hits)
        return all_tiles

    return counted


def _number(plan: DynamicPlan, part: Variable) -> Codelet:
    """Each tile notes which column partition its rows are of."""
    _, iy, _ = coordinates(plan)

    def run(memory: Memory) -> None:
        memory[part][:] = iy

    cycles = part.counts * plan.machine.workers  # a worker issues once in as many cycles
    return Codelet("column partition", run, cycles, (), (part,))


def _apply(plan: DynamicPlan, sums: Variable, scale: Variable, values: Variable) -> Compute:
    """Each tile adds its scaled sums to the numbers of its bucket, which are rounded once."""

    def run(memory: Memory) -> None:
        factor = memory[scale].astype(np.float32).repeat(plan.bucket_values)
        with np.errstate(over="ignore"):
            added = factor * memory[sums].astype(np.float32)
            memory[values][:] = memory[values].astype(np.float32) + added

    cycles = np.zeros(plan.machine.tiles, np.int64)
    cycles[: plan.tiles] = apply_cycles(plan)
    codelet = Codelet("Apply", run, cycles, (sums, scale, values), (values,))
    return Compute("Apply", (codelet,))


def _on_last_tile(plan: DynamicPlan, name: str) -> Variable:
    counts = np.zeros(plan.machine.tiles, np.int64)
    counts[-1] = 1
    return Variable(name, np.dtype("float32"), counts)


def _program(
    name: str,
    chunks: Chunks,
    steps: tuple[Step, ...],
    inputs: dict[str, Variable],
    output: Variable,
) -> EmbeddingProgram:
    program = Program(name, chunks.plan.machine, steps, tuple(inputs.values()), (output,))
    return EmbeddingProgram(chunks, program, inputs, output)
