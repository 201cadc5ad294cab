"""A long life in one process, and a short one on every older instruction set."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparsetile.ops.cpu._isa import supported

SCRIPT = Path(__file__).parents[2] / "soak.py"


def soak(calls, isa=""):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--calls", str(calls)],
        env=os.environ | {"SPARSETILE_ISA": isa, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the memory in this way")
def test_ten_thousand_products_are_right_and_memory_stays():
    assert "10000 products" in soak(10_000)


@pytest.mark.parametrize("isa", supported()[:-1])
def test_older_instruction_sets_agree_with_dense(isa):
    assert soak(600, isa).startswith(f"{isa}: 600 products")
