"""How likely a random pattern is to need propagation."""

import math
from statistics import NormalDist

from sparsetile.plan.dynamic._plan import DynamicPlan


def spill_odds(plan: DynamicPlan) -> float:
    """The share of random patterns of the planned density whose buckets spill.

    A part's non-zeros go to as many buckets as there are batch partitions; where they hold no more,
    some go to buckets of other parts, and all buckets travel. The planner counts no cycles for
    that. How many blocks a part stores is taken as normal, and the parts as independent.

    Args:
        plan: The plan.

    Returns:
        A number from 0 to 1.

    Examples:
        >>> from sparsetile.plan import plan_dynamic
        >>> large = plan_dynamic(4096, 4096, 1024, density=1 / 16, blocksize=16)
        >>> small = plan_dynamic(4096, 4096, 64, density=1 / 16, blocksize=16)
        >>> round(spill_odds(large), 2), round(spill_odds(small), 2)
        (0.45, 1.0)
    """
    (r, c), parts = plan.kernel_block, plan.x * plan.y
    grid = -(-plan.m // r) * -(-plan.k // c)
    density = plan.max_blocks / max(grid, 1)
    blocks = (plan.x_size // r) * (plan.y_size // c)
    room = plan.z * (plan.bucket_values // (r * c))
    spread = math.sqrt(blocks * density * (1 - density) * (1 - 1 / parts))
    if spread == 0:
        return float(blocks * density > room)
    return 1 - NormalDist(blocks * density, spread).cdf(room + 0.5) ** parts
