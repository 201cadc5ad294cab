"""What planners refuse, and how they say it."""

import math

from sparsetile.plan._units import DTYPES


class PlanError(ValueError):
    """A product that has no plan on a machine; the message says why and what may help.

    Examples:
        >>> from sparsetile.plan import predict
        >>> try:
        ...     predict(8192, 8192, 1024, blocksize=1, density=1 / 4)
        ... except PlanError as error:
        ...     print(str(error).partition(";")[0])
        no static plan for 8192×8192 times 8192×1024 in blocks of 1 at density 0.25
    """


def check_size(function: str, name: str, value: object) -> None:
    """Refuse what is no whole number of 1 or more."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{function} got {name}={value!r}; give a whole number")
    if value < 1:
        raise ValueError(f"{function} got {name}={value}; give 1 or more")


def check_dtype(function: str, dtype: object) -> None:
    """Refuse dtypes that tiles do not compute with."""
    if dtype not in DTYPES:
        raise ValueError(f"{function} got dtype {dtype!r}; give {' or '.join(map(repr, DTYPES))}")


def check_share(function: str, name: str, value: object, most: float = 1.0) -> None:
    """Refuse what is no share above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{function} got {name}={value!r}; give a number")
    if not (math.isfinite(value) and 0 < value <= most):
        raise ValueError(f"{function} got {name}={value}; give more than 0, at most {most:g}")
