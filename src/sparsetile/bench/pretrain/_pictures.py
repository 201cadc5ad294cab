"""Pictures of a run: its loss over steps and seconds, its coverage and its moves over steps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sparsetile.bench._plot_style import FAINT, INK, on_white, panels, save_svg
from sparsetile.bench.pretrain._logs import EVAL, TRAIN, UPDATES, read_rows

LOSS, PATTERN = "loss.svg", "pattern.svg"
PICTURES = (LOSS, PATTERN)
_HELD_OUT, _MOVED = "#1f5fa8", "#e0701b"


def draw(folder: Path, *, what: str, unigram: float) -> list[Path]:
    """Draw what the CSVs of a run hold.

    Args:
        folder: The folder of the run.
        what: The run in words, for the titles.
        unigram: Loss of guessing by the frequencies of tokens alone.

    Returns:
        The pictures written.
    """
    with on_white():
        trained, judged = read_rows(folder / TRAIN), read_rows(folder / EVAL)
        written = [folder / LOSS]
        save_svg(_loss(trained, judged, what, unigram), written[0])
        if updates := read_rows(folder / UPDATES):
            written.append(folder / PATTERN)
            save_svg(_pattern(updates, what), written[1])
    return written


def _loss(
    trained: Sequence[dict[str, str]], judged: Sequence[dict[str, str]], what: str, unigram: float
) -> Any:
    def paint(figure: Any, axes: list[Any]) -> None:
        for ax, across in zip(axes, ("step", "seconds"), strict=True):
            ax.plot(
                _column(trained, across), _column(trained, "loss"), color=FAINT, alpha=0.6,
                linewidth=1.0, label="training",
            )  # fmt: skip
            ax.plot(
                _column(judged, across), _column(judged, "loss"), "o-", color=_HELD_OUT,
                markersize=3.5, label="held out",
            )  # fmt: skip
            ax.axhline(
                unigram, color=_MOVED, linewidth=1.0, linestyle="--", label="token counts alone"
            )
            ax.set_xlabel("steps" if across == "step" else "seconds of training")
            ax.set_xlim(left=0)
        axes[0].set_ylabel("loss (nats per token)")
        axes[0].legend()

    last = float(judged[-1]["loss"])
    titles = (f"Held-out loss {last:.3f} after {int(judged[-1]['step']):,} steps", what)
    return panels(2, 3.4, paint, titles=titles, sharex=False)


def _pattern(updates: Sequence[dict[str, str]], what: str) -> Any:
    steps, stored = _column(updates, "step"), _column(updates, "blocks")

    def share(name: str) -> Any:
        return 100 * _column(updates, name)

    def paint(figure: Any, axes: list[Any]) -> None:
        axes[0].plot(steps, share("coverage"), color=_HELD_OUT, label="stored at some time")
        axes[0].plot(steps, share("density"), color=FAINT, label="stored now")
        axes[0].set_ylabel("block positions (%)")
        axes[1].plot(steps, share("dropped") / stored, color=_MOVED, label="dropped")
        axes[1].plot(
            steps, share("wasted") / stored, "--", color=INK, label="of them just grown before"
        )
        axes[1].set_ylabel("blocks of an update (% of the stored)")
        for ax in axes:
            ax.set_xlabel("steps")
            ax.set_xlim(left=0)
            ax.set_ylim(bottom=0)
            ax.legend()

    last = share("coverage")[-1]
    titles = (f"{last:.0f} % of the block positions have been stored at some time", what)
    return panels(2, 3.2, paint, titles=titles, sharex=False, sharey=False)


def _column(rows: Sequence[dict[str, str]], name: str) -> Any:
    return np.array([float(row[name]) for row in rows])
