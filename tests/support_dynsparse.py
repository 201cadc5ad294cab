"""What the tests of `reproduce dynsparse` share: a text of letters, a small tier, made-up runs."""

from dataclasses import replace
from math import log2

import numpy as np

from sparsetile.bench.dynsparse import TIERS
from sparsetile.bench.dynsparse._data import Data
from sparsetile.bench.dynsparse._plan import jobs
from sparsetile.bench.dynsparse._setting import Setting
from sparsetile.bench.dynsparse._store import Store
from sparsetile.bench.dynsparse._train import Result

SMALL = replace(
    TIERS["ci"],
    layers=1,
    width=32,
    dense_widths=(16, 24),
    blocks=(4,),
    steps=12,
    every=3,
    batch=4,
    sequence=16,
    vocabulary=32,
    timed_rounds=1,
)


def data() -> Data:
    """Tokens of which each says what the next one is, mostly."""
    rng = np.random.default_rng(0)
    tokens = np.cumsum(np.where(rng.random(6000) < 0.8, 3, rng.integers(0, 32, 6000))) % 32
    tokens = tokens.astype(np.uint16)
    return Data("made up", tokens[:5000], tokens[5000:], 32, 0)


def setting(method="dynsparse", blocksize=4, **more) -> Setting:
    """A run of the small tier."""
    moving = {"every": 3, "prune_ratio": 0.5, "drop": "l1"}
    small = {
        "method": method,
        "blocksize": blocksize,
        "width": 32,
        "layers": 1,
        "lr": 0.01,
        "steps": 12,
        "density": 0.25 if blocksize else 1.0,
        "batch": 4,
        "sequence": 16,
        "vocabulary": 32,
    }
    return Setting(**small | (moving if method in ("dynsparse", "rigl") else {}) | more)


def loss_of(run: Setting) -> float:
    """A loss in the paper's order, best at a learning rate of 0.008 and blocks of 1."""
    start = {"dense": 4.3 - 0.1 * log2(run.width), "static": 3.72, "dynsparse": 3.6, "rigl": 3.65}
    loss = start[run.method] + 0.01 * log2(run.blocksize or 1) + 0.001 * run.seed
    loss += 0.02 * log2(run.lr / 8e-3) ** 2
    return loss + {"l2": 0.01, "max": 0.02}.get(run.drop, 0.0)


def made_up(run: Setting) -> Result:
    """A result without training."""
    loss, dense = loss_of(run), run.method == "dense"
    row = {
        "loss": loss,
        "train_loss": loss,
        "stuck": 0,
        "unigram": 5.8,
        "stored": 1.0 if dense else 0.1,
        "flops": 1e4 * run.width**2 if dense else 86e6,
        "all_flops": 1e4 * run.width**2 + 3e7 if dense else 123e6,
        "attention_share": 0.2,
        "block_bytes": 380 * run.width**2 if dense else 2_600_000,
        "all_bytes": 380 * run.width**2 + 2_000_000 if dense else 4_600_000,
        "cpu_seconds": 100.0,
        "step_ms": 20.0,
        "updates": run.steps // run.every if run.moves else 0,
        "coverage": 0.9 if run.moves else 0.1,
        "wasted": 0.05 if run.moves else 0.0,
        "empty_rows": 3,
        "empty_rows_end": 5,
        "block_rows": 100,
    }
    part = {"train_loss": loss, "seconds": 1.0, "wasted": 0.0}
    curve = [
        part | {"step": run.steps * at // 4, "loss": loss + 1 - at / 4, "coverage": at / 5}
        for at in range(1, 5)
    ]
    return Result(row, curve)


def fill(folder, tier, most=10_000) -> Store:
    """A folder in which a tier's runs are done, the first `most` of them."""
    store = Store(folder)
    while len(store.runs) < most:
        todo = [job for job in jobs(tier, "made up", store.losses)]
        todo = {job.setting: job for job in todo if job.setting not in store.losses}
        if not todo:
            break
        for job in list(todo.values())[: most - len(store.runs)]:
            store.add(job.stage, job.setting, made_up(job.setting))
    return store
