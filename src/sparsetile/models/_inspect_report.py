"""What a model holds, weight by weight, and what blocks would make of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from sparsetile.models._fill import percent

SIDES = (1, 4, 8, 16, 32)
_HEADER = (
    "layer", "shape", "kept as", "zeros", "live 1", "4", "8", "16", "32",
    "bytes", "dense", "in blocks", "gain",
)  # fmt: skip


@dataclass(frozen=True)
class InspectedLayer:
    """One weight matrix.

    Attributes:
        name: Its name in the model or file; `""` for the only one.
        shape: Its sizes.
        dtype: Type of its values, such as `"float32"`.
        kind: How it is kept: `"dense"`, `"masked"`, `"sparse 16×16"`, or how a file spells it.
        zeros: Share of its values that is zero or left out.
        live: Share of its square blocks that holds a kept value, by side.
        bytes: Bytes it takes now.
        dense_bytes: Bytes of the dense matrix.
        block_bytes: Bytes of the live blocks and their indices, by side.
        blocksize: The blocks to store it in; None where dense is better.
        gain: Estimated time of the dense product over that of the sparse one; 1 for dense.
        why: The reason in words.

    Examples:
        >>> layer = InspectedLayer(
        ...     "up", (8, 8), "float32", "dense", 0.0, {1: 1.0}, 256, 256, {1: 548}, None, 1.0, ""
        ... )
        >>> layer.best_bytes
        256
    """

    name: str
    shape: tuple[int, int]
    dtype: str
    kind: str
    zeros: float
    live: Mapping[int, float]
    bytes: int
    dense_bytes: int
    block_bytes: Mapping[int, int]
    blocksize: int | None
    gain: float
    why: str

    @property
    def best_bytes(self) -> int:
        """Bytes in the blocks that are best, or dense."""
        return self.dense_bytes if self.blocksize is None else self.block_bytes[self.blocksize]


@dataclass(frozen=True)
class Inspection:
    """All weight matrices of a model; prints as a table, with a reason for each that has zeros.

    The gain is estimated from measured tables, not measured here; `sparsetile.nn.advise` measures.

    Attributes:
        source: The file or folder, or the class of the model.
        formats: What was recognised in it.
        layers: One for each weight matrix.
        other_tensors: How many other tensors there are: biases, norms, kernels of convolutions.
        other_bytes: Their bytes.
        pictures: Files of the pictures that were drawn, by name.

    Examples:
        >>> live = {1: 0.1, 4: 0.2, 8: 0.4, 16: 0.8, 32: 1.0}
        >>> sizes = {1: 90, 4: 80, 8: 90, 16: 200, 32: 300}
        >>> layer = InspectedLayer(
        ...     "up", (8, 8), "float32", "dense", 0.9, live, 256, 256, sizes, 4, 4.2, "mostly zeros"
        ... )
        >>> found = Inspection("MLP", ("dense",), (layer,), 1, 32)
        >>> found.zeros, found.best_bytes
        (0.9, 80)
    """

    source: str
    formats: tuple[str, ...]
    layers: tuple[InspectedLayer, ...]
    other_tensors: int = 0
    other_bytes: int = 0
    pictures: Mapping[str, str] = field(default_factory=dict)

    @property
    def zeros(self) -> float:
        """Share of all values of the matrices that is zero."""
        every = sum(layer.shape[0] * layer.shape[1] for layer in self.layers)
        zeros = sum(layer.zeros * layer.shape[0] * layer.shape[1] for layer in self.layers)
        return zeros / every if every else 0.0

    @property
    def bytes(self) -> int:
        """Bytes of the matrices as they are kept now."""
        return sum(layer.bytes for layer in self.layers)

    @property
    def dense_bytes(self) -> int:
        """Bytes of the matrices, dense."""
        return sum(layer.dense_bytes for layer in self.layers)

    @property
    def best_bytes(self) -> int:
        """Bytes of the matrices, each in the blocks that are best for it."""
        return sum(layer.best_bytes for layer in self.layers)

    def __getitem__(self, name: str) -> InspectedLayer:
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(name)

    def to_json(self) -> str:
        """Write all of it, totals included, as one JSON document.

        Examples:
            >>> json.loads(Inspection("MLP", ("dense",), ()).to_json())["zeros"]
            0.0
        """
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False)

    def to_dict(self) -> dict[str, object]:
        """The same as plain dictionaries and lists."""
        return {
            "source": self.source,
            "formats": list(self.formats),
            "zeros": self.zeros,
            "bytes": self.bytes,
            "dense_bytes": self.dense_bytes,
            "best_bytes": self.best_bytes,
            "other_tensors": self.other_tensors,
            "other_bytes": self.other_bytes,
            "layers": [_plain(layer) for layer in self.layers],
            "pictures": dict(self.pictures),
        }

    def __str__(self) -> str:
        rows = [_HEADER, *(_cells(layer) for layer in self.layers), self._total()]
        wide = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
        lines = [
            "  ".join(
                cell.ljust(wide[i]) if i in (0, 2) else cell.rjust(wide[i])
                for i, cell in enumerate(row)
            ).rstrip()
            for row in rows
        ]
        rule = "─" * max(map(len, lines))
        head = f"{self.source}: {', '.join(self.formats)}"
        others = f"{self.other_tensors:,} other tensors: {self.other_bytes:,} bytes"
        reasons = [f"{layer.name or 'matrix'}: {layer.why}" for layer in self.layers if layer.zeros]
        table = [lines[0], rule, *lines[1:-1], rule, lines[-1]]
        return "\n".join([head, *table, *reasons, *([others] if self.other_tensors else [])])

    def _total(self) -> tuple[str, ...]:
        sizes = (f"{self.bytes:,}", f"{self.dense_bytes:,}", f"{self.best_bytes:,}")
        return ("total", "", "", percent(self.zeros), *[""] * 5, *sizes, "")


def _cells(layer: InspectedLayer) -> tuple[str, ...]:
    side = layer.blocksize
    return (
        layer.name or "matrix",
        "×".join(map(str, layer.shape)),
        layer.kind,
        percent(layer.zeros),
        *(percent(layer.live[at]) for at in SIDES),
        f"{layer.bytes:,}",
        f"{layer.dense_bytes:,}",
        f"{layer.best_bytes:,} in {side}×{side}" if side else "dense",
        f"{layer.gain:.1f}×" if side else "",
    )


def _plain(layer: InspectedLayer) -> dict[str, object]:
    finite = layer.gain if layer.gain != float("inf") else None  # JSON has no infinity
    return {
        "name": layer.name,
        "shape": list(layer.shape),
        "dtype": layer.dtype,
        "kind": layer.kind,
        "zeros": layer.zeros,
        "live": {str(side): share for side, share in layer.live.items()},
        "bytes": layer.bytes,
        "dense_bytes": layer.dense_bytes,
        "block_bytes": {str(side): size for side, size in layer.block_bytes.items()},
        "blocksize": layer.blocksize,
        "best_bytes": layer.best_bytes,
        "gain": finite,
        "why": layer.why,
    }
