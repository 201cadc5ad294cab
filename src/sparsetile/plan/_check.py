"""What planners refuse, and how they say it."""

import math
from numbers import Integral

from sparsetile.plan._units import DTYPES


class PlanError(ValueError):
    """A product that has no plan on a machine; the message says why and what may help.

    Examples:
        >>> from sparsetile.plan import predict
        >>> try:
        ...     predict(8192, 8192, 1024, blocksize=1, density=1 / 4)
        ... except PlanError as error:
        ...     print(str(error).partition(" on ")[0])
        no static plan for 8192×8192 times 8192×1024 in blocks of 1 at density 0.25
    """


def check_size(function: str, name: str, value: object, least: int = 1) -> int:
    """Refuse what is no whole number of 1 or more."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{function} got {name}={value!r}; give a whole number")
    if value < least:
        raise ValueError(f"{function} got {name}={value}; give {least} or more")
    return int(value)


def check_sizes(function: str, m: object, k: object, n: object) -> tuple[int, int, int]:
    """Refuse sizes of a product that are no whole numbers of 1 or more."""
    return check_size(function, "m", m), check_size(function, "k", k), check_size(function, "n", n)


def check_flag(function: str, name: str, value: object) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise TypeError(f"{function} got {name}={value!r}; give True or False")


def check_density(function: str, value: object) -> None:
    """Refuse what is no share from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{function} got density={value!r}; give a number from 0 to 1")
    if not 0 <= value <= 1:
        raise ValueError(f"{function} got density={value}; give a number from 0 to 1")


def check_dtype(function: str, dtype: object) -> None:
    """Refuse dtypes that tiles do not compute with."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"{function} got dtype {dtype!r}; give {' or '.join(map(repr, DTYPES))}")


def check_share(
    function: str, name: str, value: object, above: float = 0.0, most: float = 1.0
) -> None:
    """Refuse what is no share above 0 (or another least) and at most 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{function} got {name}={value!r}; give a number")
    if not (math.isfinite(value) and above < value <= most):
        allowed = f"more than {above:g}, at most {most:g}"
        raise ValueError(f"{function} got {name}={value}; give {allowed}")
