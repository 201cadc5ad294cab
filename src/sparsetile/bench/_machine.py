"""The facts of the machine and of the software that a number depends on."""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from sparsetile._version import __version__


@cache
def cpu_name() -> str:
    """The processor's name as its maker writes it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()


@cache
def commit() -> str:
    """The commit of the checkout this package runs from; empty for an installed package."""
    here = Path(__file__).resolve().parent
    git = ["git", "-C", str(here)]
    try:
        # A package installed inside some other project's checkout must not take that one's commit.
        subprocess.run(
            [*git, "ls-files", "--error-unmatch", Path(__file__).name],
            check=True,
            capture_output=True,
            timeout=10,
        )
        found = subprocess.run(
            [*git, "rev-parse", "--short=10", "HEAD"],
            check=True,
            capture_output=True,
            timeout=10,
            text=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip()


def machine() -> str:
    """One line that names the machine in a row of results."""
    return f"{cpu_name()}, {os.cpu_count()} CPUs, {platform.system()}"


def command() -> str:
    """The command as it was typed, with the program's short name."""
    return shlex.join(["sparsetile", *sys.argv[1:]])


def instruction_set() -> str:
    """The instruction set of the kernels made here; empty where none can be made."""
    try:
        from sparsetile.ops.cpu import instruction_sets
    except ImportError:
        return ""
    return instruction_sets()[0]


def package_versions(
    names: Sequence[str] = (
        "torch",
        "numpy",
        "llvmlite",
        "transformers",
        "tokenizers",
        "matplotlib",
    ),
) -> dict[str, str]:
    """Versions of Python, of this package and of what it works with; absent ones are left out."""
    versions = {"sparsetile": __version__, "python": platform.python_version()}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def threads() -> int:
    """How many threads a product uses."""
    return torch.get_num_threads()
