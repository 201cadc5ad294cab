"""Which back end computes a product: names, availability, override, and what ran last."""

import contextlib
import functools
import importlib
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import ModuleType

import torch

#: Back ends by name, fastest first. "auto" tries them in this order.
MODULES = {"cpu": "sparsetile.ops.cpu", "reference": "sparsetile.ops._reference"}
VARIABLE = "SPARSETILE_BACKEND"

_log = logging.getLogger("sparsetile")
_forced: ContextVar[str | None] = ContextVar("sparsetile_backend", default=None)
#: The back end chosen for this thread or task; None where none is.
forced = _forced.get
_last_kernel = ""


def backend(name: str) -> AbstractContextManager[None]:
    """Choose the back end of every product computed inside the `with` block.

    The choice belongs to the current thread or asyncio task and covers backward passes that run
    inside the block. It wins over the environment variable `SPARSETILE_BACKEND`, which is read
    once, at the first product. A product that the chosen back end cannot compute raises
    `NotImplementedError` with the reason.

    Args:
        name: "cpu", "reference", or "auto" (the fastest that can run each product).

    Returns:
        The context manager.

    Raises:
        ValueError: If there is no back end of that name.
        RuntimeError: If it exists but cannot run on this machine.

    Examples:
        >>> import torch
        >>> from sparsetile.matrix import random_pattern
        >>> from sparsetile.ops import backend, last_kernel, spmm
        >>> p = random_pattern(8, 8, blocksize=4, density=0.5, seed=0)
        >>> with backend("reference"):
        ...     y = spmm(torch.ones(2, 4, 4), p, torch.ones(8, 3))
        >>> last_kernel()
        'reference:spmm'
    """
    _check_name("backend", name)
    if name != "auto" and (reason := _load(name)[1]) is not None:
        raise RuntimeError(
            f"backend: {name!r} was asked for but cannot run here: {reason}; "
            "use backend('auto') or backend('reference')"
        )
    return _forcing(name)


def backends() -> dict[str, str | None]:
    """List the back ends, fastest first, and why one cannot run here.

    Returns:
        The name of each back end with None if it can run, else the reason why not.

    Examples:
        >>> from sparsetile.ops import backends
        >>> backends()["reference"] is None
        True
    """
    return {name: _load(name)[1] for name in MODULES}


def last_kernel() -> str:
    """Name the kernel that ran last in this process, as "<back end>:<kernel>".

    Returns:
        The name, or an empty string when nothing has run yet.

    Examples:
        >>> import torch
        >>> from sparsetile.matrix import random_pattern
        >>> from sparsetile.ops import backend, last_kernel, linear
        >>> p = random_pattern(8, 8, blocksize=4, density=0.5, seed=0)
        >>> with backend("reference"):
        ...     y = linear(torch.ones(3, 8), torch.ones(2, 4, 4), p)
        >>> last_kernel()
        'reference:linear'
    """
    return _last_kernel


def ran(name: str) -> None:
    """Note the kernel that ran; called by every back end, once per product."""
    global _last_kernel
    _last_kernel = name


def choose(
    op: str,
    dtype: torch.dtype,
    values_dtype: torch.dtype,
    blocksize: tuple[int, int],
    device: torch.device,
) -> ModuleType:
    """Find the module that computes one product: the forced back end, or the fastest that can."""
    name = forced() or _from_environment()
    return _choose(name, op, dtype, values_dtype, blocksize, device)


# One entry per kind of product, so a call pays a lookup and a fallback is logged only once.
@functools.cache
def _choose(
    name: str,
    op: str,
    dtype: torch.dtype,
    values_dtype: torch.dtype,
    blocksize: tuple[int, int],
    device: torch.device,
) -> ModuleType:
    blocks = f"{str(values_dtype).removeprefix('torch.')} blocks {blocksize}"
    if dtype is not values_dtype:
        blocks += f" and {str(dtype).removeprefix('torch.')} operands"
    what = f"{op} of {blocks} on {device.type}"
    passed_over: list[str] = []
    for candidate in MODULES if name == "auto" else (name,):
        module, reason = _load(candidate)
        if module is not None and reason is None:
            reason = module.unsupported(op, dtype, values_dtype, blocksize, device)
            if reason is None:
                if passed_over:
                    _log.info("%s runs on %r: %s", what, candidate, "; ".join(passed_over))
                return module
        passed_over.append(f"{candidate!r} cannot, {reason}")
    raise NotImplementedError(
        f"{what}: {'; '.join(passed_over)}; use sparsetile.backend('auto') or 'reference'"
    )


@functools.cache
def _load(name: str) -> tuple[ModuleType | None, str | None]:
    """Import a back end; returns it, or None and the reason why it cannot run."""
    try:
        module = importlib.import_module(MODULES[name])
    except (ImportError, OSError) as error:
        reason = f"{MODULES[name]} cannot be imported ({error})"
        warnings.warn(
            f"sparsetile: the fast back end {name!r} is missing: {reason}; "
            "products run on slower ones; install what is missing, "
            f"or set {VARIABLE}=reference to silence this",
            RuntimeWarning,
            stacklevel=2,
        )
        return None, reason
    if not hasattr(module, "linear"):
        return None, f"{MODULES[name]} holds no kernels"
    return module, None


@functools.cache
def _from_environment() -> str:
    name = os.environ.get(VARIABLE, "") or "auto"
    _check_name(VARIABLE, name)
    return name


def _check_name(what: str, name: str) -> None:
    if name != "auto" and name not in MODULES:
        raise ValueError(
            f"{what}: there is no back end {name!r}; choose one of {', '.join(MODULES)} or auto"
        )


@contextlib.contextmanager
def _forcing(name: str) -> Iterator[None]:
    token = _forced.set(name)
    try:
        yield
    finally:
        _forced.reset(token)
