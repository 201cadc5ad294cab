"""What a pattern does while it is trained: coverage, wasted growth, empty rows."""

from sparsetile.bench.dynsparse._model import LanguageModel
from sparsetile.nn import Linear
from sparsetile.train import Trainer


class Watch:
    """Follows the sparse layers of a model; of a dense one it has nothing to tell.

    Args:
        model: The model.
        trainer: What moves its blocks, if anything.
    """

    def __init__(self, model: LanguageModel, trainer: Trainer | None) -> None:
        self._layers = [m for m in model.modules() if isinstance(m, Linear)]
        self._trainer = trainer

    @property
    def updates(self) -> int:
        """Updates so far."""
        return 0 if self._trainer is None else len(self._trainer.history)

    @property
    def wasted(self) -> float:
        """Share of the dropped blocks that were grown just one update before."""
        history = [] if self._trainer is None else self._trainer.history
        dropped = sum(sum(update.dropped.values()) for update in history)
        return sum(sum(update.wasted.values()) for update in history) / max(dropped, 1)

    def coverage(self) -> float:
        """Share of the positions that were stored at any time, on average over the layers."""
        return 1.0 if self._trainer is None else self._trainer.coverage().mean

    def empty_rows(self) -> int:
        """Block rows of all layers in which nothing is stored now."""
        return sum(int((layer.crow_indices.diff() == 0).sum()) for layer in self._layers)

    @property
    def block_rows(self) -> int:
        """Block rows of all layers."""
        return sum(len(layer.crow_indices) - 1 for layer in self._layers)
