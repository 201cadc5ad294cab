"""How far what has spilled is from the tiles that want it."""

import numpy as np
from jaxtyping import Int64, UInt16

from sparsetile.matrix._check import message
from sparsetile.plan.dynamic import _layout as at
from sparsetile.plan.dynamic._plan import DynamicPlan


def overflow_info(
    bucket: Int64[np.ndarray, " subgroups"],
    ix: Int64[np.ndarray, " subgroups"],
    iy: Int64[np.ndarray, " subgroups"],
    plan: DynamicPlan,
) -> UInt16[np.ndarray, " words"]:
    """Say how far buckets have to travel until every subgroup has been where it belongs.

    Buckets travel to the next partition, ascending and around. As in Graphcore's popsparse library
    (poplibs), loops over z are inside loops over y inside loops over x, and all y and z are run
    through as soon as anything is wanted at another x.

    Args:
        bucket: Bucket of each subgroup.
        ix: Row partition that a subgroup belongs to.
        iy: Column partition that it belongs to.
        plan: The plan.

    Returns:
        The end indices of the loops over x, y and z, then a bit for every distance along x that
        occurs, two bits a word.

    Raises:
        ValueError: If a dimension has more partitions than 16 bits can count.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_plan
        >>> at_home, elsewhere = np.array([0]), np.array([1])
        >>> overflow_info(at_home, at_home, at_home, small_plan()).tolist()
        [1, 1, 1, 1]
        >>> overflow_info(at_home, elsewhere, at_home, small_plan()).tolist()
        [2, 2, 1, 2]
    """
    most = max(plan.x, plan.y, plan.z)
    if most > at.LARGEST:
        raise ValueError(
            message(
                "encode",
                got=f"{most} partitions of one dimension",
                allowed=f"at most {at.LARGEST}, for meta-information has 16 bits",
                fix="plan with fewer partitions",
            )
        )
    x = (ix - bucket % plan.x) % plan.x
    y = (iy - bucket // (plan.x * plan.z)) % plan.y
    x_end = int(x.max(initial=0)) + 1
    y_end = int(y.max(initial=0)) + 1 if x_end == 1 else plan.y
    words = np.zeros(at.overflow_words(plan), np.uint16)
    words[:3] = x_end, y_end, plan.z
    for distance in np.unique(x):
        words[3 + distance // at.BITS_PER_WORD] |= 1 << (distance % at.BITS_PER_WORD)
    return words
