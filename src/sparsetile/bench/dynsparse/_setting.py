"""What one training run is: every choice that its result depends on."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

#: Methods of a run; all but `dense` are sparse.
METHODS = ("dense", "static", "dynsparse", "rigl")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One run. Equal settings give equal weights, bit for bit, on one machine.

    Args:
        method: One of `METHODS`.
        blocksize: Side of the blocks; 0 for a dense model.
        width: Features of a token.
        layers: Transformer blocks.
        lr: Highest learning rate.
        steps: Optimizer steps.
        seed: Of first values, patterns, growth and data order.
        every: Steps between updates; 0 where the pattern stays.
        prune_ratio: Share of the blocks to move at first.
        drop: How blocks are scored: `l1`, `l2` or `max`.
        density: Share of the blocks that sparse layers keep.
        batch: Rows of a step.
        sequence: Tokens of a row.
        vocabulary: Different tokens.
        objective: `clm` predicts the next token, `mlm` restores masked ones.
        text: What is trained on.

    Examples:
        >>> Setting(method="static", blocksize=4, width=256, layers=2, lr=4e-3, steps=100).name
        'static-b4-L2-H256-lr0.004-n100-s0'
    """

    method: str
    blocksize: int
    width: int
    layers: int
    lr: float
    steps: int
    seed: int = 0
    every: int = 0
    prune_ratio: float = 0.0
    drop: str = ""
    density: float = 0.1
    batch: int = 8
    sequence: int = 64
    vocabulary: int = 1024
    objective: str = "clm"
    text: str = ""

    @property
    def moves(self) -> bool:
        """True when blocks move."""
        return self.every > 0

    @property
    def name(self) -> str:
        """Short name, for people; a tier has no two runs of one name."""
        parts = [self.method]
        if self.blocksize:
            parts.append(f"b{self.blocksize}")
        parts += [f"L{self.layers}", f"H{self.width}", f"lr{self.lr:g}", f"n{self.steps}"]
        if self.moves:
            parts += [f"e{self.every}", f"p{self.prune_ratio:g}", self.drop]
        if self.objective != "clm":
            parts.append(self.objective)
        return "-".join([*parts, f"s{self.seed}"])


#: Columns of a CSV that tell a run's setting.
COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(Setting))
_TEXTS = ("method", "drop", "objective", "text")


def cells(setting: Setting) -> dict[str, Any]:
    """A setting as the cells of a CSV row."""
    return asdict(setting)


def setting_of(row: Mapping[str, Any]) -> Setting:
    """The setting of a CSV row."""
    empty = Setting(method="", blocksize=0, width=0, layers=0, lr=0.0, steps=0)
    # An empty cell is None, and 1.0 comes back as 1.
    values = {name: type(getattr(empty, name))(row[name] or 0) for name in COLUMNS}
    return Setting(**values | {name: row[name] or "" for name in _TEXTS})
