"""Layers timed dense against sparse: the table of the demo and of `sparsetile table`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sparsetile.bench._measure import Measurement, interleave
from sparsetile.bench._peers_own import sparse_call
from sparsetile.bench._peers_torch import dense_call
from sparsetile.matrix import random_pattern
from sparsetile.ops import last_kernel, linear

FORWARD, WITH_GRAD, DX, DVALUES = "linear", "linear+grad", "dx", "dvalues"
OPS = {
    FORWARD: "forward",
    WITH_GRAD: "with gradients",
    DX: "input gradient",
    DVALUES: "weight gradient",
}
# A product without a fast kernel runs on the reference back end: shown when it is small, left out
# when it would take minutes.
_REFERENCE_LIMIT = 2e9


@dataclass(frozen=True)
class Layer:
    """A fully connected layer that somebody uses.

    Args:
        name: What it is.
        m: Outputs.
        k: Inputs.
    """

    name: str
    m: int
    k: int


LAYERS = (
    Layer("Linear 4096×4096", 4096, 4096),
    Layer("BERT-Base attention", 768, 768),
    Layer("BERT-Base up", 3072, 768),
    Layer("BERT-Base down", 768, 3072),
)
DENSITIES = (0.25, 0.1, 0.05)
BLOCKSIZES = (1, 4, 16)


def time_layers(
    layers: Sequence[Layer] = LAYERS,
    *,
    densities: Sequence[float] = DENSITIES,
    blocksizes: Sequence[int] = BLOCKSIZES,
    rows: int = 1024,
    seconds: float = 30.0,
    seed: int = 0,
    ops: Sequence[str] = (FORWARD, WITH_GRAD),
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Measurement]:
    """Time layers, forward alone and with both gradients, dense and sparse in turns.

    Args:
        layers: Layers to time.
        densities: Densities of the sparse ones.
        blocksizes: Block sizes of the sparse ones.
        rows: Rows of the batch.
        seconds: Time to spend on all of it.
        seed: Decides patterns and numbers.
        ops: What to time: `linear`, `linear+grad` (forward and both gradients), `dx`, `dvalues`.
        stop: Asked before each call; true ends the timing.

    Yields:
        The dense measurement of a layer, then its sparse ones.

    Examples:
        >>> rows = list(time_layers([Layer("small", 32, 32)], densities=[0.5], blocksizes=[4],
        ...                         rows=8, seconds=0.1))
        >>> [(row.op, row.blocksize) for row in rows]
        [('linear', 0), ('linear', 4), ('linear+grad', 0), ('linear+grad', 4)]
    """
    work = sum(layer.m * layer.k for layer in layers)
    for layer in layers:
        # Small layers need fewer seconds, but not as few as their size says.
        share = seconds * (0.5 * layer.m * layer.k / work + 0.5 / len(layers))
        weights = {op: 2.0 if op == WITH_GRAD else 1.0 for op in ops}
        for op, weight in weights.items():
            part = share * weight / sum(weights.values())
            yield from _time_layer(layer, op, densities, blocksizes, rows, part, seed, stop)


def _time_layer(
    layer: Layer,
    op: str,
    densities: Sequence[float],
    blocksizes: Sequence[int],
    rows: int,
    seconds: float,
    seed: int,
    stop: Callable[[], bool],
) -> Iterator[Measurement]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, layer.k, generator=generator)
    g = torch.randn(rows, layer.m, generator=generator)
    w = torch.randn(layer.m, layer.k, generator=generator) / layer.k**0.5
    calls: dict[str, Callable[[], object]] = {"dense": dense_call(op, x, w, g)}
    known: dict[str, dict[str, Any]] = {"dense": {}}
    for blocksize in blocksizes:
        for density in densities:
            if stop():
                return
            if op_runs_slowly(blocksize, 2.0 * layer.m * layer.k * density * rows):
                continue
            pattern = random_pattern(
                layer.m, layer.k, blocksize=blocksize, density=density, seed=seed
            )
            values = torch.randn(pattern.nnzb, blocksize, blocksize, generator=generator)
            call = sparse_call(op, pattern, x, values, g)
            call()
            backend, _, kernel = last_kernel().partition(":")
            name = f"{blocksize}/{density}"
            calls[name] = call
            known[name] = {
                "backend": backend,
                "kernel": kernel,
                "blocksize": blocksize,
                "density": round(pattern.density, 6),
            }
    times = interleave(calls, seconds=seconds, stop=stop)
    if not times["dense"]:
        return
    for name, spent in times.items():
        yield Measurement.of(
            spent,
            op=op,
            m=layer.m,
            k=layer.k,
            n=rows,
            dense_minimum=min(times["dense"]),
            **known[name],
        )


def op_runs_slowly(blocksize: int, flops: float) -> bool:
    """True when a product of this size has no fast kernel and would take minutes."""
    if flops < _REFERENCE_LIMIT:
        return False
    pattern = random_pattern(64, 64, blocksize=blocksize, density=1.0, seed=0)
    linear(torch.zeros(64, 64), torch.zeros(pattern.nnzb, blocksize, blocksize), pattern)
    return last_kernel().startswith("reference")


def layer_table(rows: Sequence[Measurement], layers: Sequence[Layer] = LAYERS) -> Any:
    """The measurements as a table for the terminal: speed-ups over dense, best times.

    Args:
        rows: Measurements of `time_layers`.
        layers: The layers they are of; gives their names.

    Returns:
        A `rich.table.Table`.
    """
    from rich.table import Table

    densities = sorted({_nominal(r.density) for r in rows if r.blocksize}, reverse=True)
    ops = [op for op in OPS if any(r.op == op for r in rows)]
    n = rows[0].n if rows else 0
    table = Table(
        title=f"times faster than dense at each density, {n} rows, fp32, "
        f"{threads_text(torch.get_num_threads())}; ✗: dense wins",
        title_justify="left",
    )
    table.add_column("layer")
    table.add_column("blocks", justify="right")
    for op in ops:
        table.add_column(f"{OPS[op]}:\ndense ms", justify="right")
        for density in densities:
            table.add_column(f"\nd={density:g}", justify="right")
    for layer, blocksize, cells in grouped(rows, layers):
        line = []
        for op in ops:
            dense, speedups = cells.get(op, (None, {}))
            line.append("" if dense is None else f"{dense * 1e3:.3g}")
            line += [_coloured(times_text(speedups.get(d))) for d in densities]
        table.add_row(layer, f"{blocksize}×{blocksize}", *line)
    return table


def times_text(speedup: float | None) -> str:
    """A speed-up over dense as the tables show it.

    Args:
        speedup: Dense time over this time; None when not measured.

    Returns:
        Text that ends in a cross where dense wins.

    Examples:
        >>> times_text(2.345), times_text(0.96), times_text(0.9999), times_text(None)
        ('2.3×', '0.96× ✗', '0.99× ✗', '–')
    """
    if speedup is None:
        return "–"
    # A loss never reads as 1.00.
    return f"{speedup:.1f}×" if speedup >= 1 else f"{min(speedup, 0.99):.2f}× ✗"


def threads_text(count: int) -> str:
    """`1 thread`, `2 threads`."""
    return f"{count} thread" + ("" if count == 1 else "s")


def _coloured(cell: str) -> str:
    return f"[red]{cell}[/red]" if cell.endswith("✗") else cell


def grouped(
    rows: Sequence[Measurement], layers: Sequence[Layer] = LAYERS
) -> Iterator[tuple[str, int, dict[str, tuple[float, dict[float, float]]]]]:
    """Measurements by layer and block size: for each op, dense seconds and speed-up by density."""
    for layer in layers:
        mine = [r for r in rows if (r.m, r.k) == (layer.m, layer.k)]
        dense = {r.op: r.minimum for r in mine if r.blocksize == 0}
        for blocksize in sorted({r.blocksize for r in mine} - {0}):
            yield (
                layer.name,
                blocksize,
                {
                    op: (
                        seconds,
                        {
                            _nominal(r.density): r.speedup
                            for r in mine
                            if r.op == op and r.blocksize == blocksize
                        },
                    )
                    for op, seconds in dense.items()
                },
            )


def _nominal(density: float) -> float:
    # A pattern holds a whole number of blocks, so its density is a hair off what was asked.
    return float(f"{density:.2g}") if density < 0.1 else round(density, 3)
