"""What to say when a saved model does not hold what it should."""

from collections.abc import Mapping
from typing import Any


def refusal(asked: str, *, got: str, allowed: str, fix: str) -> str:
    """Join the four parts of an error: what was asked, was given, is allowed, and what to do."""
    return f"{asked}: got {got:.300}; allowed: {allowed}; {fix}"


def field(where: str, table: Any, name: str, kind: type | tuple[type, ...]) -> Any:
    """Take one entry of a JSON object, of a known type.

    Raises:
        ValueError: If it is not there, or is of another type.
    """
    value = table.get(name) if isinstance(table, Mapping) else None
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ValueError(
            refusal(
                f"{where}, {name!r}",
                got=repr(value),
                allowed=" or ".join(k.__name__ for k in kinds),
                fix="the file is damaged or not sparsetile's: save the model again",
            )
        )
    return value


def sizes(where: str, table: Any, name: str) -> tuple[int, int]:
    """Take a pair of sizes out of a JSON object."""
    pair = field(where, table, name, list)
    if len(pair) != 2 or not all(type(n) is int and 0 <= n < 2**48 for n in pair):
        raise ValueError(
            refusal(
                f"{where}, {name!r}",
                got=repr(pair),
                allowed="two sizes",
                fix="the file is damaged or not sparsetile's: save the model again",
            )
        )
    return pair[0], pair[1]
