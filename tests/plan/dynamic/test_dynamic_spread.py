"""Dense operands lie on tiles as said, and come back."""

import numpy as np
import pytest

from sparsetile.machine import Exchange, Program, run
from sparsetile.plan.dynamic._spread import Spread, coordinates, sibling, tile_variable
from support_dynamic_run import draw, hand_plan


@pytest.mark.parametrize("side", ["x", "y"])
@pytest.mark.parametrize("cut", [(1, 1, 1), (3, 2, 2), (2, 5, 3)])
def test_there_and_back(side, cut):
    plan = hand_plan(draw(14, 22, (2, 2), 0.5), 7, cut)
    spread = Spread(plan, side)
    rows = plan.m if side == "x" else plan.k
    matrix = np.arange(1.0, rows * 7 + 1, dtype=np.float32).reshape(rows, 7)
    flat = spread.arrange(matrix)
    variable = spread.variable("operand", "float32")
    assert flat.size == variable.size
    assert np.array_equal(spread.collect(flat, rows), matrix)
    # Every tile is sent its part, which is a window of the matrix.
    part = tile_variable(plan, "part", "float32", spread.part)
    exchange = Exchange("broadcast", (spread.broadcast(variable, part),))
    program = Program("broadcast", plan.machine, (exchange,), (variable,), (part,))
    held = run(program, {variable: flat}).values[part].reshape(plan.tiles, -1, plan.z_size)
    ix, iy, iz = coordinates(plan)
    for tile in range(plan.tiles):
        at = (ix if side == "x" else iy)[tile] * spread.rows
        columns = slice(iz[tile] * plan.z_size, (iz[tile] + 1) * plan.z_size)
        window = matrix[at : at + spread.rows, columns]
        high, wide = window.shape
        assert np.array_equal(held[tile, :high, :wide], window)
        assert not held[tile, high:].any() and not held[tile, :, wide:].any()


def test_siblings_differ_in_one_coordinate():
    plan = hand_plan(draw(12, 12, (1, 1), 0.5), 4, (3, 2, 2))
    tile = plan.tile(2, 1, 0)
    assert sibling(plan, "x", np.arange(3))[tile].tolist() == [plan.tile(i, 1, 0) for i in range(3)]
    assert sibling(plan, "y", np.arange(2))[tile].tolist() == [plan.tile(2, i, 0) for i in range(2)]
    assert sibling(plan, "z", np.arange(2))[tile].tolist() == [plan.tile(2, 1, i) for i in range(2)]
