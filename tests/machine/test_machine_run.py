"""Programs compute what their steps say, in the order they say."""

import numpy as np
import pytest

from sparsetile.machine import Branch, Codelet, Compute, Repeat, even_counts, run
from support import without_type_checks
from support_machine import (
    FLOAT32,
    SMALL,
    compute,
    copy,
    count_up,
    exchange,
    idle,
    ints,
    program,
    small,
    variable,
)

X = variable("x", [2, 2, 2, 2])
N = variable("n", [1, 0, 0, 0])


def start(n, x=0):
    return {X: np.full(8, x, np.int32), N: np.array([n], np.int32)}


def test_codelets_on_a_tile_run_one_after_the_other():
    def double(memory):
        memory[X] *= 2

    def add(memory):
        memory[X] += 1

    codelets = tuple(
        Codelet(name, function, ints(*cycles), (X,), (X,))
        for name, function, cycles in [("double", double, (9, 1, 0, 0)), ("add", add, (1, 8, 0, 0))]
    )
    result = run(program(Compute("both", codelets), inputs=[X], outputs=[X]), {X: np.ones(8, "i4")})
    assert result.values[X].tolist() == [3] * 8
    assert result.profile.cycles == 10
    assert result.profile.phases[0].tile_cycles.tolist() == [10, 9, 0, 0]


def test_cycles_may_depend_on_what_was_there_before():
    def clear(memory):
        memory[X][:] = 0

    step = compute(clear, [X], [X], cycles=lambda m: m[X].reshape(4, 2).sum(1).astype(np.int64))
    result = run(program(step, inputs=[X], outputs=[X]), {X: np.arange(8, dtype=np.int32)})
    assert result.profile.tile_cycles.tolist() == [1, 5, 9, 13]


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("given", ["in-program", "in-data"])
def test_loop_runs_as_often_as_it_says(count, given):
    loop = Repeat(count if given == "in-program" else N, (count_up(X),))
    result = run(program(loop, inputs=[X, N], outputs=[X]), start(count))
    assert result.values[X].tolist() == [count] * 8
    assert [(p.name, p.times, p.cycles) for p in result.profile.phases] == (
        [("count x", count, count)] if count else []
    )


def test_loop_reads_its_count_when_it_begins():
    loop = Repeat(N, (count_up(X), count_up(N)))
    values = run(program(loop, inputs=[X, N], outputs=[X, N]), start(3)).values
    assert values[X][0] == 3
    assert values[N].tolist() == [6]


def test_loops_nest():
    loop = Repeat(2, (Repeat(N, (count_up(X),)), count_up(N)))
    # 1 turn, then 2.
    assert run(program(loop, inputs=[X, N], outputs=[X]), start(1)).values[X][0] == 3


def test_steps_after_a_loop_and_a_branch_run():
    steps = (Repeat(2, (count_up(X),)), Branch(N, (count_up(X),), (count_up(N),)), count_up(X))
    assert run(program(*steps, inputs=[X, N], outputs=[X]), start(1)).values[X][0] == 4
    assert run(program(*steps, inputs=[X, N], outputs=[X]), start(0)).values[X][0] == 3


def test_branch_reads_its_condition():
    steps = Branch(N, (idle([X], [X], "then"),), (idle([X], [X], "otherwise"),))
    p = program(steps, inputs=[X, N], outputs=[X])
    assert [s.name for s in run(p, start(2)).profile.phases] == ["then"]
    assert [s.name for s in run(p, start(0)).profile.phases] == ["otherwise"]


