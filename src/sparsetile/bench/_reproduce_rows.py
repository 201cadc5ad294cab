"""What the pictures of `sparsetile reproduce popsparse` show, as rows: published beside ours."""

from collections.abc import Callable, Sequence
from typing import Any

from sparsetile.bench._reproduce_best import best, best_dense
from sparsetile.bench._reproduce_cells import Outcome, Outcomes
from sparsetile.bench._reproduce_fit import Law, fit_law
from sparsetile.bench._reproduce_published import number, parts_of, published
from sparsetile.bench._reproduce_scope import MODES, Scope, grid_cell
from sparsetile.machine import preset

Row = dict[str, Any]
_POINT = ("published", "ours", "ratio")

#: Columns of each CSV.
COLUMNS: dict[str, tuple[str, ...]] = {
    "table": ("blocksize", "dtype", "mode", *_POINT, "n"),
    "power-law": ("m", "density", "blocksize", "n", "speedup", "published_law", "own_law"),
    "laws": ("of", "factor", "m", "density", "blocksize", "within_factor_2"),
    "density": ("device", "dtype", "mode", "blocksize", "density", *_POINT, "n"),
    "blocks-and-sizes": ("mode", "blocksize", "m", *_POINT, "n"),
    "dense": ("device", "dtype", "m", "n", *_POINT),
    "grid": ("blocksize", "density", "m", "n", *_POINT),
    "regions": ("mode", "blocksize", "m", "density", "n", "speedup", "said_to_win"),
    "phases": ("mode", "blocksize", "density", "m", "n", "phase", "cycles"),
    "what-if": ("machine", "mode", "blocksize", "density", "m", "n", "tflops", "speedup"),
}


def rows_of(outcomes: Outcomes, scope: Scope) -> dict[str, list[Row]]:
    """The rows of every CSV.

    Args:
        outcomes: What the model says of `wanted(scope)`.
        scope: What is looked at.

    Returns:
        By name of the CSV, its rows.
    """
    points = _power_law(outcomes, scope)
    make: dict[str, Callable[[Outcomes, Scope], list[Row]]] = {
        "table": _table,
        "density": _density,
        "blocks-and-sizes": _blocks_and_sizes,
        "dense": _dense,
        "grid": _grid,
        "regions": _regions,
        "phases": _phases,
        "what-if": _what_if,
    }
    rows = {name: rule(outcomes, scope) for name, rule in make.items()}
    return rows | {"power-law": points, "laws": _laws(points)}


def _compared(told: float | None, ours: float | None, **where: Any) -> Row:
    both = told is not None and ours is not None
    ratio = ours / told if both and ours is not None and told else None
    return {**where, "published": told, "ours": ours, "ratio": ratio}


def _table(outcomes: Outcomes, scope: Scope) -> list[Row]:
    rows = []
    for row in published("table"):
        if not scope.has(4096, row["blocksize"], "1/16"):
            continue
        b, dtype = int(row["blocksize"]), row["dtype"]
        found = best(outcomes, row["mode"], dtype, b, 16, 4096)
        where = {"blocksize": b, "dtype": dtype, "mode": row["mode"], "n": _n(found)}
        ours = found and found[1].tflops / (best_dense(4096, dtype) / 16)
        rows.append(_compared(float(row["speedup"]), ours, **where))
    return rows


def _density(outcomes: Outcomes, scope: Scope) -> list[Row]:
    rows = []
    for row in published("density"):
        if not scope.has(4096, row["blocksize"], row["density"]):
            continue
        where = {name: row[name] for name in ("device", "dtype", "mode", "blocksize", "density")}
        ours, n = None, None
        if row["device"] == "ipu":
            ours, n = _tflops(outcomes, row["mode"], row["blocksize"], row["density"], 4096)
        rows.append(_compared(float(row["tflops"]), ours, **where, n=n))
    return rows


def _blocks_and_sizes(outcomes: Outcomes, scope: Scope) -> list[Row]:
    rows = []
    for row in (
        *(row | {"m": "4096"} for row in published("blocks")),
        *(row | {"blocksize": "16"} for row in published("sizes")),
    ):
        if not scope.has(row["m"], row["blocksize"], "1/16"):
            continue
        m = int(row["m"])
        where = {"mode": row["mode"], "blocksize": int(row["blocksize"]), "m": m}
        ours, n = _tflops(outcomes, row["mode"], row["blocksize"], "1/16", m)
        rows.append(_compared(float(row["tflops"]), ours, **where, n=n))
    return rows


def _tflops(
    outcomes: Outcomes, mode: str, blocksize: str, density: str, m: int
) -> tuple[float | None, int | None]:
    parts = parts_of(density)
    if mode == "dense":
        return best_dense(m, "float16") / parts, None
    found = best(outcomes, mode, "float16", int(blocksize), parts, m)
    return (found[1].tflops, found[0].n) if found else (None, None)


