"""What became of each layer of a model full of zeros, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparsetile.models._fill import percent

_HEADER = ("layer", "shape", "zeros", "live 1", "4", "8", "16", "32", "block", "bytes", "bytes now")


@dataclass(frozen=True)
class LayerReport:
    """One layer.

    Attributes:
        name: Its name in the model.
        shape: Sizes `(out, in)` of its weight.
        zeros: Share of its values that is zero, or dropped by a mask.
        live: Share of its square blocks that holds a non-zero, by side.
        blocksize: The blocks it is stored in now; None if it is dense.
        why: The reason in words.
        bytes_before: Bytes of the dense weight.
        bytes_after: Bytes of the stored blocks and their indices.
        gain: Estimated time of the dense product over that of the sparse one.
        reordered: Whether its rows or columns were put into another order.

    Examples:
        >>> LayerReport("up", (8, 8), 0.0, {1: 1.0}, None, "no zeros", 256, 256).gain
        1.0
    """

    name: str
    shape: tuple[int, ...]
    zeros: float
    live: Mapping[int, float]
    blocksize: int | None
    why: str
    bytes_before: int
    bytes_after: int
    gain: float = 1.0
    reordered: bool = False


@dataclass(frozen=True)
class Report:
    """All linear layers of a model; prints as a table with a reason for each.

    Attributes:
        layers: One for each linear layer, in the model's order.
        notes: What else is to be said, as where an order could not be changed.

    Examples:
        >>> layer = LayerReport("up", (8, 8), 0.5, {1: 0.5}, None, "half is zero", 256, 256)
        >>> Report((layer,)).bytes_after
        256
    """

    layers: tuple[LayerReport, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def bytes_before(self) -> int:
        """Bytes of the dense weights."""
        return sum(layer.bytes_before for layer in self.layers)

    @property
    def bytes_after(self) -> int:
        """Bytes of what is stored now."""
        return sum(layer.bytes_after for layer in self.layers)

    def __getitem__(self, name: str) -> LayerReport:
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(name)

    def __str__(self) -> str:
        rows = [_HEADER, *(_cells(layer) for layer in self.layers)]
        rows.append(("total", *[""] * 8, f"{self.bytes_before:,}", f"{self.bytes_after:,}"))
        wide = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
        lines = [
            "  ".join(
                cell.rjust(wide[i]) if i else cell.ljust(wide[i]) for i, cell in enumerate(row)
            ).rstrip()
            for row in rows
        ]
        rule = "─" * max(map(len, lines))
        table = [lines[0], rule, *lines[1:-1], rule, lines[-1]]
        reasons = [f"{layer.name or 'model'}: {layer.why}" for layer in self.layers]
        return "\n".join([*table, *reasons, *self.notes])


def _cells(layer: LayerReport) -> tuple[str, ...]:
    block = f"{layer.blocksize}×{layer.blocksize}" if layer.blocksize else "dense"
    return (
        layer.name or "model",
        "×".join(map(str, layer.shape)),
        percent(layer.zeros),
        *(percent(layer.live[side]) if side in layer.live else "" for side in (1, 4, 8, 16, 32)),
        block + (", reordered" if layer.reordered else ""),
        f"{layer.bytes_before:,}",
        f"{layer.bytes_after:,}",
    )