def test_a_loop_ends_early_by_a_branch():
    """Tiles pass a token until it is where it should be; the number of steps is in the data."""
    token = variable("token", [1, 1, 1, 1])
    wanted = variable("wanted", [1, 0, 0, 0])
    away = variable("away", [1, 0, 0, 0])
    step = exchange(copy(token, token, (0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 0, 1)), name="pass")

    def compare(memory):
        memory[away][0] = memory[token][0] != memory[wanted][0]

    judge = compute(compare, [token, wanted], [away], name="compare")
    p = program(
        Repeat(8, (judge, Branch(away, (step,)))), inputs=[token, wanted], outputs=[token, away]
    )
    result = run(p, {token: np.array([5, 6, 7, 8], "i4"), wanted: np.array([7], "i4")})
    assert result.values[token].tolist() == [7, 8, 5, 6]
    assert {s.name: s.times for s in result.profile.phases} == {"compare": 8, "pass": 2}


@pytest.mark.parametrize(
    ("dtype", "poison"), [("f4", np.nan), ("f2", np.nan), ("i4", 2**31 - 1), ("u1", 255)]
)
def test_memory_that_nobody_wrote_is_poison(dtype, poison):
    source = variable("source", [2] * 4, np.dtype(dtype))
    target = variable("target", [2] * 4, np.dtype(dtype))
    p = program(exchange(copy(source, target, (0, 2, 1))), inputs=[source], outputs=[target])
    values = run(p, {source: np.zeros(8, dtype)}).values[target]
    assert values[2] == 0
    np.testing.assert_array_equal(np.delete(values, 2), np.full(7, poison, dtype))


def test_what_a_turn_of_a_loop_leaves_is_gone_unless_the_next_reads_it():
    scratch = variable("scratch", [2] * 4, FLOAT32)
    y = variable("y", [2] * 4, FLOAT32)

    def write_some(memory):
        memory[scratch][0] = 1

    def read(memory):
        memory[y][:] = memory[scratch]

    p = program(
        Repeat(2, (compute(write_some, [], [scratch]), compute(read, [scratch], [y]))),
        outputs=[y],
    )
    values = run(p, {}).values[y]
    assert values[0] == 1
    assert np.isnan(values[1:]).all()


def test_given_data_is_not_changed():
    data = start(3)
    run(program(Repeat(N, (count_up(X),)), inputs=[X, N], outputs=[X]), data)
    assert data[X].tolist() == [0] * 8


def test_codelet_may_not_write_what_it_only_reads():
    def wrong(memory):
        memory[X][:] = 1

    with pytest.raises(ValueError, match="read-only"):
        run(program(compute(wrong, [X], [N]), inputs=[X], outputs=[N]), {X: np.zeros(8, "i4")})


def test_codelet_sees_only_what_it_declares():
    with pytest.raises(ValueError, match=r"codelet 'peek' of 'peek' uses 'n'; it declares 'x'"):
        run(
            program(compute(lambda m: m[N], [X], [X], name="peek"), inputs=[X, N], outputs=[X, N]),
            start(1),
        )


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, r"data for nothing; its inputs are 'n', 'x'"),
        ({X: np.zeros(8, "i4")}, r"data for 'x'"),
        ({X: np.zeros(8, "i4"), N: np.zeros(2, "i4")}, r"'n' .* int32 \[2\]; it takes int32 \[1\]"),
        ({X: np.zeros(8, "f4"), N: np.zeros(1, "i4")}, r"float32 \[8\]; it takes int32"),
        ({X: np.zeros((4, 2), "i4"), N: np.zeros(1, "i4")}, r"int32 \[4, 2\]; it takes"),
        ({X: np.zeros(8, "i4"), N: np.full(1, -2, "i4")}, r"has the count -2 in 'n'"),
    ],
    ids=["none", "one", "size", "dtype", "shape", "negative"],
)
def test_wrong_data_is_refused(data, says):
    p = program(Repeat(N, (count_up(X),)), inputs=[X, N], outputs=[X], name="p")
    with pytest.raises(ValueError, match=says):
        run(p, data)


def test_negative_count_is_refused():
    with pytest.raises(ValueError, match="count -1 in the program"):
        run(program(Repeat(-1, (count_up(X),)), inputs=[X], outputs=[X]), {X: np.zeros(8, "i4")})


