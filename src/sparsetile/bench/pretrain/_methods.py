"""Names of the command line, and the methods and budgets they stand for."""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from sparsetile import nn, train
from sparsetile.bench._errors import CommandError
from sparsetile.bench._model import in_block

if TYPE_CHECKING:
    from sparsetile.bench.pretrain._settings import Settings

_METHODS: dict[str, type[train.Method]] = {
    "static": train.Static,
    "set": train.SET,
    "dynsparse": train.DynSparse,
    "rigl": train.RigL,
    "itop": train.ITOP,
    "mest": train.MEST,
    "snfs": train.SNFS,
    "topkast": train.TopKAST,
    "gmp": train.GMP,
    "srigl": train.SRigL,
}
_BUDGETS = {"uniform": nn.Uniform, "er": nn.ER, "erk": nn.ERK}
DENSE = "dense"
#: What `--method` takes.
METHODS = (DENSE, *_METHODS)
#: What `--budget` takes.
BUDGETS = tuple(_BUDGETS)


def method_of(settings: "Settings") -> train.Method | None:
    """The sparse training method that is asked for.

    Args:
        settings: The run.

    Returns:
        The method; None for a dense model.

    Raises:
        CommandError: If an option is given that the method does not have.

    Examples:
        >>> from sparsetile.bench.pretrain import Settings
        >>> type(method_of(Settings(method="dynsparse"))).__name__
        'DynSparse'
    """
    if settings.method == DENSE:
        return None
    kind = _METHODS[settings.method]
    known = _options(kind)
    options: dict[str, Any] = {
        "total_steps": settings.steps,
        "every": settings.every,
        "density": settings.density,
        "seed": settings.seed,
    }
    if settings.prune_ratio is not None:
        if "prune_ratio" not in known:
            able = [name for name, other in _METHODS.items() if "prune_ratio" in _options(other)]
            raise CommandError(
                f"--prune-ratio {settings.prune_ratio:g}: --method {settings.method} has no such "
                f"option; leave it out, or take one of {', '.join(able)}"
            )
        options["prune_ratio"] = settings.prune_ratio
    return kind(**{name: value for name, value in options.items() if name in known})


def first_density(settings: "Settings") -> float:
    """Density that a run starts with: that asked for, but for methods that come from dense."""
    return 1.0 if settings.method in (DENSE, "gmp") else settings.density


def sparsify_(model: torch.nn.Module, settings: "Settings") -> None:
    """Make the layers of the blocks sparse, with a pattern fit for the method, in place."""
    nn.sparsify_(
        model,
        density=_BUDGETS[settings.budget](first_density(settings)),
        blocksize=settings.block,
        filter=in_block,
        balanced=settings.method == "srigl",
    )


def _options(kind: type[train.Method]) -> Mapping[str, Any]:
    return inspect.signature(kind).parameters
