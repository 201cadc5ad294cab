import dataclasses

import pytest

from sparsetile.bench import _sweep
from sparsetile.bench._errors import CommandError
from sparsetile.bench._sweep import Lists, cases_of

PLAIN = Lists("linear", "64", "", "8", "4", "1/8", "float32", "1")


def cases(**lists):
    return cases_of(dataclasses.replace(PLAIN, **lists))


def test_lists_are_combined():
    found = cases(m="64,128", n="1,8", blocksize="1,4,16x1", density="0.5,1/8", dtype="float16")
    assert len(found) == 2 * 2 * 3 * 2
    assert {(one.r, one.c) for one in found} == {(1, 1), (4, 4), (16, 1)}
    assert {one.density for one in found} == {0.5, 0.125}


def test_k_is_m_when_not_given():
    assert [(one.m, one.k) for one in cases(m="64,96")] == [(64, 64), (96, 96)]
    assert [(one.m, one.k) for one in cases(m="64", k="8,9")] == [(64, 8), (64, 9)]


def test_an_entry_that_comes_twice_is_one():
    assert len(cases(density="1/8, 0.125", blocksize="4,4x4")) == 1


def test_cells_of_the_same_threads_follow_each_other(monkeypatch):
    monkeypatch.setattr(_sweep.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    found = cases(threads="1,2", dtype="float32,bfloat16")
    assert [one.threads for one in found] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (dict(op="gemm"), "op gemm: 'gemm' cannot be; choose from linear"),
        (dict(m="64,0"), "-m 64,0: '0' cannot be; give whole numbers from 1"),
        (dict(n="-3"), "-n -3: '-3' cannot be"),
        (dict(k="1e3"), "-k 1e3: '1e3' cannot be"),
        (dict(blocksize="4x"), "--blocksize 4x: '4x' cannot be; give sides"),
        (dict(blocksize="4xy"), "--blocksize 4xy: '4xy' cannot be; give sides"),
        (dict(blocksize="0"), "--blocksize 0: '0'"),
        (dict(density="2"), "--density 2: '2' cannot be; give numbers above 0 and up to 1"),
        (dict(density="0.5,1/0"), "'1/0' cannot be"),
        (dict(density="nan"), "'nan' cannot be"),
        (dict(dtype="int8"), "--dtype int8: 'int8' cannot be; choose from float32"),
        (dict(threads="4000"), "--threads 4000: '4000' cannot be; give whole numbers from 1 to"),
        (dict(n="8,"), "-n 8,: '' cannot be"),
    ],
)
def test_a_mistake_is_named_with_what_is_allowed(lists, message):
    with pytest.raises(CommandError) as refused:
        cases(**lists)
    assert message in str(refused.value)