@without_type_checks()
def test_count_that_is_not_whole_is_refused():
    with pytest.raises(ValueError, match=r"count 1\.5; it runs a whole number of times"):
        run(program(Repeat(1.5, (count_up(X),)), inputs=[X], outputs=[X]), {X: np.zeros(8, "i4")})


@without_type_checks()
def test_what_is_no_step_is_refused():
    with pytest.raises(TypeError, match="a step of the program is 5; it may be an Exchange"):
        run(program(5, inputs=[X], outputs=[X]), {X: np.zeros(8, "i4")})


def test_what_overflows_on_a_tile_is_infinite():
    x = variable("x", [1, 0, 0, 0], FLOAT32)

    def square(memory):
        memory[x] *= memory[x]
        memory[x] -= memory[x]

    step = Compute("square", (Codelet("square", square, ints(1, 0, 0, 0), (x,), (x,)),))
    given = {x: np.array([1e30], np.float32)}
    assert np.isnan(run(program(step, inputs=[x], outputs=[x]), given).values[x]).all()


def test_program_for_another_machine_is_refused():
    p = program(count_up(X), inputs=[X], outputs=[X], machine=small(tiles=8))
    with pytest.raises(ValueError, match=r"'x' has 4 counts.*'small' has 8 tiles"):
        run(p, {X: np.zeros(8, "i4")})


@pytest.mark.parametrize(
    "control",
    [variable("many", [1, 1, 0, 0]), variable("real", [1, 0, 0, 0], FLOAT32)],
    ids=lambda v: v.name,
)
def test_loops_and_branches_read_one_integer(control):
    data = {X: np.zeros(8, "i4"), control: np.zeros(control.size, control.dtype)}
    for step in (Repeat(control, (count_up(X),)), Branch(control, (count_up(X),))):
        with pytest.raises(ValueError, match="takes one integer or boolean"):
            run(program(step, inputs=[X, control], outputs=[X]), data)


@pytest.mark.parametrize("late", [False, True], ids=["array", "function"])
@pytest.mark.parametrize(
    ("cycles", "says"),
    [
        (ints(1, 2), r"cycles as int64 \[2\]; machine 'small' takes int64 \[4\]"),
        (ints(1, 2, -3, 4), "says -3 cycles on tile 2"),
    ],
    ids=["short", "negative"],
)
def test_wrong_cycles_are_refused(cycles, says, late):
    step = idle([X], [X], cycles=(lambda memory: cycles) if late else cycles)
    with pytest.raises(ValueError, match=says):
        run(program(step, inputs=[X], outputs=[X]), {X: np.zeros(8, "i4")})


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100])
@pytest.mark.parametrize("tiles", [1, 4, 9])
@pytest.mark.parametrize("grain", [1, 3, 8])
def test_even_counts_are_whole_grains_that_differ_by_one(size, tiles, grain):
    counts = even_counts(size, tiles, grain)
    assert counts.sum() == size
    assert len(counts) == tiles
    grains = -(-counts // grain)
    assert grains.max() - grains.min() <= 1
    assert (counts[counts > 0][:-1] % grain == 0).all()
    assert (np.diff(counts) <= 0).all()


def test_even_counts_refuses_nonsense():
    with pytest.raises(ValueError, match="deal -1 elements in grains of 1 to 4 tiles"):
        even_counts(-1, SMALL.tiles)


@without_type_checks()
def test_even_counts_takes_whole_numbers():
    with pytest.raises(ValueError, match=r"deal 2\.5 elements .* give such whole numbers"):
        even_counts(2.5, SMALL.tiles)


@without_type_checks()
def test_lists_are_no_data():
    p = program(count_up(X), inputs=[X], outputs=[X])
    with pytest.raises(ValueError, match=r"given <class 'list'>; it takes int32 \[8\]"):
        run(p, {X: [0] * 8})
