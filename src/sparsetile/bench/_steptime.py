"""One whole training step of a transformer encoder, dense against sparse, in turns."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sparsetile import train
from sparsetile.bench._machine import command, commit, machine
from sparsetile.bench._measure import clock_name, interleave
from sparsetile.nn import sparsify_

#: Steps of the published pre-training (Dietrich et al. 2021), and the updates found best for it.
RUN, UPDATES_OF_ONES, UPDATES_OF_BLOCKS = 757_000, 160, 80
_ROUNDS = (3, 30)


@dataclass(frozen=True)
class Model:
    """The encoder of BERT and how it is trained.

    Examples:
        >>> Model(layers=1, width=32, heads=2).name
        '1×32'
    """

    layers: int = 12
    width: int = 768
    heads: int = 12
    sequence: int = 128
    batch: int = 16
    dropout: float = 0.0
    attention: str = "sdpa"
    dtype: str = "float32"
    clip: float = 0.0
    seed: int = 0

    @property
    def name(self) -> str:
        """Layers × width."""
        return f"{self.layers}×{self.width}"


class Case:
    """A model with its optimizer and a batch; a call is one training step.

    Args:
        model: What to build.
        blocksize: Rows and columns of a block; None for the dense model.
        density: Share of the blocks that is stored.
        method: Moves the pattern after every step; None leaves it.

    Examples:
        >>> case = Case(Model(layers=1, width=32, heads=2, sequence=8, batch=2), (8, 8), 0.5)
        >>> case()
        >>> 0.5 < case.memory.share < 0.6
        True
    """

    def __init__(
        self,
        model: Model,
        blocksize: tuple[int, int] | None = None,
        density: float = 1.0,
        method: train.Method | None = None,
    ) -> None:
        self.size, self.blocksize, self.density = model, blocksize, density
        self.encoder = _encoder(model)
        if blocksize is not None:
            sparsify_(self.encoder, density=density, blocksize=blocksize, method="random")
        self.optimizer = torch.optim.AdamW(self.encoder.parameters(), lr=1e-4, fused=True)
        self.trainer = method.attach(self.encoder, self.optimizer) if method else None
        # As behind an embedding, which wants the gradient of its result.
        shape = (model.batch, model.sequence, model.width)
        self.x = torch.randn(shape).requires_grad_()

    def __call__(self) -> None:
        """Do one step."""
        self.learn(self.forward())
        self.update()

    def forward(self) -> Tensor:
        """The loss, after clearing the gradients."""
        self.optimizer.zero_grad(set_to_none=True)
        self.x.grad = None
        with torch.autocast("cpu", torch.bfloat16, enabled=self.size.dtype == "bfloat16"):
            hidden: Tensor = self.encoder(self.x).last_hidden_state
        return hidden.float().square().mean()

    def learn(self, loss: Tensor) -> None:
        """Go backward."""
        loss.backward()

    def update(self) -> None:
        """Clip, if wanted, and change the weights."""
        if self.size.clip:
            nn.utils.clip_grad_norm_(self.encoder.parameters(), self.size.clip)
        self.optimizer.step()

    @property
    def memory(self) -> train.Memory:
        """Bytes of weights, indices, gradients and optimizer state, after a step."""
        if self.blocksize is None:
            return train.bytes_of(
                self.encoder, self.optimizer, layers=lambda m, _: isinstance(m, nn.Linear)
            )
        return train.bytes_of(self.encoder, self.optimizer)


@dataclass(frozen=True)
class Timed:
    """The step of one model: a row of the CSV.

    Times are milliseconds, `ratio` is the dense median over this one. `update_steps` is what one
    update of the pattern costs, the new plans of the kernels included, in steps of this model; the
    shares are those of a run with updates as often as published, and every 100 steps.
    """

    model: str
    dtype: str
    sequence: int
    batch: int
    dropout: float
    attention: str
    blocksize: str
    density: float
    threads: int
    clock: str
    rounds: int
    median: float
    p20: float
    p80: float
    ratio: float
    bytes: int
    dense_bytes: int
    method: str
    update_steps: float | None
    share_published: float | None
    share_of_100: float | None
    machine: str
    commit: str
    command: str


COLUMNS = tuple(field.name for field in fields(Timed))


def methods() -> dict[str, Callable[[], train.Method]]:
    """Methods whose updates can be timed, by name; each moves as many blocks as at its start."""
    return {
        "dynsparse": lambda: train.DynSparse(total_steps=RUN, every=1),
        "rigl": lambda: train.RigL(total_steps=RUN, every=1),
    }


def time_steps(
    model: Model,
    blocksizes: Sequence[tuple[int, int]],
    densities: Sequence[float],
    method: str,
    *,
    seconds: float,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[list[Timed], dict[str, Case]]:
    """Time steps of the dense and of sparse models in turns.

    Args:
        model: What to train.
        blocksizes: Rows and columns of blocks.
        densities: Shares of the blocks that are stored.
        method: Whose updates to time, or `static` for none.
        seconds: About how long to measure; longer, if three turns of all models take longer.
        stop: Asked before every step; true ends the timing.

    Returns:
        A row for each model, the dense one first, and the models by name.

    Examples:
        >>> small = Model(layers=1, width=32, heads=2, sequence=8, batch=2)
        >>> rows, cases = time_steps(small, [(8, 8)], [0.5], "static", seconds=0.1)
        >>> [(row.blocksize, row.density) for row in rows], list(cases)
        ([('', 1.0), ('8×8', 0.5)], ['dense', '8×8 at 0.5'])
    """
    cases = {"dense": Case(model)}
    moving = {}
    for density in densities:
        for blocksize in blocksizes:
            name = f"{_sides(blocksize)} at {density:g}"
            cases[name] = Case(model, blocksize, density)
            if method != "static":
                moving[name] = Case(model, blocksize, density, methods()[method]())
    calls = cases | {_moving(name): case for name, case in moving.items()}
    times = interleave(calls, seconds=seconds, rounds=_ROUNDS, stop=stop)
    if not times["dense"]:
        return [], cases
    rows = [_row(name, case, method, times) for name, case in cases.items()]
    return rows, cases


def _row(name: str, case: Case, method: str, times: dict[str, list[float]]) -> Timed:
    p20, median, p80 = (1e3 * float(v) for v in np.quantile(times[name], [0.2, 0.5, 0.8]))
    # Ratios of calls of the same turn: a neighbour that comes and goes slows both.
    ratio = float(np.median(np.divide(times["dense"], times[name])))
    cost = published = often = None
    if beside := times.get(_moving(name)):
        cost = max(0.0, float(np.median(np.divide(beside, times[name]))) - 1)
        updates = UPDATES_OF_ONES if case.blocksize == (1, 1) else UPDATES_OF_BLOCKS
        published, often = (cost / (steps + cost) for steps in (RUN / updates, 100))
    memory, size = case.memory, case.size
    return Timed(
        model=size.name,
        dtype=size.dtype,
        sequence=size.sequence,
        batch=size.batch,
        dropout=size.dropout,
        attention=size.attention,
        blocksize=_sides(case.blocksize) if case.blocksize else "",
        density=case.density,
        threads=torch.get_num_threads(),
        clock=clock_name(),
        rounds=len(times[name]),
        median=median,
        p20=p20,
        p80=p80,
        ratio=ratio,
        bytes=memory.sparse.total,
        dense_bytes=memory.dense.total,
        method=method if cost is not None else "",
        update_steps=cost,
        share_published=published,
        share_of_100=often,
        machine=machine(),
        commit=commit(),
        command=command(),
    )


def rows_of(timed: Sequence[Timed]) -> list[dict[str, Any]]:
    """The rows as a CSV takes them."""
    return [asdict(row) for row in timed]


def _sides(blocksize: tuple[int, int]) -> str:
    return "×".join(map(str, blocksize))


def _moving(name: str) -> str:
    return f"{name}, moving"


def _encoder(model: Model) -> nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=8,  # the embedding is not trained here
        hidden_size=model.width,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        intermediate_size=4 * model.width,
        max_position_embeddings=model.sequence,
        hidden_dropout_prob=model.dropout,
        attention_probs_dropout_prob=model.dropout,
        pad_token_id=None,
    )
    config._attn_implementation = model.attention
    torch.manual_seed(model.seed)
    encoder: nn.Module = BertModel(config, add_pooling_layer=False).encoder
    return encoder.train()
