"""One training run from its setting to its numbers."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from sparsetile import train
from sparsetile.bench._tokens import Objective
from sparsetile.bench.dynsparse import _cost
from sparsetile.bench.dynsparse._data import Data
from sparsetile.bench.dynsparse._model import Size, build
from sparsetile.bench.dynsparse._setting import Setting
from sparsetile.bench.dynsparse._watch import Watch

WARMUP = 0.05  # of the steps: the rate rises over this part, then falls to zero
DECAY, CLIP = 0.01, 1.0
JUDGED = 8  # times a run is judged
_NEAR = 0.2  # nats: a run that ends so near to the unigram loss has learned no context


@dataclass
class Result:
    """What a run gave.

    Args:
        row: Its cells beside the setting's.
        curve: One row for each time it was judged.
    """

    row: dict[str, Any]
    curve: list[dict[str, Any]] = field(default_factory=list)


class Loop:
    """A model, its optimizer, its method and its data, one step at a time.

    Args:
        setting: The run.
        data: The text.
    """

    def __init__(self, setting: Setting, data: Data) -> None:
        self.setting = setting
        self.size = Size(setting.layers, setting.width, setting.sequence, data.vocabulary)
        objective = cast(Objective, setting.objective)
        self.model = build(
            self.size,
            blocksize=setting.blocksize or None,
            density=setting.density,
            seed=setting.seed,
            causal=setting.objective == "clm",
        )
        self.parameters = list(self.model.parameters())
        # One kernel for all parameters: at these sizes a loop over them takes longer.
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=setting.lr, weight_decay=DECAY, fused=True
        )
        method = method_of(setting)
        self.trainer = None if method is None else method.attach(self.model, self.optimizer)
        shape = {"sequence": setting.sequence, "batch": setting.batch}
        self.batches = data.batches(objective, **shape, seed=setting.seed)
        self.judged = data.judged(objective, **shape)
        self.done = 0

    def step(self) -> Tensor:
        """Train on the next batch; returns its loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.setting.lr * rate_at(self.done, self.setting.steps)
        loss: Tensor = self.model(*self.batches[self.done])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, CLIP)
        self.optimizer.step()
        self.done += 1
        return loss.detach()

    @torch.no_grad()
    def judge(self) -> float:
        """Loss on the held-out batches, nats per token."""
        losses = [float(self.model(*batch)) for batch in self.judged]
        return sum(losses) / len(losses)


def run(setting: Setting, data: Data, tell: Callable[[int, float], None]) -> Result:
    """Train a model.

    Args:
        setting: What to train, and how.
        data: The text.
        tell: Called now and then with the steps done and the loss of the last one.

    Returns:
        Its numbers.
    """
    loop = Loop(setting, data)
    watch = Watch(loop.model, loop.trainer)
    empty = watch.empty_rows()
    marks = {round(setting.steps * part / JUDGED) for part in range(1, JUDGED + 1)}
    curve: list[dict[str, Any]] = []
    seconds, recent, times = 0.0, [], []
    for step in range(1, setting.steps + 1):
        start = time.thread_time()
        loss = loop.step()
        times.append(time.thread_time() - start)
        seconds += times[-1]
        recent.append(loss)
        if step % 50 == 0:
            tell(step, float(loss))
        if step in marks:
            learned = float(torch.stack(recent).mean())
            recent.clear()
            curve.append(
                {"step": step, "loss": loop.judge(), "train_loss": learned}
                | {"seconds": seconds, "coverage": watch.coverage(), "wasted": watch.wasted}
            )
    return Result(_row(loop, watch, data, curve, seconds, times) | {"empty_rows": empty}, curve)


def _row(
    loop: Loop,
    watch: Watch,
    data: Data,
    curve: list[dict[str, Any]],
    seconds: float,
    times: list[float],
) -> dict[str, Any]:
    density = _cost.stored_density(loop.model)
    block_bytes, all_bytes = _cost.bytes_held(loop.model, loop.optimizer)
    last = curve[-1]
    return {
        "loss": last["loss"],
        "train_loss": last["train_loss"],
        "stuck": int(not last["loss"] < data.unigram - _NEAR),
        "unigram": data.unigram,
        "stored": density,
        "flops": _cost.flops(loop.size, density),
        "all_flops": _cost.all_flops(loop.size, density),
        "attention_share": _cost.attention_share(loop.size, density),
        "block_bytes": block_bytes,
        "all_bytes": all_bytes,
        "cpu_seconds": seconds,
        "step_ms": 1e3 * sorted(times)[len(times) // 2],
        "updates": watch.updates,
        "coverage": last["coverage"],
        "wasted": last["wasted"],
        "empty_rows_end": watch.empty_rows(),
        "block_rows": watch.block_rows,
    }


def rate_at(step: int, steps: int) -> float:
    """Share of the highest learning rate at a step: a line up, then a line down to zero.

    Examples:
        >>> [round(rate_at(step, 100), 2) for step in (0, 4, 5, 99)]
        [0.2, 1.0, 1.0, 0.01]
    """
    warm = max(round(WARMUP * steps), 1)
    return min((step + 1) / warm, (steps - step) / (steps - warm)) if steps > warm else 1.0


def method_of(setting: Setting) -> Any:
    """The method of a run; None for a dense one."""
    if setting.method == "dense":
        return None
    if setting.method == "static":
        return train.Static()
    common: dict[str, Any] = {
        "total_steps": setting.steps,
        "every": setting.every,
        "prune_ratio": setting.prune_ratio,
        "seed": setting.seed,
    }
    if setting.method == "rigl":
        return train.RigL(**common)
    if setting.drop == "l1":
        return train.DynSparse(**common)
    return train.DynSparse(**common, drop=getattr(train, f"block_{setting.drop}"))
