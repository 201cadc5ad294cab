"""A model in training, and one step of it."""

import math
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from sparsetile.bench._errors import CommandError
from sparsetile.bench._model import loss_of
from sparsetile.bench._race import rate_at
from sparsetile.bench._tokens import MASK, Batches, Corpus, Objective
from sparsetile.bench.pretrain._build import config_for, model_for, optimizer_for
from sparsetile.bench.pretrain._methods import method_of
from sparsetile.bench.pretrain._settings import Settings
from sparsetile.train import FlopMeter, Trainer, Update

_JUDGED_TOKENS = (
    16_384  # so many that the loss is known to about 0.03, and Base takes half a minute
)


@dataclass(frozen=True)
class Step:
    """What one step showed: its loss, the length of its gradient, its seconds."""

    loss: float
    gradient_norm: float
    seconds: float


class Session:
    """A model in training with all that a checkpoint must hold.

    Args:
        settings: The run.
        corpus: Its text as tokens.
        before_optimizer: Called with the new model before its optimizer is made: a checkpoint may
            have other numbers of blocks.

    Attributes:
        step: Steps of the optimizer so far.
        seconds: Seconds of training so far.
        recent: Losses since the last row of the log.
        trainer: Moves the pattern; None for a dense model.
        coverage: Share of the block positions that have been stored, as of the last update.
        meter: Counts the operations of the run, for the log of updates.
    """

    def __init__(
        self,
        settings: Settings,
        corpus: Corpus,
        before_optimizer: Callable[[nn.Module], None] = lambda model: None,
    ) -> None:
        self.settings, self.corpus = settings, corpus
        self.config: Any = config_for(settings, corpus.vocabulary)
        self.model = model_for(settings, self.config).train()
        before_optimizer(self.model)
        self.optimizer = optimizer_for(settings, self.model)
        self._peaks = [float(group["lr"]) for group in self.optimizer.param_groups]
        method = method_of(settings)
        self.trainer: Trainer | None = None
        if method is not None:
            with warnings.catch_warnings():  # said by `pretrain`, by the names of flags
                warnings.filterwarnings("ignore", message=".* will not move any block")
                self.trainer = method.attach(self.model, self.optimizer)
        self.meter = FlopMeter(
            self.model, sequence=settings.sequence, batch=settings.batch * settings.accumulate
        )
        self.step, self.seconds = 0, 0.0
        self.recent: list[float] = []
        self.coverage = self.trainer.coverage().mean if self.trainer else None
        self._forward = self.model
        if settings.compile:
            self._forward = cast(nn.Module, torch.compile(self.model))
        self._batches = self._batches_of(corpus.train, settings.batch, settings.seed)
        self.held_out = self._held_out()

    @property
    def rates(self) -> tuple[float, float]:
        """Learning rates of the block layers and of the rest in the step to come."""
        settings = self.settings
        part = rate_at(self.step / settings.steps, warmup=settings.warmup, decay=settings.decay)
        return self._peaks[0] * part, self._peaks[-1] * part

    @property
    def moves(self) -> bool:
        """Whether the pattern is to change at any step."""
        if self.trainer is None:
            return False
        due = self.trainer.method.clock.due
        return any(due(step) for step in range(1, self.settings.steps + 1))

    def advance(self) -> Step:
        """Take one step of the optimizer.

        Raises:
            CommandError: If the loss or the gradient is not finite; the step is not taken.
        """
        start, settings = time.perf_counter(), self.settings
        block, rest = self.rates
        for place, group in enumerate(self.optimizer.param_groups):
            group["lr"] = block if place == 0 else rest
        self.optimizer.zero_grad(set_to_none=True)
        loss = 0.0
        for part in range(settings.accumulate):
            with self._precision():
                one = loss_of(self._forward, *self._batches[self.step * settings.accumulate + part])
            self._check(one.item(), "loss")
            (one / settings.accumulate).backward()
            loss += one.item() / settings.accumulate
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip or math.inf).item()
        self._check(norm, "length of the gradient")
        self.optimizer.step()
        self.step += 1
        self.recent.append(loss)
        spent = time.perf_counter() - start
        self.seconds += spent
        return Step(loss, norm, spent)

    def judge(self) -> float:
        """Mean loss on the held-out text, nats per token."""
        self.model.eval()
        with torch.no_grad(), self._precision():
            losses = [loss_of(self.model, *batch).item() for batch in self.held_out]
        self.model.train()
        return sum(losses) / len(losses)

    def on_update(self, trainer: Trainer, update: Update) -> None:
        """Note the coverage after an update, as a callback of the trainer."""
        self.coverage = trainer.coverage().mean

    def _precision(self) -> Any:
        if self.settings.dtype == "bfloat16":
            return torch.autocast("cpu", torch.bfloat16)
        return nullcontext()

    def _check(self, value: float, what: str) -> None:
        if not math.isfinite(value):
            raise CommandError(
                f"the {what} is {value} in step {self.step + 1} of {self.settings.steps}; training "
                "stops, the last checkpoint stays; start again with lower --lr (or --sparse-lr), "
                "--rest-lr or --clip, or a longer --warmup"
            )

    def _batches_of(self, tokens: Tensor, rows: int, seed: int) -> Batches:
        return Batches(
            tokens,
            cast(Objective, self.settings.objective),
            sequence=self.settings.sequence,
            batch=rows,
            mask_token=self.corpus.tokenizer.token_to_id(MASK),
            vocabulary=self.corpus.vocabulary,
            seed=seed,
        )

    def _held_out(self) -> Sequence[tuple[Tensor, Tensor]]:
        """The same batches in every run on this text: their order has a seed of its own."""
        sequence = self.settings.sequence
        fits = (len(self.corpus.held_out) - 1) // sequence
        rows = max(1, min(self.settings.batch, fits))
        batches = self._batches_of(self.corpus.held_out, rows, seed=0)
        wanted = max(1, _JUDGED_TOKENS // (rows * sequence))
        return [batches[place] for place in range(min(wanted, len(batches)))]
