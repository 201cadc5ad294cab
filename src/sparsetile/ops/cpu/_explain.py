"""What a product runs, seen by watching it: kernels, how their workers were called, their code."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields

from sparsetile.ops.cpu import _jit, _threads
from sparsetile.ops.cpu._call import Layout


@dataclass(frozen=True)
class Launch:
    """One run of one worker of a kernel."""

    kernel: _jit.Kernel
    worker: str
    threads: int
    arguments: dict[str, int]  # sizes the worker was given; addresses are left out

    @property
    def kind(self) -> str:
        """Name of the kernel's class, such as ``PanelKernel``."""
        return type(self.kernel).__name__

    @property
    def settings(self) -> dict[str, object]:
        """The fields that decide the kernel's code, by name."""
        return {field.name: getattr(self.kernel, field.name) for field in fields(self.kernel)}  # type: ignore[arg-type]

    def ir(self) -> str:
        """Write the kernel's LLVM IR."""
        return self.kernel.ir()

    def assembly(self) -> str:
        """Write the kernel's assembly for the instruction set in use."""
        return _jit.assembly(self.ir())


def explain(product: Callable[[], object]) -> list[Launch]:
    """Run a product and tell what ran.

    Args:
        product: Computes it.

    Returns:
        The runs of workers, in order.
    """
    with _threads.watching() as runs:
        product()
    launches = []
    for address, call, threads in runs:
        kernel, worker = _jit.owner(address)
        launches.append(Launch(kernel, worker, threads, _layout(kernel).read(call)))
    return launches


def _layout(kernel: _jit.Kernel) -> Layout:
    """Find the argument array of a kernel: it stands beside the class, or beside its base."""
    for base in type(kernel).__mro__:
        layout = getattr(sys.modules[base.__module__], "LAYOUT", None)
        if layout is not None:
            return layout
    raise TypeError(f"{type(kernel).__name__} has no LAYOUT in its module")
