"""Planners refuse what they cannot plan, in words, and plan what is merely empty."""

from dataclasses import replace

import pytest

from sparsetile.machine import preset
from sparsetile.matrix import Pattern, random_pattern
from sparsetile.plan import (
    DynamicOptions,
    PlanError,
    dense_cycles,
    plan_dynamic,
    plan_static,
    predict,
)
from support import without_type_checks

BLOCKS = random_pattern(512, 512, blocksize=16, density=0.25, seed=0)
ONES = random_pattern(512, 512, blocksize=1, density=0.25, seed=0)


def static(pattern=BLOCKS, n=8, **given):
    return plan_static(pattern, n, **given)


def dynamic(m=96, k=96, n=8, **given):
    return plan_dynamic(m, k, n, **{"density": 0.25, "blocksize": 16, **given})


def predicted(**given):
    return predict(1024, 1024, 64, **{"blocksize": 16, "density": 0.1, **given})


BAD = {
    "pattern": (lambda: static("A"), TypeError, "give a Pattern"),
    "n": (lambda: static(n=0), ValueError, "n=0; give 1 or more"),
    "n is text": (lambda: static(n="8"), TypeError, "give a whole number"),
    "dtype": (lambda: static(dtype="int8"), ValueError, "'float16' or 'float32'"),
    "dtype is a list": (lambda: static(dtype=[]), ValueError, "'float16' or 'float32'"),
    "memory": (lambda: static(memory=2), ValueError, "more than 0, at most 1"),
    "memory is nan": (lambda: predicted(memory=float("nan")), ValueError, "at most 1"),
    "machine": (lambda: static(machine="tpu"), ValueError, "bow-ipu"),
    "machine is 5": (lambda: static(machine=5), TypeError, "MachineSpec"),
    "preprocess": (lambda: static(preprocess=[]), TypeError, "True or False"),
    "block of 3": (
        lambda: static(random_pattern(9, 9, blocksize=3, density=0.5, seed=0)),
        ValueError,
        "1, 4, 8, 16",
    ),
    "intervals": (lambda: static(intervals=33), PlanError, "so many intervals"),
    "bands": (lambda: static(bands=40), PlanError, "so many intervals and bands"),
    "16 bits": (lambda: static(ONES, 64, bands=1, intervals=1), PlanError, "16 bits"),
    "no memory": (lambda: static(n=100_000, memory=0.01), PlanError, "allow more memory"),
    "density": (lambda: predicted(density=2), ValueError, "from 0 to 1"),
    "density is text": (lambda: predicted(density="x"), TypeError, "from 0 to 1"),
    "mode": (lambda: predicted(mode="both"), ValueError, "'static' or 'dynamic'"),
    "predicted block": (lambda: predicted(blocksize=2), ValueError, "1, 4, 8, 16"),
    "ragged": (lambda: dynamic(m=100), ValueError, "multiples of the block"),
    "both counts": (lambda: dynamic(max_blocks=3), ValueError, "give one of them"),
    "too many blocks": (lambda: dynamic(density=None, max_blocks=99), ValueError, "0 to 36"),
    "blocksize": (lambda: dynamic(blocksize=True), TypeError, "blocksize"),
    "options": (lambda: dynamic(options={}), TypeError, "DynamicOptions"),
    "little memory": (
        lambda: dynamic(options=DynamicOptions(memory=0.04)),
        ValueError,
        "more than 0.05",
    ),
    "oversize": (lambda: dynamic(options=DynamicOptions(oversize=-1)), ValueError, "oversize=-1"),
    "flag": (lambda: dynamic(options=DynamicOptions(grad_w="no")), TypeError, "True or False"),
    "partition": (lambda: dynamic(options=DynamicOptions(x=40, y=40)), PlanError, "1472 tiles"),
    "no such pass": (lambda: dynamic().cost("grad_w"), ValueError, "planned are 'fwd', 'grad_a'"),
    "dense size": (lambda: dense_cycles(0, 1, 1), ValueError, "m=0"),
    "dense dtype": (lambda: dense_cycles(1, 1, 1, dtype="int8"), ValueError, "float16"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_words(case):
    call, error, words = BAD[case]
    with without_type_checks(), pytest.raises(error) as refused:
        call()
    assert words in str(refused.value)


@pytest.mark.parametrize("shape", [(16, 0), (0, 16), (0, 0)])
def test_a_matrix_without_rows_or_columns_has_a_plan(shape):
    rows = -(-shape[0] // 16)
    plan = plan_static(Pattern(shape, 16, [0] * (rows + 1), []), 3)
    assert plan.cost.cycles >= 0


def test_equal_plans_are_one_and_other_options_are_others():
    assert static() is static()
    assert hash(static()) == hash(static()) and static() != static(n=9)
    assert dynamic() is dynamic()
    assert dynamic() != dynamic(options=DynamicOptions(oversize=0.5))


def test_more_workers_make_no_work_cheaper():
    machines = [replace(preset("bow-ipu"), tiles=16, workers=w) for w in (1, 2, 6, 12)]
    plans = [plan_static(BLOCKS, 64, machine=m, intervals=1, bands=1) for m in machines]
    cycles = [t.cycles for p in plans for t in p.cost.terms if t.name == "Multiply"]
    assert cycles == sorted(cycles)


def test_a_dynamic_plan_says_how_likely_propagation_is():
    tight = plan_dynamic(4096, 4096, 64, density=1 / 16, blocksize=16)
    assert "about 100 % of random patterns" in str(tight)
