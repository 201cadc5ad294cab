"""Exchanges move what they say, and cost what can be counted by hand."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile.machine import Copy, Exchange, Program, Variable, even_counts, preset, run
from sparsetile.machine._exchange import _joined
from support_machine import INT32, SMALL, UINT8, copy, exchange, program, small, variable


def moved(*copies, machine=SMALL):
    """The values of the targets and the profile of one exchange; sources count from 0."""
    sources = list(dict.fromkeys(c.source for c in copies))
    targets = list(dict.fromkeys(c.target for c in copies))
    result = run(
        program(exchange(*copies), inputs=sources, outputs=targets, machine=machine),
        {v: np.arange(v.size).astype(v.dtype) for v in sources},
    )
    return [result.values[v] for v in targets], result.profile


def cycles(*copies, machine=SMALL):
    return moved(*copies, machine=machine)[1].cycles


A = variable("a", [8, 8, 8, 8])
B = variable("b", [8, 8, 8, 8])


def test_run_crosses_tiles_at_the_exchange_rate():
    # 5 elements of 4 bytes at 4 bytes a cycle.
    assert cycles(copy(A, B, (0, 8, 5))) == 5


def test_bytes_are_rounded_up_to_atoms_run_by_run():
    a, b = variable("a", [8] * 4, UINT8), variable("b", [8] * 4, UINT8)
    assert cycles(copy(a, b, (0, 8, 5))) == 2
    assert cycles(copy(a, b, (0, 8, 1), (1, 9, 1), (2, 10, 1))) == 3
    assert cycles(copy(a, b, (0, 8, 5)), machine=small(exchange_atom=1)) == 2
    assert cycles(copy(a, b, (0, 8, 5)), machine=small(exchange_atom=32)) == 8


def test_tile_receives_one_run_after_the_other():
    assert cycles(copy(A, B, (0, 24, 3), (8, 27, 2), (16, 29, 1))) == 6


def test_tile_sends_one_run_after_the_other():
    assert cycles(copy(A, B, (0, 8, 3), (3, 16, 2), (5, 24, 1))) == 6


def test_tiles_send_while_they_receive():
    assert cycles(copy(A, B, (0, 8, 4), (8, 0, 3))) == 4


def test_a_run_for_several_tiles_is_sent_once():
    assert cycles(copy(A, B, (0, 8, 6), (0, 16, 6), (0, 24, 6))) == 6


def test_a_run_for_several_tiles_is_sent_once_by_several_copies():
    c = variable("c", [8] * 4)
    assert cycles(copy(A, B, (0, 8, 6)), copy(A, c, (0, 16, 6))) == 6


def test_runs_of_one_start_and_different_lengths_are_different():
    assert cycles(copy(A, B, (0, 8, 6), (0, 16, 5))) == 11


def test_runs_of_two_variables_are_different():
    c = variable("c", [8] * 4)
    assert cycles(copy(A, B, (0, 8, 6)), copy(c, B, (0, 16, 6))) == 12


def test_a_tile_may_take_a_run_twice_and_receives_it_twice():
    profile = moved(copy(A, B, (0, 8, 3), (0, 11, 3)))[1]
    assert (profile.cycles, profile.bytes_moved) == (6, 24)


BUS = small(tiles_per_bus=2)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([(0, 16, 6)], 6),  # tile 2 alone
        ([(0, 16, 6), (0, 24, 6)], 6),  # both of a bus at 3 cycles, but sending takes 6
        ([(0, 16, 4), (8, 20, 4), (0, 24, 4), (8, 28, 4)], 4),  # two senders: 8 elements in 4
        ([(0, 16, 4), (8, 20, 4), (0, 24, 4), (12, 28, 4)], 8),  # receiving takes 2 + 4, sending 8
        ([(0, 16, 4), (4, 24, 4)], 8),  # different runs for the two of a bus
        ([(0, 8, 4), (0, 16, 4)], 4),  # neighbours, but of different buses
    ],
    ids=["one", "both", "two-senders", "half", "different", "across"],
)
def test_a_bus_is_shared_by_tiles_that_receive_the_same(runs, expected):
    assert cycles(copy(A, B, *runs), machine=BUS) == expected


def test_tile_on_two_rates_adds_them_up():
    # Tile 2 takes 4 elements from tile 0 together with tile 3, and 3 from tile 1 alone: 2 + 3.
    assert cycles(copy(A, B, (0, 16, 4), (0, 24, 4), (8, 20, 3)), machine=BUS) == 5


def test_what_goes_everywhere_comes_at_the_rate_of_the_bus_for_all():
    # Three tiles send 4 elements each to all: 12 of them, or 8 for a sender, at 8 bytes a cycle.
    b = variable("b", [12] * 4)
    runs = [(8 * s, 12 * t + 4 * s, 4) for s in range(3) for t in range(4) if s != t]
    assert cycles(copy(A, b, *runs), machine=BUS) == 6
    assert cycles(copy(A, b, *runs), machine=SMALL) == 12


def test_runs_within_a_tile_are_moved_by_its_memory():
    profile = moved(copy(A, B, (0, 2, 6), (8, 8, 5)), machine=small(exchange_cycles=7))[1]
    # 24 bytes at 16 a cycle; nothing crosses, so there is no latency.
    assert profile.cycles == 2
    assert (profile.bytes_moved, profile.bytes_moved_on_tile) == (0, 44)


def test_exchange_and_moves_within_a_tile_add_up():
    phase = moved(copy(A, B, (0, 8, 3), (8, 11, 4)), machine=small(exchange_cycles=7))[1].phases[0]
    assert phase.tile_cycles.tolist() == [3, 4, 0, 0]
    assert phase.cycles == 4 + 7
    assert phase.mean_cycles == 7 / 4 + 7
    assert phase.busiest_tile == 1


def test_each_superstep_waits_for_all_tiles():
    step = exchange(copy(A, B, (0, 8, 3)))
    p = program(step, step, inputs=[A], outputs=[B], machine=small(sync_cycles=50))
    profile = run(p, {A: np.zeros(32, np.int32)}).profile
    assert [(s.name, s.kind, s.times, s.cycles) for s in profile.phases] == [
        ("exchange", "exchange", 2, 6),
        ("sync", "sync", 2, 100),
    ]


def test_an_exchange_of_nothing_costs_nothing():
    assert cycles(copy(A, B), machine=small(exchange_cycles=7)) == 0
    assert cycles(copy(A, B, (0, 8, 0)), machine=small(exchange_cycles=7)) == 0


def test_shift_in_place_is_cyclic():
    p = program(
        exchange(copy(A, A, *((8 * t, (8 * t + 8) % 32, 8) for t in range(4)))),
        inputs=[A],
        outputs=[A],
    )
    values = np.arange(32, dtype=np.int32)
    assert run(p, {A: values}).values[A].tolist() == np.roll(values, 8).tolist()
    assert values.tolist() == list(range(32))


def test_two_variables_swap():
    p = program(
        exchange(copy(A, B, (0, 8, 8)), copy(B, A, (8, 0, 8))), inputs=[A, B], outputs=[A, B]
    )
    data = {A: np.arange(32, dtype=np.int32), B: np.arange(100, 132, dtype=np.int32)}
    values = run(p, data).values
    assert values[A][:8].tolist() == list(range(108, 116))
    assert values[B][8:16].tolist() == list(range(8))


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        ([(0, 8, 9)], r"reads elements 0 to 9 of 'a' in one run.*tile 0, which ends at 8 of 32"),
        ([(0, 4, 8)], r"writes elements 4 to 12 of 'b' in one run.*tile 0"),
        ([(-1, 8, 2)], r"reads elements -1 to 1"),
        ([(31, 8, 2)], r"reads elements 31 to 33 .* tile 3"),
        ([(32, 8, 1)], r"reads elements 32 to 33"),
        ([(4, 8, -2)], r"reads elements 4 to 2"),
        ([(0, 8, 4), (16, 11, 2)], r"exchange 'exchange' writes element 11 of 'b' on tile 1 twice"),
        ([(0, 24, 2), (16, 24, 2)], r"element 24 of 'b' on tile 3 twice"),
    ],
    ids=["long", "target", "before", "after", "outside", "negative", "overlap", "same"],
)
def test_wrong_runs_are_refused(runs, says):
    with pytest.raises(ValueError, match=says):
        moved(copy(A, B, *runs))


def test_two_copies_may_not_write_the_same():
    with pytest.raises(ValueError, match=r"writes element 9 of 'b' on tile 1 twice"):
        moved(copy(A, B, (0, 8, 2)), copy(variable("c", [1] * 4), B, (0, 9, 1)))


def test_copies_keep_the_dtype():
    with pytest.raises(ValueError, match=r"'a' to 'c', int32 to uint8; .* let a codelet convert"):
        moved(copy(A, variable("c", [8] * 4, UINT8), (0, 8, 1)))


def test_arrays_of_a_copy_have_one_length():
    with pytest.raises(ValueError, match=r"of shapes \[2\], \[1\], \[1\]"):
        # What a type checker would not let pass when it is made.
        wrong = copy(A, B, (0, 8, 1))
        object.__setattr__(wrong, "source_start", np.zeros(2, np.int64))
        moved(wrong)


@st.composite
def random_copies(draw):
    """Copies between variables on 4 tiles, with every element written at most once."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    counts = [rng.integers(0, 40, 4) for _ in range(3)]
    variables = [variable(f"v{i}", c) for i, c in enumerate(counts)]
    copies = []
    for target in variables:
        runs = {id(v): [] for v in variables}
        for tile in range(4):
            at, end = target.offsets[tile : tile + 2].tolist()
            while at < end:
                length = int(min(rng.integers(0, 9), end - at))
                source = variables[rng.integers(3)]
                room = np.flatnonzero(source.counts >= length)
                if room.size and rng.random() < 0.8:
                    sender = rng.choice(room)
                    start = source.offsets[sender]
                    # Often the same run, so that some are shared.
                    start += rng.choice([0, rng.integers(0, source.counts[sender] - length + 1)])
                    runs[id(source)].append((int(start), at, length))
                at += max(length, 1)
        for source in variables:
            order = rng.permutation(len(runs[id(source)]))
            copies.append(copy(source, target, *(runs[id(source)][i] for i in order)))
    return variables, tuple(copies)


