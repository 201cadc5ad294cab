"""Sizes and rates that every cost function needs."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from jaxtyping import Num

Floats: TypeAlias = npt.NDArray[np.float64] | np.float64
Ints: TypeAlias = npt.NDArray[np.int64] | np.int64
Numbers: TypeAlias = Num[np.ndarray, "..."] | int | float | np.number
"""A number, or one for each of many candidates or tiles."""

DTYPES = ("float16", "float32")
BYTES = {"float16": 2, "float32": 4}
# A register holds 8 bytes: elements that one instruction loads and multiplies.
VECTOR = {"float16": 4, "float32": 2}


def up(number: Numbers, grain: Numbers) -> Ints:
    """How many grains hold a number: the quotient, rounded up.

    Examples:
        >>> int(up(7, 2))
        4
    """
    return -(-np.asarray(number) // np.asarray(grain))
