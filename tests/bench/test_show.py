"""`sparsetile show`: the kernel that runs, its settings, its code."""

import os
import subprocess
import sys

import pytest

from sparsetile import __main__
from sparsetile.ops.cpu import instruction_sets


@pytest.fixture
def show(monkeypatch, capsys):
    def show(text):
        monkeypatch.setattr(sys, "argv", ["sparsetile", "show", *text.split()])
        code = __main__.main()
        out, err = capsys.readouterr()
        return code, out, err

    return show


SMALL = "-m 64 -k 96 -n 40"


@pytest.mark.parametrize(
    ("asked", "kernel", "ran"),
    [
        ("linear --blocksize 16", "linear_f32_b16x16/panel", "PanelKernel whole"),
        ("linear --blocksize 1 --transpose", "linear_f32_b1x1_t/sliced", "ArrangeKernel gather"),
        ("spmm --blocksize 2 --dtype float16", "spmm_f16_b2x2/sliced", "SlicedKernel whole"),
        ("spmm --dtype float32*bfloat16", "spmm_f32*bf16_b16x16/panel", "numbers f32*bf16"),
        ("sddmm --blocksize 8", "sddmm_f32_b8x8/outer", "OuterKernel whole"),
        ("sddmm --blocksize 1", "sddmm_f32_b1x1/dot", "DotKernel rows"),
    ],
)
def test_the_kernel_and_its_runs_are_named(show, asked, kernel, ran):
    code, out, _ = show(f"{asked} {SMALL} --density 1/4")
    assert code == 0
    assert f"kernel: cpu:{kernel}\n" in out
    assert f"instruction set: {instruction_sets()[0]}\n" in out
    assert ran in out
    assert "called with: " in out and "define" not in out


def test_sizes_and_threads_are_those_asked_for(show):
    out = show(f"linear {SMALL} --threads 2")[1]
    assert "1 thread\n" in out  # too little work for two
    assert "m 64" in out and "k 96" in out and "block 16×16" in out


def test_code_is_printed_where_it_is_asked_for(show):
    ir = show(f"linear {SMALL} --ir")[1]
    assert "define void @whole(" in ir and "; LLVM IR of PanelKernel (run 1)" in ir
    assembly = show(f"linear {SMALL} --asm")[1]
    assert "whole:" in assembly and "# assembly of PanelKernel" in assembly


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("train-step", "linear, spmm, sddmm"),
        ("linear --blocksize 4,8", "one product"),
        ("sddmm --transpose", "--transpose goes with linear and spmm"),
        ("linear --isa sse", "sse"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line(show, monkeypatch, asked, says):
    monkeypatch.setenv("SPARSETILE_ISA", "")
    code, out, err = show(asked)
    assert code == 1 and not out
    assert says in err and err.count("\n") == 1


@pytest.mark.parametrize("isa", instruction_sets()[1])
def test_another_instruction_set_is_shown_in_a_new_process(isa):
    asked = f"show linear {SMALL} --isa {isa}".split()
    done = subprocess.run(
        [sys.executable, "-m", "sparsetile", *asked],
        capture_output=True,
        text=True,
        env={name: v for name, v in os.environ.items() if name != "SPARSETILE_ISA"},
    )
    assert done.stderr == ""
    assert f"instruction set: {isa}\n" in done.stdout
