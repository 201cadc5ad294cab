"""What pruning did to each layer."""

from dataclasses import dataclass

_HEADER = ("layer", "shape", "block", "method", "asked", "density", "blocks", "error", "seconds")


@dataclass(frozen=True)
class PrunedLayer:
    """What pruning did to one layer.

    Attributes:
        name: Its name in the model.
        shape: Outputs and inputs.
        blocksize: Shape of the blocks.
        method: What chose the blocks, and whether the weights were solved for anew.
        asked: Share of its blocks that the budget gave it.
        density: Stored values over all values of the weight.
        blocks: Stored blocks.
        positions: Blocks it has room for.
        output_error: `‖(W - Ŵ) X‖ / ‖W X‖` over the calibration data; None where not measured.
        seconds: Time for this layer, without the runs of the model.

    Examples:
        >>> layer = PrunedLayer("up", (8, 8), (4, 4), "wanda", 0.5, 0.5, 2, 4, 0.125, 0.01)
        >>> layer.blocks / layer.positions
        0.5
    """

    name: str
    shape: tuple[int, int]
    blocksize: tuple[int, int]
    method: str
    asked: float
    density: float
    blocks: int
    positions: int
    output_error: float | None
    seconds: float


@dataclass(frozen=True)
class PruneReport:
    """What pruning did to a model; prints as a table.

    Attributes:
        layers: One entry for each layer that was pruned, in the model's order.
        seconds: Time of the whole, runs of the model included.

    Examples:
        >>> layer = PrunedLayer("up", (8, 8), (4, 4), "wanda", 0.5, 0.5, 2, 4, 0.125, 0.01)
        >>> print(PruneReport((layer,), 0.02))
        layer  shape  block  method  asked  density  blocks  error  seconds
        ───────────────────────────────────────────────────────────────────
        up       8×8    4×4  wanda    0.50     0.50     2/4  0.125     0.01
        ───────────────────────────────────────────────────────────────────
        total                         0.50     0.50     2/4  0.125     0.02
    """

    layers: tuple[PrunedLayer, ...]
    seconds: float

    @property
    def density(self) -> float:
        """Stored values over all values of the layers."""
        every = sum(layer.shape[0] * layer.shape[1] for layer in self.layers)
        kept = sum(layer.density * layer.shape[0] * layer.shape[1] for layer in self.layers)
        return kept / every if every else 1.0

    @property
    def output_error(self) -> float | None:
        """Mean of the layers' output errors; None where none was measured."""
        errors = [layer.output_error for layer in self.layers if layer.output_error is not None]
        return sum(errors) / len(errors) if errors else None

    def __str__(self) -> str:
        table = [_HEADER, *map(_cells, self.layers), self._total()]
        widths = [max(len(row[i]) for row in table) for i in range(len(_HEADER))]
        text = (0, 3)  # the rest are numbers
        lines = [
            "  ".join(
                cell.ljust(width) if i in text else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]
        rule = "─" * max(map(len, lines))
        return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]])

    def _total(self) -> tuple[str, ...]:
        blocks = sum(layer.blocks for layer in self.layers)
        positions = sum(layer.positions for layer in self.layers)
        return (
            "total",
            "",
            "",
            "",
            f"{blocks / positions if positions else 1.0:.2f}",
            f"{self.density:.2f}",
            f"{blocks:,}/{positions:,}",
            _error(self.output_error),
            f"{self.seconds:.2f}",
        )


def _cells(layer: PrunedLayer) -> tuple[str, ...]:
    return (
        layer.name,
        "×".join(map(str, layer.shape)),
        "×".join(map(str, layer.blocksize)),
        layer.method,
        f"{layer.asked:.2f}",
        f"{layer.density:.2f}",
        f"{layer.blocks:,}/{layer.positions:,}",
        _error(layer.output_error),
        f"{layer.seconds:.2f}",
    )


def _error(error: float | None) -> str:
    return "" if error is None else f"{error:.3f}"
