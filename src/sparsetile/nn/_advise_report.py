"""What sparse layers would gain on this machine, layer by layer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

_HEADER = (
    "layer", "shape", "rows", "density", "block", "ms dense", "ms sparse", "faster",
    "bytes dense", "bytes sparse", "advice",
)  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """One way to make a layer sparse, as measured.

    Attributes:
        density: Share of the blocks that is stored.
        blocksize: Shape of the blocks.
        sparse_ms: Milliseconds of the sparse layer.
        dense_ms: Milliseconds of the dense one, measured in the same turns.
        bytes: Bytes of the stored blocks and their indices.

    Examples:
        >>> Trial(0.1, (4, 4), 2.0, 5.0, 1024).ratio
        2.5
    """

    density: float
    blocksize: tuple[int, int]
    sparse_ms: float
    dense_ms: float
    bytes: int

    @property
    def ratio(self) -> float:
        """How many times faster than dense."""
        return self.dense_ms / self.sparse_ms if self.sparse_ms else float("inf")


@dataclass(frozen=True)
class AdvisedLayer:
    """One linear layer, dense and sparse.

    Attributes:
        name: Its name in the model.
        shape: Outputs and inputs.
        rows: Vectors it was given in the one run, all calls together.
        dense_bytes: Bytes of the dense weight.
        trials: What was measured, in the order asked for; empty if it was not reached.
        recommendation: `"sparse"` or `"dense"`.
        why: The reason in words.

    Examples:
        >>> trials = (Trial(0.5, (4, 4), 3.0, 4.0, 640), Trial(0.25, (4, 4), 1.0, 4.0, 324))
        >>> AdvisedLayer("up", (16, 16), 8, 1024, trials, "sparse", "4.00× as fast").best.density
        0.25
    """

    name: str
    shape: tuple[int, int]
    rows: int
    dense_bytes: int
    trials: tuple[Trial, ...]
    recommendation: Literal["sparse", "dense"]
    why: str

    @property
    def best(self) -> Trial | None:
        """The fastest trial."""
        return min(self.trials, key=lambda trial: trial.sparse_ms, default=None)

    @property
    def dense_ms(self) -> float | None:
        """Milliseconds of the dense layer."""
        return self.best.dense_ms if self.best else None

    @property
    def sparse_ms(self) -> float | None:
        """Milliseconds of the fastest sparse twin."""
        return self.best.sparse_ms if self.best else None

    @property
    def ratio(self) -> float | None:
        """How many times faster than dense the fastest sparse twin is."""
        return self.best.ratio if self.best else None

    @property
    def sparse_bytes(self) -> int:
        """Bytes of the fastest sparse twin; of the dense weight if none was measured."""
        return self.best.bytes if self.best else self.dense_bytes


@dataclass(frozen=True)
class Advice:
    """What to make sparse; prints as a table, with a reason for each layer that is to stay dense.

    Times are the shortest of several calls of the forward product, without gradients.

    Attributes:
        layers: One for each layer looked at, in the model's order.
        threads: Threads of a product.
        left: In words, why other layers were not looked at; empty if there are none.

    Examples:
        >>> trial = Trial(0.25, (4, 4), 1.0, 2.0, 300)
        >>> layer = AdvisedLayer("up", (16, 16), 8, 1024, (trial,), "sparse", "2.00× as fast")
        >>> print(Advice((layer,), 1))
        layer       shape  rows  density  block  ms dense  ms sparse  faster  bytes dense  bytes sparse  advice
        ───────────────────────────────────────────────────────────────────────────────────────────────────────
        up          16×16     8     0.25    4×4     2.000      1.000   2.00×        1,024           300  sparse
        ───────────────────────────────────────────────────────────────────────────────────────────────────────
        as advised                                  2.000      1.000   2.00×        1,024           300
    """  # noqa: E501  the table is as wide as it is

    layers: tuple[AdvisedLayer, ...]
    threads: int
    left: str = ""

    @property
    def dense_ms(self) -> float:
        """Milliseconds of all measured layers, dense."""
        return sum(layer.dense_ms or 0.0 for layer in self.layers)

    @property
    def advised_ms(self) -> float:
        """Milliseconds of all measured layers, each as advised."""
        return sum(
            (layer.sparse_ms if layer.recommendation == "sparse" else layer.dense_ms) or 0.0
            for layer in self.layers
        )

    @property
    def ratio(self) -> float:
        """How many times faster these layers are together, each as advised."""
        return self.dense_ms / self.advised_ms if self.advised_ms else 1.0

    @property
    def dense_bytes(self) -> int:
        """Bytes of the dense weights."""
        return sum(layer.dense_bytes for layer in self.layers)

    @property
    def advised_bytes(self) -> int:
        """Bytes of the weights, each as advised."""
        return sum(
            layer.sparse_bytes if layer.recommendation == "sparse" else layer.dense_bytes
            for layer in self.layers
        )

    def __getitem__(self, name: str) -> AdvisedLayer:
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(name)

    def __str__(self) -> str:
        table = [_HEADER, *(_cells(layer) for layer in self.layers), self._total()]
        widths = [max(len(row[i]) for row in table) for i in range(len(_HEADER))]
        text = (0, len(_HEADER) - 1)
        lines = [
            "  ".join(
                cell.ljust(width) if i in text else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]
        rule = "─" * max(map(len, lines))
        lines = [lines[0], rule, *lines[1:-1], rule, lines[-1]]
        # The table says it all of those that gain.
        lines += [
            f"{layer.name or 'model'}: {layer.why}"
            for layer in self.layers
            if layer.recommendation == "dense"
        ]
        lines += self._tried()
        return "\n".join([*lines, *([f"Not looked at: {self.left}"] if self.left else [])])

    def _total(self) -> tuple[str, ...]:
        times = (f"{self.dense_ms:.3f}", f"{self.advised_ms:.3f}", f"{self.ratio:.2f}×")
        sizes = (f"{self.dense_bytes:,}", f"{self.advised_bytes:,}")
        return ("as advised", "", "", "", "", *times, *sizes, "")

    def _tried(self) -> Iterator[str]:
        """One line for each density and block size, where there were several."""
        tried: dict[tuple[float, tuple[int, int]], list[Trial]] = {}
        for layer in self.layers:
            for trial in layer.trials:
                tried.setdefault((trial.density, trial.blocksize), []).append(trial)
        if len(tried) < 2:
            return
        for (density, (r, c)), trials in tried.items():
            dense, sparse = (sum(getattr(t, n) for t in trials) for n in ("dense_ms", "sparse_ms"))
            wins = sum(trial.ratio >= 1 for trial in trials)
            ratio = dense / sparse if sparse else float("inf")
            yield (
                f"All at density {density:g} in {r}×{c}: {sparse:.3f} ms of {dense:.3f} dense, "
                f"{ratio:.2f}×; {wins} of {len(trials)} layers are as fast or faster"
            )


def _cells(layer: AdvisedLayer) -> tuple[str, ...]:
    best, name, shape = layer.best, layer.name or "model", "×".join(map(str, layer.shape))
    if best is None:
        empty = ("", "", "", "", "")
        return (name, shape, "0", *empty, f"{layer.dense_bytes:,}", "", layer.recommendation)
    return (
        name,
        shape,
        f"{layer.rows:,}",
        f"{best.density:g}",
        "×".join(map(str, best.blocksize)),
        f"{best.dense_ms:.3f}",
        f"{best.sparse_ms:.3f}",
        f"{best.ratio:.2f}×",
        f"{layer.dense_bytes:,}",
        f"{best.bytes:,}",
        layer.recommendation,
    )
