"""The finished runs by the part of the experiment that asks for them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparsetile.bench.dynsparse._plan import jobs
from sparsetile.bench.dynsparse._setting import Setting, setting_of
from sparsetile.bench.dynsparse._tiers import Tier

Row = dict[str, Any]
#: What one line of the comparison is.
Family = tuple[str, int, int, str]


def chosen(tier: Tier, runs: Sequence[Row]) -> dict[str, list[Row]]:
    """Sort finished runs by the parts of a tier; a run can belong to several.

    Args:
        tier: The tier.
        runs: Rows of `runs.csv`.

    Returns:
        By part, the rows in the order of the plan; runs of other tiers are left out.
    """
    parts: dict[str, list[Row]] = {}
    if not runs:
        return parts
    rows: dict[Setting, Row] = {setting_of(row): row for row in runs}
    losses = {setting: float(row["loss"]) for setting, row in rows.items()}
    tier = replace(tier, vocabulary=int(runs[0]["vocabulary"]))
    for job in jobs(tier, str(runs[0]["text"]), losses):
        if job.setting in rows:
            parts.setdefault(job.stage, []).append(rows[job.setting])
    return parts


def family_of(row: Mapping[str, Any]) -> Family:
    """The line of the comparison that a run belongs to."""
    return row["method"], row["blocksize"], row["width"], row["objective"]


def by_family(rows: Sequence[Row]) -> dict[Family, list[Row]]:
    """Rows of each line, seeds in order."""
    found: dict[Family, list[Row]] = {}
    for row in rows:
        found.setdefault(family_of(row), []).append(row)
    return {family: sorted(of, key=lambda row: int(row["seed"])) for family, of in found.items()}
