"""Where the time of a training step goes: our products, our other code, torch's parts."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.profiler import ProfilerActivity, profile

from sparsetile.bench._steptime import Case

FORWARD, BACKWARD = "forward", "backward"
#: Categories of the time in products, ours and torch's.
PRODUCTS = ("product: forward", "product: dx", "product: dvalues", "torch's dx and dweight")
_OURS = "our other code: "
_REST = "python, dispatch, rest"
# By what the operators' names contain; the first that fits decides.
_TORCH = (
    ("attention", ("scaled_dot_product", "softmax", "bmm", "baddbmm")),
    ("norms", ("layer_norm", "LayerNorm")),
    ("activation", ("gelu",)),
    ("dropout", ("dropout", "bernoulli")),
    ("casts and copies", ("copy", "aten::to", "ToCopy", "contiguous")),
    ("torch's bias gradient", ("aten::sum",)),
)
_DENSE = ("aten::mm", "aten::addmm", "aten::linear", "mkldnn_linear")


@dataclass(frozen=True)
class Share:
    """What one category takes of a step.

    Examples:
        >>> Share("norms", 0.05).part
        0.05
    """

    category: str
    part: float

    @property
    def is_product(self) -> bool:
        """Whether it is time in a product with the weights."""
        return self.category in PRODUCTS

    @property
    def is_ours(self) -> bool:
        """Whether it is code of this project outside the products."""
        return self.category.startswith(_OURS)


def shares_of(case: Case, rounds: int = 3) -> list[Share]:
    """Profile steps and divide their time among categories.

    Args:
        case: A model that has done a step already.
        rounds: Steps to profile.

    Returns:
        The categories, the largest first; their parts add up to one. Time in Python and in torch's
        dispatcher is what remains; the profiler makes it look larger than it is.

    Examples:
        >>> from sparsetile.bench._steptime import Model
        >>> case = Case(Model(layers=1, width=32, heads=2, sequence=8, batch=2), (8, 8), 0.5)
        >>> shares = shares_of(case, rounds=1)
        >>> round(sum(share.part for share in shares), 6)
        1.0
        >>> {"product: forward", "product: dx"} <= {share.category for share in shares}
        True
    """
    # Torch's profiler else tells stderr of every start and stop.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    spent: dict[str, float] = defaultdict(float)
    wall = 0.0

    def watched(phase: str, call: Callable[[], Any]) -> Any:
        nonlocal wall
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            start = time.perf_counter()
            result = call()
            wall += 1e6 * (time.perf_counter() - start)
        for name, microseconds in _by_category(seen.events() or (), phase):
            spent[name] += microseconds
        return result

    for _ in range(rounds):
        loss = watched(FORWARD, case.forward)
        watched(BACKWARD, partial(case.learn, loss))
        watched("optimizer", case.update)
    spent[_REST] += max(0.0, wall - sum(spent.values()))
    total = sum(spent.values())
    return [
        Share(name, amount / total)
        for name, amount in sorted(spent.items(), key=lambda part: -part[1])
    ]


def bound(dense_over_sparse: float, shares: Iterable[Share]) -> float:
    """How much faster than the dense step it would be if products took no time.

    Examples:
        >>> bound(3.0, [Share("product: forward", 0.5), Share("norms", 0.5)])
        6.0
    """
    rest = sum(share.part for share in shares if not share.is_product)
    return dense_over_sparse / rest if rest else float("inf")


def _by_category(events: Iterable[Any], phase: str) -> Iterable[tuple[str, float]]:
    for event in events:
        if event.self_cpu_time_total > 0:
            yield _category(event, phase), event.self_cpu_time_total


def _category(event: Any, phase: str) -> str:
    name = event.name
    if phase not in (FORWARD, BACKWARD):
        return phase
    if name == "sparsetile::sddmm":
        return PRODUCTS[2]
    if name == "sparsetile::linear":
        return PRODUCTS[0] if phase == FORWARD else PRODUCTS[1]
    if name.startswith(_DENSE):
        return PRODUCTS[0] if phase == FORWARD else PRODUCTS[3]
    if _inside(event, "sparsetile::"):  # casts and allocations of a product
        return _category(_first(event, "sparsetile::"), phase)
    if _inside(event, "LayerProduct"):
        return f"{_OURS}{'bias gradient' if 'sum' in name else 'autograd functions'}"
    for category, words in _TORCH:
        if any(word in name for word in words):
            return category
    return _REST if "Backward" in name or "view" in name else "torch's other operators"


def _inside(event: Any, word: str) -> bool:
    return _first(event, word) is not None


def _first(event: Any, word: str) -> Any:
    """The innermost event that has the word in its name, from this one outwards."""
    while event is not None and word not in event.name:
        event = event.cpu_parent
    return event
