"""Checks of what pruning is asked for."""

import numbers
from typing import Any

import torch


def message(asked: str, *, got: object, allowed: str, fix: str) -> str:
    """Join the four parts of an error: what was asked, was given, is allowed, and what to do.

    Args:
        asked: The argument or layer that was asked for.
        got: What was given.
        allowed: What is allowed.
        fix: What to do instead.

    Returns:
        One line of text.

    Examples:
        >>> message("steps", got=0, allowed="an int of 1 or more", fix="leave it out for one")
        'steps: got 0; allowed: an int of 1 or more; leave it out for one'
    """
    return f"{asked}: got {got}; allowed: {allowed}; {fix}"


def checked_int(name: str, value: Any, *, fix: str, least: int = 1) -> int:
    """Check a whole number.

    Raises:
        TypeError: If it is none.
        ValueError: If it is too small.
    """
    allowed = f"an int of {least} or more"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(message(name, got=repr(value), allowed=allowed, fix=fix))
    if value < least:
        raise ValueError(message(name, got=value, allowed=allowed, fix=fix))
    return int(value)


def checked_positive(name: str, value: Any, *, fix: str) -> float:
    """Check a positive, finite number.

    Raises:
        TypeError: If it is no number.
        ValueError: If it is not positive and finite.
    """
    allowed = "a finite number above 0"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(message(name, got=repr(value), allowed=allowed, fix=fix))
    if not 0 < float(value) < float("inf"):
        raise ValueError(message(name, got=value, allowed=allowed, fix=fix))
    return float(value)


def checked_flag(name: str, value: Any) -> bool:
    """Check a yes or no.

    Raises:
        TypeError: If it is neither.
    """
    if not isinstance(value, bool):
        raise TypeError(message(name, got=repr(value), allowed="True or False", fix="pass one"))
    return value


def check_word(name: str, value: Any, words: tuple[str, ...]) -> None:
    """Check a word that chooses.

    Raises:
        ValueError: If it is none of these.
    """
    if not isinstance(value, str) or value not in words:
        allowed = ", ".join(map(repr, words))
        raise ValueError(message(name, got=repr(value), allowed=allowed, fix="pass one of these"))


def check_solver_dtype(value: Any) -> None:
    """Check the type that linear systems are solved in.

    Raises:
        ValueError: If it is not float32 or float64.
    """
    if value not in (torch.float32, torch.float64):
        raise ValueError(
            message(
                "dtype",
                got=repr(value),
                allowed="torch.float32 or torch.float64",
                fix="half precision cannot solve these systems; leave it out for float64",
            )
        )
