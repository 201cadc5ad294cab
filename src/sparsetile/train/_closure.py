"""Optimizers compute the gradients themselves where they are given a closure, as by Lightning."""

from collections.abc import Callable
from typing import Any


def after_closure(
    then: Callable[[], None], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Do something when an optimizer's gradients are there: now, or whenever its closure has run.

    Args:
        then: What to do.
        args: Arguments of the optimizer's `step`, the optimizer first.
        kwargs: Its arguments by name.

    Returns:
        Other arguments for the step, with a closure that does it too; None for the same ones.

    Examples:
        >>> after_closure(lambda: print("now"), ("optimizer",), {})
        now
        >>> args, _ = after_closure(lambda: print("then"), ("optimizer", lambda: 0.5), {})
        >>> args[1]()
        then
        0.5
    """
    closure = args[1] if len(args) > 1 else kwargs.get("closure")
    if closure is None:
        then()
        return None

    def both() -> Any:
        loss = closure()
        then()
        return loss

    if len(args) > 1:
        return (args[0], both, *args[2:]), kwargs
    return args, {**kwargs, "closure": both}