def _dense(outcomes: Outcomes, scope: Scope) -> list[Row]:
    from sparsetile.plan.dense import dense_law

    rows = []
    for device in ("ipu", "gpu"):
        for row in published(f"{device}_dense"):
            m, n, dtype = int(row["m"]), int(row["n"]), row["dtype"]
            if not scope.has(m):
                continue
            ours = None
            if device == "ipu":  # the four phases alone: the rest is interpolated, hence equal here
                bow = preset("bow-ipu")
                ours = 2 * m * m * n / bow.seconds(dense_law(m, m, n, dtype, bow)) / 1e12
            where = {"device": device, "dtype": dtype, "m": m, "n": n}
            rows.append(_compared(float(row["tflops"]), ours, **where))
    return rows


def _grid(outcomes: Outcomes, scope: Scope) -> list[Row]:
    rows = []
    for row in published("static_grid"):
        if scope.has(row["m"], row["blocksize"], row["density"]):
            outcome = outcomes[grid_cell(row)]
            where = {name: int(row[name]) for name in ("blocksize", "m", "n")}
            ours = outcome and outcome.speedup
            told = number(row["speedup"])
            rows.append(_compared(told, ours, **where, density=row["density"]))
    return rows


def _power_law(outcomes: Outcomes, scope: Scope) -> list[Row]:
    rows: list[Row] = []
    for m in scope.sizes:
        for parts in scope.parts:
            for b in scope.blocks:
                found = best(outcomes, "static", "float16", b, parts, m)
                if found:
                    speedup = found[1].tflops / (best_dense(m, "float16") / parts)
                    where = {"m": m, "density": f"1/{parts}", "blocksize": b}
                    rows.append({**where, "n": found[0].n, "speedup": speedup})
    own = fit_law([(row["m"], 1 / _parts(row), row["blocksize"], row["speedup"]) for row in rows])
    for row in rows:
        at = row["m"], 1 / _parts(row), row["blocksize"]
        row |= {"published_law": _told_law().at(*at), "own_law": own.at(*at)}
    return rows


def _laws(points: Sequence[Row]) -> list[Row]:
    own = fit_law([(row["m"], 1 / _parts(row), row["blocksize"], row["speedup"]) for row in points])
    return [
        {
            "of": who,
            **law._asdict(),
            "within_factor_2": sum(0.5 <= row["speedup"] / row[name] <= 2 for row in points)
            / len(points),
        }
        for who, law, name in (
            ("PopSparse", _told_law(), "published_law"),
            ("ours", own, "own_law"),
        )
    ]


def _told_law() -> Law:
    (row,) = published("power_law")
    return Law(**{name: float(row[name]) for name in Law._fields})


def _parts(row: Row) -> int:
    return parts_of(row["density"])


def _regions(outcomes: Outcomes, scope: Scope) -> list[Row]:
    rows = []
    for mode in MODES:
        for b in scope.blocks:
            for m in scope.sizes:
                for parts in scope.parts:
                    found = best(outcomes, mode, "float16", b, parts, m)
                    dense = best_dense(m, "float16") / parts
                    row = {"mode": mode, "blocksize": b, "m": m, "density": f"1/{parts}"}
                    said = "yes" if _said_to_win(mode, b, m, parts) else "no"
                    speedup = found and found[1].tflops / dense
                    rows.append({**row, "n": _n(found), "speedup": speedup, "said_to_win": said})
    return rows


def _said_to_win(mode: str, b: int, m: int, parts: int) -> bool:
    return any(
        row["mode"] == mode
        and str(b) in row["blocksizes"].split()
        and m >= int(row["least_m"])
        and parts >= parts_of(row["most_density"])
        for row in published("regions")
    )


def _phases(outcomes: Outcomes, scope: Scope) -> list[Row]:
    rows = []
    for cell in scope.phase_cells():
        where = {"mode": cell.mode, "blocksize": cell.b, "density": f"1/{cell.parts}"}
        outcome = outcomes[cell]
        for phase, cycles in outcome.terms if outcome else ():
            if cycles:
                rows.append({**where, "m": cell.m, "n": cell.n, "phase": phase, "cycles": cycles})
    return rows


def _what_if(outcomes: Outcomes, scope: Scope) -> list[Row]:
    rows = []
    for machine in scope.machines:
        for mode in MODES:
            for m in scope.what_if_sizes():
                for b in scope.blocks:
                    for parts in scope.parts:
                        found = best(outcomes, mode, "float16", b, parts, m, machine)
                        tflops = found[1].tflops if found else None
                        dense = best_dense(m, "float16", machine) / parts
                        rows.append(
                            {
                                "machine": machine.name, "mode": mode, "blocksize": b,
                                "density": f"1/{parts}", "m": m, "n": _n(found), "tflops": tflops,
                                "speedup": tflops and tflops / dense,
                            }
                        )  # fmt: skip
    return rows


def _n(found: tuple[Any, Outcome] | None) -> int | None:
    return found[0].n if found else None
