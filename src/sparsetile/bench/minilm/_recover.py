"""Recovery: the pruned model learns from the dense one, its weights always sparse."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from shutil import rmtree
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sparsetile.bench._files import write_csv
from sparsetile.bench._progress import clock_text, say
from sparsetile.bench.dynsparse._store import rows_in
from sparsetile.bench.minilm._cells import Data
from sparsetile.bench.minilm._files import load
from sparsetile.bench.minilm._quality import embed, pooled, quality
from sparsetile.bench.minilm._subject import Batch, padded
from sparsetile.bench.minilm._tiers import Recovery
from sparsetile.models import save_pretrained
from sparsetile.train import DynSparse, Method, Static

COLUMNS = ("run", "step", "seconds", "loss", "cosine", "overlap")
_CURVES = "recovery.csv"
_REST = "training.pt"
_WARMUP = 0.05  # share of the steps
_POOL = 32  # batches among which sentences are sorted by length


def name_of(recovery: Recovery) -> str:
    """What a recovered model is called in files."""
    return f"{recovery.density:g}-{recovery.blocksize}-{recovery.method}"


def recover(
    folder: Path,
    data: Data,
    recovery: Recovery,
    start: Callable[[], nn.Module],
    stop: Callable[[], bool] = lambda: False,
) -> tuple[nn.Module, float]:
    """Train a pruned model to do what the dense one does; goes on where it was stopped.

    The loss is the mean over layers of the squared difference of the tokens' states, relative to
    the dense model's variance, and the cosine distance of the sentences' embeddings. Embeddings
    of tokens stay as they are.

    Args:
        folder: Of the proof; checkpoints and `recovery.csv` go there.
        data: The dense model and the sentences.
        recovery: How.
        start: Gives the pruned model.
        stop: Asked before each step.

    Returns:
        The model, and the seconds of its training.

    Raises:
        KeyboardInterrupt: If `stop` said so; the last step is in a checkpoint then.
    """
    run = _Run(folder, data, recovery, start)
    while run.step < recovery.steps:
        if stop():
            run.keep()
            raise KeyboardInterrupt
        run.advance()
        if run.step % data.tier.every == 0 or run.step == recovery.steps:
            run.keep()
    return run.model.eval().requires_grad_(False), run.seconds


def distance(student: Sequence[Tensor], teacher: Sequence[Tensor], mask: Tensor) -> Tensor:
    """How far a student's states are from its teacher's.

    Args:
        student: States after each layer `[n, tokens, width]`.
        teacher: The same of the dense model.
        mask: 1 where a token counts `[n, tokens]`.

    Returns:
        The loss.

    Examples:
        >>> states = [torch.randn(2, 3, 4)]
        >>> float(distance(states, states, torch.ones(2, 3))) < 1e-6
        True
    """
    live = mask.bool()
    gaps = [
        F.mse_loss(mine[live], its[live]) / its[live].var()
        for mine, its in zip(student, teacher, strict=True)
    ]
    apart = 1 - (pooled(student[-1], mask) * pooled(teacher[-1], mask)).sum(-1).mean()
    return torch.stack(gaps).mean() + apart


class _Run:
    def __init__(
        self, folder: Path, data: Data, recovery: Recovery, start: Callable[[], nn.Module]
    ) -> None:
        self._folder, self._data, self._recovery = folder, data, recovery
        self._name = name_of(recovery)
        self._place = folder / "checkpoints" / self._name
        self._rows = [row for row in rows_in(folder / _CURVES) if row["run"] != self._name]
        last = self._last()
        self.step, self.seconds, self._curve = 0, 0.0, []
        self.model = start() if last is None else load(last)
        self.model.train()
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_("embeddings" not in name)
        # Dropout would be noise that the teacher does not have.
        for module in self.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        learning = [p for p in self.model.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(learning, lr=recovery.rate, weight_decay=0.0)
        self._trainer = _method(recovery).attach(self.model, self._optimizer)
        if last is not None:
            rest = torch.load(last / _REST, weights_only=True)
            self._optimizer.load_state_dict(rest["optimizer"])
            self._trainer.load_state_dict(rest["trainer"])
            self.step, self.seconds, self._curve = rest["step"], rest["seconds"], rest["curve"]
        self._batches = batches_of(data, recovery.batch, self.step)
        self._recent: list[float] = []
        if self.step == 0:
            self._judge(math.nan)

    def advance(self) -> None:
        """One step."""
        begin = perf_counter()
        batch = next(self._batches)
        with torch.no_grad():
            told = self._data.subject.model(**batch, output_hidden_states=True).hidden_states
        found = self.model(**batch, output_hidden_states=True).hidden_states
        loss = distance(found[1:], told[1:], batch["attention_mask"])
        for group in self._optimizer.param_groups:
            group["lr"] = self._recovery.rate * _share(self.step, self._recovery.steps)
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(
            [p for p in self.model.parameters() if p.grad is not None], 1.0
        )
        self._optimizer.step()
        self._recent.append(float(loss.detach()))
        self.step += 1
        self.seconds += perf_counter() - begin

    def keep(self) -> None:
        """Judge, tell, and write a checkpoint in place of the one before."""
        if not self._recent:  # stopped where it had just been kept
            return
        loss = sum(self._recent) / len(self._recent)
        self._recent = []
        self._judge(loss)
        place = self._place / f"step-{self.step:08d}"
        # What is needed beside the weights is written first: a folder with a model is whole.
        rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        rest = {
            "step": self.step,
            "seconds": self.seconds,
            "curve": self._curve,
            "optimizer": self._optimizer.state_dict(),
            "trainer": self._trainer.state_dict(),
        }
        torch.save(rest, place / _REST)
        save_pretrained(self.model, place)
        for old in sorted(self._place.iterdir())[:-1]:
            rmtree(old)

    def _judge(self, loss: float) -> None:
        data, recovery = self._data, self._recovery
        found = quality(data.embeddings, embed(self.model.eval(), data.held_out))
        self.model.train()
        row: dict[str, Any] = {"run": self._name, "step": self.step, "seconds": self.seconds}
        row |= {"loss": None if math.isnan(loss) else loss}
        self._curve.append(row | {"cosine": found.cosine, "overlap": found.overlap})
        write_csv(self._folder / _CURVES, COLUMNS, self._rows + self._curve)
        left = self.seconds / self.step * (recovery.steps - self.step) if self.step else math.nan
        say(
            f"  {self._name}: step {self.step} of {recovery.steps}, cosine {found.cosine:.4f}"
            + ("" if math.isnan(left) else f", loss {loss:.4f}, {clock_text(left)} left")
        )

    def _last(self) -> Path | None:
        """The newest whole checkpoint."""
        places = sorted(self._place.glob("step-*")) if self._place.is_dir() else []
        whole = [p for p in places if (p / "sparsetile.json").is_file()]
        return whole[-1] if whole else None


def batches_of(data: Data, size: int, skip: int) -> Iterator[Batch]:
    """Batches of the training sentences, for ever, each pass in another order.

    Args:
        data: The sentences.
        size: Sentences of a batch.
        skip: Batches to leave out at the beginning.

    Yields:
        Batches.
    """
    rows = data.subject.ids(data.sentences.training, data.tier.tokens)
    for turn in count():
        order = list(range(len(rows)))
        draw = random.Random(turn)
        draw.shuffle(order)
        cut: list[list[int]] = []
        for at in range(0, len(order), size * _POOL):
            pool = sorted(order[at : at + size * _POOL], key=lambda i: len(rows[i]))
            cut += [pool[of : of + size] for of in range(0, len(pool), size)]
        draw.shuffle(cut)
        for one in cut:
            if skip:
                skip -= 1
                continue
            yield padded([rows[i] for i in one])


def _method(recovery: Recovery) -> Method:
    if recovery.method == "static":
        return Static()
    return DynSparse(
        total_steps=recovery.steps,
        updates=recovery.updates,
        prune_ratio=recovery.prune_ratio,
    )


def _share(step: int, steps: int) -> float:
    """Share of the highest learning rate: up in a line, down as half a cosine."""
    warm = max(1, round(_WARMUP * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
