"""Plans print as tables and are drawn."""

import builtins

import pytest

from sparsetile.machine import load_machine
from sparsetile.matrix import random_pattern
from sparsetile.plan import Cost, DynamicOptions, Term, plan_dynamic, plan_static
from sparsetile.plan._picture import draw_plan


def static(b=4, **more):
    pattern = random_pattern(64, 96, blocksize=b, density=0.2, seed=0)
    return plan_static(pattern, 16, **more)


def dynamic(b=4, **more):
    return plan_dynamic(64, 96, 16, density=0.2, blocksize=b, **more)


@pytest.mark.parametrize("b", [1, 4])
@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_static_plans_are_drawn(tmp_path, b, suffix):
    path = tmp_path / f"plan.{suffix}"
    static(b).draw(path)
    assert path.stat().st_size > 1000


@pytest.mark.parametrize("given", [False, True])
def test_dynamic_plans_are_drawn_with_and_without_a_pattern(tmp_path, given):
    pattern = random_pattern(64, 96, blocksize=16, density=0.2, seed=0) if given else None
    path = tmp_path / "plan.svg"
    dynamic(16, dtype="float32").draw(path, pattern)
    text = path.read_text("utf-8")
    assert ("beyond it" if given else "if spread evenly") in text


def test_a_picture_is_the_same_each_time(tmp_path):
    for name in ("a.svg", "b.svg"):
        static().draw(tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_an_empty_pattern_is_drawn(tmp_path):
    pattern = random_pattern(64, 64, blocksize=4, density=0.001, seed=0)
    from sparsetile.matrix import Pattern

    empty = Pattern((64, 64), 4, [0] * 17, [])
    draw_plan(plan_static(empty, 8), tmp_path / "a.svg")
    draw_plan(plan_static(pattern, 8), tmp_path / "b.svg")
    assert (tmp_path / "a.svg").exists()


def test_other_patterns_and_suffixes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="end the name in one of these"):
        static().draw(tmp_path / "plan.txt")
    other = random_pattern(64, 64, blocksize=4, density=0.2, seed=0)
    with pytest.raises(ValueError, match=r"64×96 in blocks of 4×4: give such a pattern"):
        dynamic().draw(tmp_path / "plan.svg", other)


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **more):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r"sparsetile\[plot\]"):
        static().draw(tmp_path / "plan.svg")


def test_a_cost_prints_as_a_table():
    text = str(Cost((Term("Multiply", 30.0, 1024), Term("Sync", 10.0))))
    assert text.splitlines() == [
        "phase     cycles    share  bytes",
        "Multiply      30   75.0 %  1,024",
        "Sync          10   25.0 %",
        "Total         40  100.0 %  1,024",
    ]


def test_plans_print_partition_and_cost():
    machine = load_machine("bow-ipu")
    text = str(static())
    assert text.startswith(f"static plan on {machine.name}: 64×96, blocks of 4×4")
    assert "Multiply" in text
    text = str(dynamic(options=DynamicOptions(grad_w=True)))
    assert "nz elements per bucket" in text
    assert "grad_w, the gradient of the weight" in text
