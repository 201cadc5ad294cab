"""What can be seen of a run at one moment: coverage, moves, empty rows, bytes, operations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from sparsetile.nn import BlockSparse
from sparsetile.train._bytes import Bytes, Memory, memory_of
from sparsetile.train._flops import FlopCount
from sparsetile.train._trainer import Trainer

if TYPE_CHECKING:
    from sparsetile.train._watch_flops import FlopMeter


@dataclass(frozen=True)
class LayerSnapshot:
    """One layer at one moment.

    Attributes:
        blocks: Stored blocks.
        positions: Block positions, stored or not.
        coverage: Share of the positions that have been stored at any time.
        empty_block_rows: Block rows that store no block.
        empty_block_columns: Block columns that store none.
        empty_rows: Rows of the weight that hold nothing but zeros: outputs that are only their
            bias. New blocks are zero until the next step.
        empty_columns: Columns of the weight that hold nothing but zeros: inputs that are ignored.

    Examples:
        >>> LayerSnapshot(10, 40, 0.5, 0, 0, 1, 2).density
        0.25
    """

    blocks: int
    positions: int
    coverage: float
    empty_block_rows: int
    empty_block_columns: int
    empty_rows: int
    empty_columns: int

    @property
    def density(self) -> float:
        """Stored blocks over block positions."""
        return self.blocks / self.positions if self.positions else 0.0


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment.

    Attributes:
        step: Optimizer steps so far.
        updates: Updates so far.
        layers: The sparse layers, by name.
        moved: Blocks that the last update grew, in all layers.
        dropped: Blocks that it dropped.
        wasted: Blocks that it dropped and the update before had grown: wasted growth.
        memory: Bytes of weights, indices, gradients and optimizer state.
        flops: Operations so far, if a `FlopMeter` counts them.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> from sparsetile.train import Static
        >>> layer = Linear(64, 64, density=0.25)
        >>> optimizer = torch.optim.SGD(layer.parameters())
        >>> watch(Static().attach(layer, optimizer)).blocks
        4
    """

    step: int
    updates: int
    layers: Mapping[str, LayerSnapshot]
    moved: int
    dropped: int
    wasted: int
    memory: Memory
    flops: FlopCount | None = None

    @property
    def blocks(self) -> int:
        """Stored blocks of all layers."""
        return sum(layer.blocks for layer in self.layers.values())

    @property
    def density(self) -> float:
        """Stored blocks over block positions, of all layers together."""
        return self.blocks / max(sum(layer.positions for layer in self.layers.values()), 1)

    @property
    def coverage(self) -> float:
        """Average over the layers of the share of positions ever stored."""
        return sum(layer.coverage for layer in self.layers.values()) / max(len(self.layers), 1)

    @property
    def wasted_share(self) -> float:
        """Share of the dropped blocks that the update before had grown."""
        return self.wasted / max(self.dropped, 1)

    def row(self) -> dict[str, int | float | None]:
        """Everything as one row of a table, with names for its columns.

        Returns:
            Numbers by name; `flops` and `flops_with_head` are None if nobody counts them.

        Examples:
            >>> from sparsetile.train import Bytes
            >>> memory = Memory(Bytes(), Bytes(), Bytes())
            >>> Snapshot(100, 1, {}, 6, 6, 3, memory).row()["wasted_share"]
            0.5
        """
        empty = {
            name: sum(getattr(layer, name) for layer in self.layers.values())
            for name in ("empty_block_rows", "empty_block_columns", "empty_rows", "empty_columns")
        }
        sparse, flops = self.memory.sparse, self.flops
        return {
            "step": self.step,
            "updates": self.updates,
            "blocks": self.blocks,
            "density": self.density,
            "coverage": self.coverage,
            "moved": self.moved,
            "dropped": self.dropped,
            "wasted": self.wasted,
            "wasted_share": self.wasted_share,
            **empty,
            "flops": None if flops is None else flops.non_embedding,
            "flops_with_head": None if flops is None else flops.total,
            "weight_bytes": sparse.weights,
            "index_bytes": sparse.indices,
            "gradient_bytes": sparse.gradients,
            "optimizer_bytes": sparse.optimizer,
            "dense_twin_bytes": self.memory.dense.total,
            "other_bytes": self.memory.rest.total,
        }


#: The names of a row, in order.
COLUMNS = tuple(Snapshot(0, 0, {}, 0, 0, 0, Memory(Bytes(), Bytes(), Bytes())).row())


def watch(trainer: Trainer, flops: "FlopMeter | None" = None) -> Snapshot:
    """Look at a run once; nothing of it changes.

    Args:
        trainer: What `attach` returned.
        flops: Counts the operations of the run, if they are to be told too.

    Returns:
        What is there to see now.

    Raises:
        TypeError: If it is no trainer.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> from sparsetile.train import DynSparse
        >>> layer = Linear(64, 64, density=0.25)
        >>> optimizer = torch.optim.SGD(layer.parameters())
        >>> seen = watch(DynSparse(total_steps=1000, every=100).attach(layer, optimizer))
        >>> seen.step, seen.coverage, seen.memory.sparse.weights
        (0, 0.25, 4352)
    """
    if not isinstance(trainer, Trainer):
        raise TypeError(
            f"trainer must be what attach(model, optimizer) returned, got {type(trainer).__name__}"
        )
    coverage = trainer.coverage().layers
    layers = {name: _look(layer, coverage[name]) for name, layer in trainer.layers.items()}
    last = trainer.history[-1] if trainer.history else None
    optimizer = trainer.optimizer
    groups = [] if optimizer is None else optimizer.param_groups
    return Snapshot(
        step=trainer.step_count,
        updates=len(trainer.history),
        layers=layers,
        moved=last.total if last else 0,
        dropped=sum(last.dropped.values()) if last else 0,
        wasted=sum(last.wasted.values()) if last else 0,
        memory=memory_of(
            list(trainer.layers.values()),
            [p for group in groups for p in group["params"]],
            optimizer,
        ),
        flops=None if flops is None else flops.spent,
    )


@torch.no_grad()
def _look(layer: BlockSparse, coverage: float) -> LayerSnapshot:
    pattern, values = layer.pattern, layer.values
    (m, k), (rows, columns), (r, c) = layer.shape, pattern.grid, layer.blocksize
    row, column = pattern.row_indices.long(), pattern.col_indices.long()
    # One number for each row of each block: whether it holds anything but zeros.
    used_rows = torch.zeros(rows, r, dtype=torch.int32, device=values.device)
    used_rows.index_add_(0, row, values.any(dim=2).int())
    used_columns = torch.zeros(columns, c, dtype=torch.int32, device=values.device)
    used_columns.index_add_(0, column, values.any(dim=1).int())
    return LayerSnapshot(
        blocks=layer.nnzb,
        positions=rows * columns,
        coverage=coverage,
        empty_block_rows=int((torch.bincount(row, minlength=rows) == 0).sum()),
        empty_block_columns=int((torch.bincount(column, minlength=columns) == 0).sum()),
        empty_rows=int((used_rows.flatten()[:m] == 0).sum()),
        empty_columns=int((used_columns.flatten()[:k] == 0).sum()),
    )
