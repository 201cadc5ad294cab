"""The loop: steps, rows of the logs, judgements and checkpoints at their times."""

import math
from collections.abc import Callable
from pathlib import Path
from statistics import median

from sparsetile.bench.pretrain._checkpoint import save
from sparsetile.bench.pretrain._logs import EVAL, TRAIN, UPDATES, Log
from sparsetile.bench.pretrain._session import Session
from sparsetile.bench.pretrain._show import Display
from sparsetile.train import CsvLog


def train(session: Session, folder: Path, stop: Callable[[], bool]) -> None:
    """Train to the end, or until it is to stop; a checkpoint is written in both cases.

    Args:
        session: The run, new or resumed.
        folder: Its folder.
        stop: Asked after every step.

    Raises:
        CommandError: If the loss is no number any more.
    """
    settings = session.settings
    logs = {name: Log(folder / name, session.step) for name in (TRAIN, EVAL)}
    if session.trainer is not None:
        session.trainer.add_callback(session)
        session.trainer.add_callback(CsvLog(folder / UPDATES, flops=session.meter))
    times: list[float] = []
    with Display(session) as display:
        while session.step < settings.steps and not stop():
            rates = session.rates
            done = session.advance()
            times.append(done.seconds)
            display.step()
            last = session.step == settings.steps
            if session.step % settings.log_every == 0 or last:
                loss = sum(session.recent) / len(session.recent)
                session.recent = []
                row = {**_where(session), "loss": loss, "gradient_norm": done.gradient_norm}
                row |= {"lr": rates[0], "rest_lr": rates[1], "step_ms": 1000 * median(times)}
                logs[TRAIN].add(row)
                display.row(loss, settings.tokens_per_step / median(times))
                times = []
            if session.step % settings.eval_every == 0 or last:
                loss = session.judge()
                perplexity = math.exp(min(loss, 700.0))
                logs[EVAL].add({**_where(session), "loss": loss, "perplexity": perplexity})
                display.line(f"step {session.step}: held-out loss {loss:.4f}")
            if session.step % settings.save_every == 0:
                save(session, folder)
    save(session, folder)


def _where(session: Session) -> dict[str, float]:
    tokens = session.step * session.settings.tokens_per_step
    return {"step": session.step, "seconds": session.seconds, "tokens": tokens}
