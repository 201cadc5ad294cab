"""What a trainer tells about itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Update:
    """What one update did, by layer.

    Attributes:
        step: After which optimizer step it came.
        moved: Blocks grown.
        dropped: Blocks dropped.
        wasted: Blocks dropped that the update before had grown.
        blocks: Blocks stored afterwards.

    Examples:
        >>> Update(step=100, moved={"up": 30, "down": 20}).total
        50
    """

    step: int
    moved: Mapping[str, int]
    dropped: Mapping[str, int] = field(default_factory=dict)
    wasted: Mapping[str, int] = field(default_factory=dict)
    blocks: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Blocks grown in all layers."""
        return sum(self.moved.values())

    @property
    def wasted_share(self) -> float:
        """Share of the dropped blocks that the update before had grown."""
        return sum(self.wasted.values()) / max(sum(self.dropped.values()), 1)


@dataclass(frozen=True)
class Coverage:
    """Share of the block positions that have been stored at any time, by layer and on average.

    Examples:
        >>> Coverage({"up": 0.5, "down": 0.25}).mean
        0.375
    """

    layers: Mapping[str, float]

    @property
    def mean(self) -> float:
        """Average over the layers."""
        return sum(self.layers.values()) / max(len(self.layers), 1)
