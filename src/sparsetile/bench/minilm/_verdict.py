"""What was aimed at, and what came."""

from collections.abc import Sequence
from typing import Any

from sparsetile.bench.minilm._joined import Row, time_of

COLUMNS = ("expected", "found", "holds")
_COSINE, _FASTER, _SMALLER = 0.97, 2.0, 0.45
_DENSITY, _BLOCK, _BATCH = 0.3, 4, 32


def verdicts(cells: Sequence[Row], times: Sequence[Row]) -> list[dict[str, Any]]:
    """Judge the targets by the rows there are.

    Args:
        cells: Rows of `cells.csv`.
        times: Rows of `timing.csv`.

    Returns:
        Rows with `COLUMNS`; targets whose cells are not measured are left out.
    """
    made = []
    aimed = [r for r in cells if (r["density"], r["blocksize"]) == (_DENSITY, _BLOCK)]
    recovered = [row for row in aimed if row["recovery"]]
    at = f"density {_DENSITY:g}, blocks {_BLOCK}×{_BLOCK}"
    if recovered:
        best = max(recovered, key=lambda row: float(row["cosine"]))
        made.append(
            _row(
                f"{at}, recovered: mean cosine at least {_COSINE:g}",
                f"{best['cosine']:.4f} ({best['recovery']})",
                best["cosine"] >= _COSINE,
            )
        )
        time = time_of(best, times, _BATCH)
        if time is not None:
            made.append(
                _row(
                    f"{at}: at batch {_BATCH}, {_FASTER:g}× faster than dense float32",
                    f"{time['dense_ratio']:.2f}× on {time['threads']} threads",
                    time["dense_ratio"] >= _FASTER,
                )
            )
        whole, half = best["bytes_ratio"], best["bf16_bytes_ratio"]
        made.append(
            _row(
                f"{at}: file at most {_SMALLER:g}× of the dense one in float32",
                f"{half:.2f}× stored in bfloat16 (cosine {best['bf16_cosine']:.4f}), "
                f"{whole:.2f}× in float32",
                half <= _SMALLER,
            )
        )
    pairs = _pairs(cells)
    if pairs:
        won = sum(mine > other for mine, other in pairs)
        least = min(mine - other for mine, other in pairs)
        made.append(
            _row(
                "SparseGPT beats magnitude in every cell",
                f"in {won} of {len(pairs)}; cosine higher by at least {least:.3f}",
                won == len(pairs),
            )
        )
    return made


def _pairs(cells: Sequence[Row]) -> list[tuple[float, float]]:
    """Cosines of SparseGPT and of magnitude in the same cell."""
    by = {(r["method"], r["density"], r["blocksize"]): r for r in cells if not r["recovery"]}
    return [
        (row["cosine"], by["magnitude", density, block]["cosine"])
        for (method, density, block), row in by.items()
        if method == "sparsegpt" and ("magnitude", density, block) in by
    ]


def _row(expected: str, found: str, holds: bool) -> dict[str, Any]:
    return {"expected": expected, "found": found, "holds": "yes" if holds else "no"}
