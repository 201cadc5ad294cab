"""Variables take memory while they are needed, and programs that do not fit are refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile.machine import (
    Branch,
    Codelet,
    Compute,
    OutOfTileMemory,
    Program,
    Repeat,
    check_memory,
    run,
)
from support_machine import UINT8, copy, exchange, idle, program, small, variable


def byte(name, size=100, **more):
    """A variable of so many bytes, all on tile 2."""
    return variable(name, [0, 0, size, 0], UINT8, **more)


A, B, C, D = (byte(name) for name in "abcd")
N = byte("n", 1)


def use(reads, writes, name="use"):
    return idle(reads, writes, name)


def peak(*steps, inputs=(), outputs=()):
    """The least memory of a tile with which a program fits."""
    with pytest.raises(OutOfTileMemory) as refused:
        check_memory(
            program(*steps, inputs=inputs, outputs=outputs, machine=small(memory_per_tile=1))
        )
    low, high = refused.value.needed, 10_000
    while low < high:
        middle = (low + high) // 2
        try:
            machine = small(memory_per_tile=middle)
            check_memory(program(*steps, inputs=inputs, outputs=outputs, machine=machine))
            high = middle
        except OutOfTileMemory:
            low = middle + 1
    return low


def test_program_that_just_fits_runs_and_one_byte_more_does_not():
    step = use([A], [B], "double")
    p = program(step, inputs=[A], outputs=[B], machine=small(memory_per_tile=200))
    assert run(p, {A: np.zeros(100, np.uint8)}).profile.tile_memory.tolist() == [0, 0, 200, 0]
    p = program(step, inputs=[A], outputs=[B], machine=small(memory_per_tile=199), name="p")
    with pytest.raises(OutOfTileMemory) as refused:
        run(p, {})  # data is not looked at: nothing runs
    error = refused.value
    assert (error.tile, error.superstep, error.needed, error.available) == (2, "double", 200, 199)
    assert str(error) == (
        "program 'p' needs 200 bytes on tile 2 in superstep 'double'; a tile of machine 'small' "
        "has 199. There are 'a' with 100, 'b' with 100: spread them over more tiles or more "
        "supersteps"
    )


def test_first_superstep_that_does_not_fit_is_named():
    big = byte("big", 500)
    steps = use([A], [B], "first"), use([B], [big], "second"), use([big], [C], "third")
    with pytest.raises(OutOfTileMemory, match=r"in superstep 'second'.*'big' with 500, 'b' with"):
        check_memory(program(*steps, inputs=[A], outputs=[C], machine=small(memory_per_tile=550)))


def test_inputs_alone_may_be_too_much():
    with pytest.raises(OutOfTileMemory, match="in superstep 'the start'"):
        check_memory(program(inputs=[A], machine=small(memory_per_tile=99)))


def test_variables_live_from_the_first_write_to_the_last_read():
    chain = use([A], [B]), use([B], [C]), use([C], [D])
    assert peak(*chain, inputs=[A], outputs=[D]) == 200


def test_inputs_live_from_the_start_and_outputs_to_the_end():
    steps = use([A], [B]), use([], [C]), use([D], [C])
    assert peak(*steps, inputs=[A, D], outputs=[B, C]) == 300
    # d is only read at the end, but there from the start; b is only written early.
    assert peak(*steps, inputs=[A], outputs=[C]) == 200


def test_persistent_variables_always_live():
    keep = byte("keep", persistent=True)
    steps = use([A], [B]), use([B], [C]), use([C], [keep])
    assert peak(*steps, inputs=[A]) == 300


def test_tiles_are_counted_one_by_one():
    a, b = variable("a", [100, 0, 0, 0], UINT8), variable("b", [0, 70, 0, 0], UINT8)
    assert peak(use([a], [b]), inputs=[a], outputs=[b]) == 100


def test_scratch_of_a_loop_does_not_live_all_through_it():
    body = use([A], [B]), use([B], [C]), use([C], [D])
    assert peak(Repeat(3, body), inputs=[A], outputs=[]) == 300


def test_what_a_loop_carries_lives_all_through_it():
    body = use([C], [C]), use([], [D]), use([D], [A])
    assert peak(*body) == 200
    assert peak(Repeat(3, body)) == 300


def test_what_is_used_outside_a_loop_lives_all_through_it():
    loop = Repeat(3, (use([A], [B]), use([B], [C]), use([], [D])))
    assert peak(use([], [A]), loop) == 300
    assert peak(use([], [A]), loop, use([B], [])) == 300
    assert peak(use([], [A]), loop, use([B, C], [])) == 400


def test_what_may_not_be_written_first_is_carried():
    def body(skipped):
        return skipped, use([C], [D]), use([D], [A]), use([A], [B])

    # The write of c is sure: c is gone when d is used.
    assert peak(Repeat(3, body(use([], [C])))) == 200
    assert peak(Repeat(3, body(Repeat(2, (use([], [C]),))))) == 200
    assert peak(Repeat(3, body(Repeat(0, (use([], [C]),))))) == 300
    assert peak(Repeat(3, body(Repeat(N, (use([], [C]),)))), inputs=[N]) == 301
    assert peak(Repeat(3, body(Branch(N, (use([], [C]),)))), inputs=[N]) == 301


def test_arms_of_a_branch_have_scratch_of_their_own():
    branch = Branch(N, (use([], [A]), use([A], [])), (use([], [B]), use([B], [])))
    assert peak(branch, inputs=[N]) == 100


def test_what_an_arm_leaves_lives_all_through_the_branch():
    branch = Branch(N, (use([], [A]),), (use([], [B]), use([B], [])))
    assert peak(branch, use([A], []), inputs=[N]) == 200


def test_count_of_a_loop_is_read_when_it_begins():
    assert peak(Repeat(N, (use([], [A]),)), use([N], [])) == 101


def test_exchange_in_place_needs_a_landing_buffer():
    x = variable("x", [0, 10, 100, 0], UINT8)
    shift = exchange(copy(x, x, (10, 20, 30), (0, 10, 10)), name="shift")
    assert peak(shift, inputs=[x], outputs=[x]) == 140
    p = program(shift, inputs=[x], outputs=[x], machine=small(memory_per_tile=139))
    with pytest.raises(OutOfTileMemory, match="'x' with 100, landing buffers with 40"):
        check_memory(p)


def test_exchange_to_another_variable_needs_no_buffer():
    assert peak(exchange(copy(A, B, (0, 0, 100))), inputs=[A], outputs=[B]) == 200


def test_swap_needs_landing_buffers_for_both():
    swap = exchange(copy(A, B, (0, 0, 100)), copy(B, A, (0, 0, 100)))
    assert peak(swap, inputs=[A, B], outputs=[A, B]) == 400


def test_profile_tells_memory_of_each_phase():
    steps = use([A], [B], "one"), use([B], [C, D], "two")
    p = program(*steps, inputs=[A], outputs=[C])
    profile = run(p, {A: np.zeros(100, np.uint8)}).profile
    assert [phase.memory for phase in profile.phases] == [200, 300]
    assert profile.peak_step == "two"


# Random programs over a few numbers: `None` is a number that nobody wrote.
NUMBERS = [variable(f"v{i}", [1, 0, 0, 0], np.dtype(np.int64)) for i in range(4)]
CONTROLS = [variable(f"c{i}", [1, 0, 0, 0], np.dtype(np.int64)) for i in range(2)]
NOBODY = np.iinfo(np.int64).max

leaf = st.tuples(st.just("set"), st.sampled_from(NUMBERS), st.sampled_from(NUMBERS)) | st.tuples(
    st.just("zero"), st.sampled_from(NUMBERS), st.just(None)
)
steps_of = st.recursive(
    st.lists(leaf, max_size=3).map(tuple),
    lambda inner: st.lists(
        leaf
        | st.tuples(st.just("repeat"), st.integers(0, 2) | st.sampled_from(CONTROLS), inner)
        | st.tuples(st.just("branch"), st.sampled_from(CONTROLS), st.tuples(inner, inner)),
        max_size=4,
    ).map(tuple),
    max_leaves=5,
)


def built(step):
    """A step of the machine for a drawn one."""
    kind, first, second = step
    if kind == "repeat":
        return Repeat(first, tuple(map(built, second)))
    if kind == "branch":
        return Branch(first, *(tuple(map(built, arm)) for arm in second))

    def assign(memory):
        if second is None:
            memory[first][0] = 0
        else:
            memory[first][0] = -1 if memory[second][0] == NOBODY else memory[second][0] * 3 + 1

    reads = () if second is None else (second,)
    cycles = np.ones(4, np.int64)
    return Compute("set", (Codelet("set", assign, cycles, reads, (first,)),))


def follow(steps, values):
    """The same program, with numbers that are never taken away."""
    for kind, first, second in steps:
        if kind == "repeat":
            for _ in range(first if isinstance(first, int) else values[first]):
                follow(second, values)
        elif kind == "branch":
            follow(second[0] if values[first] else second[1], values)
        elif second is None:
            values[first] = 0
        else:
            values[first] = -1 if values[second] is None else values[second] * 3 + 1


@settings(max_examples=150, deadline=None)
@given(steps_of, st.tuples(st.integers(0, 2), st.integers(0, 2)), st.sampled_from(NUMBERS))
def test_no_value_is_taken_away_while_it_is_needed(steps, controls, wanted):
    values = dict.fromkeys(NUMBERS) | dict(zip(CONTROLS, controls, strict=True))
    follow(steps, values)
    p = Program("random", small(), tuple(map(built, steps)), tuple(CONTROLS), (wanted,))
    data = {c: np.array([v]) for c, v in zip(CONTROLS, controls, strict=True)}
    expected = NOBODY if values[wanted] is None else values[wanted]
    assert run(p, data).values[wanted].tolist() == [expected]
