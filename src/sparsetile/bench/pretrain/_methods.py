"""Names of the command line, and the methods and budgets they stand for."""

import inspect
from typing import TYPE_CHECKING, Any

from sparsetile import nn, train
from sparsetile.bench._errors import CommandError

if TYPE_CHECKING:
    from sparsetile.bench.pretrain._settings import Settings

_METHODS = {
    name.lower(): name
    for name in (
        "Static",
        "SET",
        "DynSparse",
        "RigL",
        "ITOP",
        "MEST",
        "SNFS",
        "TopKAST",
        "GMP",
        "SRigL",
    )
    if hasattr(train, name)
}
_BUDGETS = {name.lower(): name for name in ("Uniform", "ER", "ERK") if hasattr(nn, name)}
DENSE = "dense"
#: What `--method` takes.
METHODS = (DENSE, *_METHODS)
#: What `--budget` takes.
BUDGETS = tuple(_BUDGETS) or ("uniform",)


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
    kind = getattr(train, _METHODS[settings.method])
    known = inspect.signature(kind).parameters
    options: dict[str, float] = {
        "total_steps": settings.steps,
        "every": settings.every,
        "density": settings.density,
        "seed": settings.seed,
    }
    if settings.prune_ratio is not None:
        if "prune_ratio" not in known:
            able = [name for name in _METHODS if _takes(name, "prune_ratio")]
            raise CommandError(
                f"--prune-ratio {settings.prune_ratio:g}: --method {settings.method} has no such "
                f"option; leave it out, or take one of {', '.join(able)}"
            )
        options["prune_ratio"] = settings.prune_ratio
    method: train.Method = kind(**{k: v for k, v in options.items() if k in known})
    return method


def first_density(settings: "Settings") -> float:
    """Density that a run starts with: that asked for, but for methods that come from dense."""
    return 1.0 if settings.method in (DENSE, "gmp") else settings.density


def pattern_density(settings: "Settings") -> Any:
    """What `sparsify_` is given: a density, or a budget that shares it among layers."""
    density = first_density(settings)
    return (
        density if settings.budget == "uniform" else getattr(nn, _BUDGETS[settings.budget])(density)
    )


def _takes(name: str, option: str) -> bool:
    return option in inspect.signature(getattr(train, _METHODS[name])).parameters
