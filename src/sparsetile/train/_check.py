"""Checks of what methods are made of and called with."""

import numbers
from typing import Any

from sparsetile.nn import BlockSparse


def checked_int(name: str, value: Any, *, least: int, most: int | None = None) -> int:
    """Check a whole number.

    Raises:
        TypeError: If it is none.
        ValueError: If it is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an int, got {value!r} of type {type(value).__name__}")
    number = int(value)
    if number < least or (most is not None and number > most):
        allowed = f"{least} or more" if most is None else f"{least} to {most}"
        raise ValueError(f"{name} must be {allowed}, got {number}{_advice(name, number)}")
    return number


def _advice(name: str, number: int) -> str:
    if (name, number) != ("total_steps", -1):
        return ""
    return (
        "; in Hugging Face's TrainingArguments max_steps is -1 where epochs are given: count the "
        "steps of the optimizer, or set max_steps"
    )


def checked_share(name: str, value: Any) -> float:
    """Check a share between 0 and 1, both allowed.

    Raises:
        TypeError: If it is no number.
        ValueError: If it is out of range or NaN.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}")
    share = float(value)
    if not 0 <= share <= 1:
        raise ValueError(f"{name} must be between 0 and 1, got {share}")
    return share


def check_layer(layer: Any) -> None:
    """Refuse what is no sparse layer.

    Raises:
        TypeError: If it is none.
    """
    if not isinstance(layer, BlockSparse):
        raise TypeError(
            f"layer must be a sparse layer such as sparsetile.nn.Linear, got {type(layer).__name__}"
        )


def last_step(total_steps: Any, share: Any, *, name: str = "stop", least: int = 1) -> int:
    """Find the step at which a share of a run is over.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or the share is less than `least` steps.
    """
    total_steps = checked_int("total_steps", total_steps, least=1)
    step = round(checked_share(name, share) * total_steps)
    if step < least:
        raise ValueError(
            f"{name}={share} is not one step of total_steps={total_steps}; give a larger share"
        )
    return step
