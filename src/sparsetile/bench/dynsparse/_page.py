"""The page of the experiment: its tables and what stands between them."""

from collections.abc import Mapping, Sequence
from typing import Any

from sparsetile.bench._files import human_bytes
from sparsetile.bench._pages import Part, Table
from sparsetile.bench.dynsparse._chosen import Row
from sparsetile.bench.dynsparse._figures import LABELS

TITLE = "Does dynamic sparsity pay?"
INTRO = (
    "Language models with a tenth of the weights in their blocks, trained from scratch, beside "
    "dense ones of as many operations, after Dietrich et al., “Towards Structured Dynamic Sparse "
    "Pre-Training of BERT” (2021). Losses are held-out cross entropies in nats a token. Seconds "
    "are steps times the time of a step, measured apart, one model after the other, on one core."
)
PARTS: tuple[Part, ...] = (
    ("What was expected, and what came", None, ("verdicts",)),
    ("The methods at each block size", None, ("comparison",)),
    ("What a dense model of that loss costs", None, ("ratios",)),
    ("Every line", None, ("lines",)),
    ("Loss against operations", "loss-flops", ()),
    ("Loss against seconds", "loss-seconds", ()),
    ("Loss against bytes", "loss-bytes", ()),
    ("Coverage", "coverage", ()),
    ("Learning rates", "sweeps", ("sweeps",)),
    ("How often to move blocks", "updates", ("updates",)),
    ("How many blocks to move", "ratio", ("ratio",)),
    ("Which blocks are weak", "norm", ("norm",)),
)
# Best of the paper's ablations on BERT-Medium at density 0.1, by block size.
_BEST_PIECES = {1: "160 (of 40 to 320)", 16: "80 (of 40 to 320)"}
_BEST_RATIO = {1: "0.75 (0.5 level)", 16: "0.5 (0.75 level)"}


def tables(made: Mapping[str, Sequence[Row]]) -> dict[str, Table]:
    """Every table of the page.

    Args:
        made: Rows by name, as `results` gives them.

    Returns:
        By name, the tables.
    """
    return {
        "verdicts": Table(
            ("expected", "found", "holds"),
            [[row["expected"], row["found"], row["holds"]] for row in made["verdicts"]],
        ),
        "comparison": _comparison(made["comparison"]),
        "ratios": _ratios(made["comparison"]),
        "lines": _lines(made["lines"]),
        "sweeps": _sweeps(made["sweeps"]),
        "updates": _choice(made["updates"], "every", "steps between", _BEST_PIECES, "n"),
        "ratio": _choice(made["ratio"], "prune_ratio", "share at first", _BEST_RATIO, "share"),
        "norm": Table(
            ("score", "block", "loss", "the paper's loss"),
            [
                [row["drop"], _block(row), f"{row['loss']:.4f}", _NORMS[row["drop"]]]
                for row in made["norm"]
            ],
        ),
    }


# Mean of three runs, BERT-Medium, 16×16.
_NORMS = {"l1": "2.608", "l2": "2.620", "max": "2.635"}


def _comparison(rows: Sequence[Row]) -> Table:
    head = ["block", "static", "dynamic", "RigL", "dynamic − static, paired", "seeds",
            "matched dense", "dynamic − matched"]  # fmt: skip
    lines = []
    for row in rows:
        gap = None
        if row["dynamic"] is not None and row["matched"] is not None:
            gap = row["dynamic"] - row["matched"]
        lines.append(
            [
                _block(row),
                *(_spread(row[name], row[f"{name}_sd"]) for name in ("static", "dynamic", "rigl")),
                _spread(row["difference"], row["difference_sd"], sign=True),
                _number(row["seeds"], "{}"),
                _number(row["matched"], "{:.3f}"),
                _number(gap, "{:+.3f}"),
            ]
        )
    return Table(head, lines)


def _ratios(rows: Sequence[Row]) -> Table:
    head = ["block", "operations", "with embedding and head", "seconds", "bytes of the matrices",
            "seconds to the matched loss", "operations, static", "operations in the paper: Base",
            "Medium"]  # fmt: skip
    names = ("flops_ratio", "all_flops_ratio", "seconds_ratio", "bytes_ratio", "until_matched",
             "static_flops_ratio", "published_base", "published_medium")  # fmt: skip
    return Table(
        head,
        [
            [_block(row) + (" *" if row["extrapolated"] else "")]
            + [_number(row[name], "{:.2f}") for name in names]
            for row in rows
        ],
    )


def _lines(rows: Sequence[Row]) -> Table:
    head = ["line", "learning rate", "loss", "seeds", "MFLOP a row", "… with embedding and head",
            "ms a step", "bytes of the matrices", "coverage", "wasted",
            "empty block rows, first → last"]  # fmt: skip
    lines = []
    for row in rows:
        sparse = row["method"] != "dense"
        name = f"{LABELS[row['method']]} {_block(row) if sparse else row['width']}"
        moved = row["method"] in ("dynsparse", "rigl")
        empty = f"{row['empty_rows']:.0f} → {row['empty_rows_end']:.0f} of {row['block_rows']}"
        lines.append(
            [
                name if row["objective"] == "clm" else f"{name}, {row['objective']}",
                f"{row['lr']:g}",
                _spread(row["loss"], row["sd"]),
                str(row["seeds"]),
                f"{row['flops'] / 1e6:.1f}",
                f"{row['all_flops'] / 1e6:.1f}",
                _number(row["step_ms"], "{:.1f}"),
                human_bytes(row["block_bytes"]),
                _number(row["coverage"], "{:.2f}") if sparse else "–",
                _number(row["wasted"], "{:.2f}") if moved else "–",
                empty if sparse else "–",
            ]
        )
    return Table(head, lines)


def _sweeps(rows: Sequence[Row]) -> Table:
    rates = sorted({row["lr"] for row in rows})
    by_line: dict[str, dict[float, Row]] = {}
    for row in rows:
        name = _block(row) if row["blocksize"] else str(row["width"])
        key = f"{LABELS[row['method']]} {name}"
        by_line.setdefault(key, {})[row["lr"]] = row
    lines = []
    for name, of in by_line.items():
        best = min(of.values(), key=lambda row: float(row["loss"]))
        cells = []
        for rate in rates:
            tried = of.get(rate)
            text = "" if tried is None else f"{tried['loss']:.3f}"
            text += " stuck" if tried is not None and tried["stuck"] else ""
            cells.append(text)
        lines.append([name, *cells, f"{best['lr']:g}"])
    return Table(["line", *(f"{rate:g}" for rate in rates), "used"], lines)


def _choice(
    rows: Sequence[Row], column: str, label: str, published: Mapping[int, str], of: str
) -> Table:
    head = ["block", label, "updates", "loss", "coverage", "wasted", f"the paper's best {of}"]
    lines = []
    for row in rows:
        still = row["method"] == "static"
        lines.append(
            [
                _block(row),
                "static" if still else f"{row[column]:g}",
                str(row["updates"]),
                f"{row['loss']:.4f}",
                _number(row["coverage"], "{:.2f}"),
                "–" if still else _number(row["wasted"], "{:.2f}"),
                "" if still else published.get(row["blocksize"], ""),
            ]
        )
    return Table(head, lines)


def _block(row: Row) -> str:
    return f"{row['blocksize']}×{row['blocksize']}"


def _number(value: Any, how: str) -> str:
    return "–" if value is None else how.format(value)


def _spread(value: Any, spread: Any, sign: bool = False) -> str:
    text = _number(value, "{:+.3f}" if sign else "{:.3f}")
    return text if spread is None else f"{text} ± {spread:.3f}"
