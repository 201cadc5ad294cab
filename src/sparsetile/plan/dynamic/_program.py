"""The variables that all programs of a dynamic plan share, and how buckets move between tiles."""

from dataclasses import dataclass

import numpy as np

from sparsetile.machine import Copy, Exchange, Program, Variable
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._spread import (
    coordinates,
    runs,
    shift,
    sibling,
    tile_variable,
)

TRAVEL = 1
"""Partitions, up along each axis, by which a shift moves what travels to non-zeros' own tiles."""


@dataclass(frozen=True, eq=False)
class DynamicProgram:
    """A program of a plan; it runs with every pattern that is encoded for the plan.

    Attributes:
        plan: The plan.
        program: The program.
        inputs: Its inputs by name: `"meta"`, `"values"`, `"overflow"`, and the dense operands `"x"`
            or `"dy"`, as far as the pass needs them.
        output: Its result.
    """

    plan: DynamicPlan
    program: Program
    inputs: dict[str, Variable]
    output: Variable


@dataclass(frozen=True, eq=False)
class Bucket:
    """Variables that hold a bucket (or several) on each tile.

    Attributes:
        meta: Meta-information, 16-bit.
        values: Values or their gradients.
    """

    meta: Variable
    values: Variable

    @property
    def variables(self) -> tuple[Variable, Variable]:
        """Both."""
        return self.meta, self.values


def bucket(
    plan: DynamicPlan,
    name: str,
    meta: int,
    dtype: str,
    copies: int = 1,
    persistent: bool = False,
) -> Bucket:
    """Variables for buckets of every tile; `meta` is the 16-bit entries of one."""
    return Bucket(
        tile_variable(plan, f"{name}: meta-information", "uint16", copies * meta, persistent),
        tile_variable(plan, f"{name}: values", dtype, copies * plan.bucket_values, persistent),
    )


def share(plan: DynamicPlan, own: Bucket, others: Bucket) -> tuple[Copy, ...]:
    """Every bucket of a row and column partition goes to all other tiles of that partition.

    A tile's slots hold the buckets of the next batch partitions, in turn.
    """
    if plan.z == 1:
        return ()
    _, _, iz = coordinates(plan)
    tiles = np.arange(plan.tiles)[:, None]
    slot = np.arange(plan.z - 1)
    origin = sibling(plan, "z", np.arange(plan.z))[tiles, (iz[:, None] + 1 + slot) % plan.z]

    def copy(source: Variable, target: Variable) -> Copy:
        size = source.size // plan.tiles
        return runs(source, target, origin * size, (tiles * (plan.z - 1) + slot) * size, size)

    return copy(own.meta, others.meta), copy(own.values, others.values)


def on_tile(plan: DynamicPlan, source: Variable, target: Variable) -> Copy:
    """Each tile copies its part of one variable to another."""
    begin = np.arange(plan.tiles) * (source.size // plan.tiles)
    return runs(source, target, begin, begin, source.size // plan.tiles)


def shifting(
    plan: DynamicPlan, axis: str, name: str, by: int, variables: tuple[Variable, ...]
) -> Exchange:
    """What the tiles hold of variables goes `by` partitions further along an axis."""
    copies = (shift(plan, axis, v, by, v.size // plan.tiles) for v in variables)
    return Exchange(name, tuple(copies))