@settings(max_examples=60, deadline=None)
@given(random_copies(), st.sampled_from([1, 2, 4]), st.sampled_from([1, 4, 12]))
def test_random_exchange_agrees_with_a_plain_loop(drawn, bus, atom):
    variables, copies = drawn
    machine = small(tiles_per_bus=bus, exchange_atom=atom, exchange_cycles=3, memory_per_tile=4096)
    data = {v: np.arange(v.size).astype(INT32) + 1000 * i for i, v in enumerate(variables)}
    result = run(
        program(exchange(*copies), inputs=variables, outputs=variables, machine=machine), data
    )
    values, phase = plain(variables, copies, data, machine)
    for v in variables:
        assert result.values[v].tolist() == values[v].tolist()
    assert result.profile.phases[0].tile_cycles.tolist() == phase


def plain(variables, copies, data, machine):
    """The same exchange, run by run."""
    values = {v: data[v].copy() for v in variables}
    sent = [set() for _ in range(4)]
    to = {}
    received, moved_on_tile = [[] for _ in range(4)], [0] * 4
    for c in copies:
        for s, t, n in zip(c.source_start, c.target_start, c.length, strict=True):
            if not n:
                continue
            values[c.target][t : t + n] = data[c.source][s : s + n]
            source = np.searchsorted(c.source.offsets, s, side="right") - 1
            target = np.searchsorted(c.target.offsets, t, side="right") - 1
            if source == target:
                moved_on_tile[source] += 4 * n
            else:
                run_ = (id(c.source), s, n)
                sent[source].add(run_)
                to.setdefault(run_, set()).add(target)
                received[target].append(run_)

    def atoms(n):
        return -(-4 * n // machine.exchange_atom) * machine.exchange_atom

    def share(run_, tile):
        first = tile // machine.tiles_per_bus * machine.tiles_per_bus
        neighbours = set(range(first, first + machine.tiles_per_bus))
        fast = neighbours <= to[run_] or len(to[run_]) == machine.tiles - 1
        return machine.tiles_per_bus if fast else 1

    cycles = []
    for tile in range(4):
        taken = sum(atoms(r[2]) / 4 / share(r, tile) for r in received[tile])
        given_ = sum(atoms(r[2]) / 4 for r in sent[tile])
        cycles.append(int(np.ceil(max(taken, given_)) + np.ceil(moved_on_tile[tile] / 16)))
    return values, cycles


@pytest.mark.parametrize("lengths", [70, 4000], ids=["some-lengths", "many-lengths"])
def test_runs_of_many_lengths_arrive(lengths):
    n = np.arange(lengths, dtype=np.int64)
    ends = np.cumsum(n)
    machine = dataclasses.replace(SMALL, tiles=1, memory_per_tile=1 << 30)
    a, b = (Variable(name, INT32, ends[-1:]) for name in "ab")
    order = np.random.default_rng(0).permutation(lengths)
    copies = Copy(a, b, (ends - n)[order], (ends - n)[order], n[order])
    p = Program("many", machine, (Exchange("all", (copies,)),), (a,), (b,))
    values = np.arange(ends[-1], dtype=np.int32)
    assert np.array_equal(run(p, {a: values}).values[b], values)


def test_a_million_runs_on_all_tiles_of_an_ipu():
    bow = preset("bow-ipu")
    runs, length = 1_000_000, 2
    counts = even_counts(runs * length, bow.tiles, grain=length)
    a, b = variable("a", counts), variable("b", counts)
    order = np.random.default_rng(0).permutation(runs).astype(np.int64)
    shuffle = Copy(a, b, order * length, np.arange(runs) * length, np.full(runs, length))
    p = Program("shuffle", bow, (Exchange("shuffle", (shuffle,)),), (a,), (b,))
    values = np.arange(runs * length, dtype=np.int32)
    result = run(p, {a: values})
    assert np.array_equal(result.values[b].reshape(-1, 2), values.reshape(-1, 2)[order])
    # Every tile gets about 679 runs of two elements, a cycle each.
    assert result.profile.tile_cycles.max() == pytest.approx(2 * 680, rel=0.01)


def test_keys_too_large_for_64_bits_still_tell_runs_apart():
    first = np.array([2**61, 5, 2**61, 2**61 + 1], dtype=np.int64)
    second = np.array([7, 7, 6, 0], dtype=np.int64)
    joined = _joined(first, second, 8)
    assert np.argsort(joined).tolist() == [1, 2, 0, 3]
    assert len(set(joined.tolist())) == 4
