"""The methods that are compared, and a model pruned by one of them."""

import copy
from collections.abc import Callable, Sequence
from typing import Literal

from torch import nn

from sparsetile.bench.minilm._subject import Batch
from sparsetile.prune import prune_

_Chooser = Literal["magnitude", "wanda", "sparsegpt"]
#: By name, what chooses the blocks, and whether the kept weights are solved for anew.
METHODS: dict[str, tuple[_Chooser, bool]] = {
    "magnitude": ("magnitude", False),
    "magnitude+solve": ("magnitude", True),
    "wanda": ("wanda", False),
    "wanda+solve": ("wanda", True),
    "sparsegpt": ("sparsegpt", False),
    "sparsegpt+solve": ("sparsegpt", True),
}


def pruned(
    dense: nn.Module,
    method: str,
    *,
    density: float,
    blocksize: int,
    calibration: Sequence[Batch],
    progress: Callable[[int, int, str], object] | None = None,
) -> nn.Module:
    """A copy of a model with every linear layer of its encoder pruned.

    Args:
        dense: The model; it stays as it is.
        method: One of `METHODS`.
        density: Share of the blocks to keep.
        blocksize: Side of the blocks.
        calibration: What the methods may look at.
        progress: Called after each layer.

    Returns:
        The pruned copy.
    """
    chooser, solve = METHODS[method]
    student = copy.deepcopy(dense)
    prune_(
        student,
        density=density,
        blocksize=blocksize,
        method=chooser,
        reconstruct=solve,
        calibration=calibration,
        # Where weights are set anew, each layer can make up for the errors of those before it.
        sequential=solve or chooser == "sparsegpt",
        output_errors=False,
        progress=progress,
    )
    return student.eval()
