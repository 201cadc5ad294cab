"""Makes a trained model sparse, in place."""

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import nn

from sparsetile.matrix import Pattern
from sparsetile.nn import BlockSparse, Budget, sparsify_
from sparsetile.prune._calibration import Calibration, Feed
from sparsetile.prune._check import checked_flag, checked_int, message
from sparsetile.prune._layer import OneShot
from sparsetile.prune._magnitude import Magnitude
from sparsetile.prune._nm import NM
from sparsetile.prune._reconstruct import LeastSquares
from sparsetile.prune._report import PruneReport
from sparsetile.prune._run import Progress, Run, Settings
from sparsetile.prune._shares import as_budget
from sparsetile.prune._sparsegpt import SparseGPT
from sparsetile.prune._wanda import Wanda

METHODS: dict[str, Callable[[], OneShot]] = {
    "magnitude": Magnitude,
    "wanda": Wanda,
    "sparsegpt": SparseGPT,
}


def prune_(
    model: nn.Module,
    *,
    density: float | Budget | Mapping[str, float | Budget | Pattern | None],
    blocksize: int | tuple[int, int],
    method: Literal["magnitude", "wanda", "sparsegpt"] | OneShot = "magnitude",
    calibration: Calibration | None = None,
    filter: Callable[[nn.Module, str], bool] | None = None,
    reconstruct: bool | LeastSquares = False,
    sequential: bool = False,
    steps: int = 1,
    memory_limit: int = 1 << 30,
    output_errors: bool = True,
    progress: Progress | None = None,
) -> PruneReport:
    """Replace the linear layers of a trained model by block-sparse ones, in place.

    Layers are found, left out and replaced as `sparsify_` does. The model changes only when every
    layer has been pruned: if anything fails or is interrupted, it is as it was.

    Calibration runs the model in evaluation mode without gradients. Padding does not count where a
    batch is a dict with an `attention_mask` `[batch, sequence]` and a layer's input is
    `[batch, sequence, k]`. A hundred or so sequences like those the model will meet suffice.

    Args:
        model: Any module that contains the layers.
        density: Share of the blocks to keep, in (0, 1]; a budget (`Uniform`, `ERK`,
            `GlobalMagnitude`); a mapping from layer names or globs to these; or `NM(2, 4)`, at
            blocksize 1. Numbers of blocks are exact.
        blocksize: Shape of the blocks, an int or `(r, c)`; it need not divide the layers.
        method: What chooses the blocks: `"magnitude"`, `"wanda"`, `"sparsegpt"`, one of their
            objects with other settings, or any object with the two members of `OneShot`. Where a
            budget chooses the blocks itself, SparseGPT and `reconstruct` still set the values.
        calibration: Batches (a tensor, a tuple of arguments, or a dict of keyword arguments such
            as a tokenizer's output, each), or a function of the model that runs it.
        filter: `filter(module, name)` says which layers to prune; by default all that
            `sparsify_` would replace.
        reconstruct: Solve for the kept weights anew by least squares, after any method.
        sequential: Collect a layer's inputs with the earlier layers pruned already, as SparseGPT
            does; one run of the data for each layer instead of one for all.
        steps: Prune gradually, along the cubic of Zhu and Gupta (2017), collecting inputs anew
            before each step.
        memory_limit: Bytes that Gram matrices may take together; layers beyond it wait for
            another run of the data. One matrix alone, `8 k²` bytes, is allowed in any case.
        output_errors: Measure the output error of each layer where there is calibration; without,
            Wanda collects norms alone.
        progress: Called as `progress(done, total, name)` after each layer, and with the name
            "calibration" before each run of the data.

    Returns:
        What was done to each layer; `print` shows it as a table.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, there is nothing to prune, or calibration is
            missing, empty, not finite, or never reaches a layer.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
        >>> data = torch.randn(256, 64) @ torch.randn(64, 64)
        >>> report = prune_(
        ...     model, density=0.5, blocksize=4, method="sparsegpt", calibration=[data]
        ... )
        >>> model[0]
        Linear(in_features=64, out_features=64, bias=True, blocksize=4, density=0.50, nnzb=128)
        >>> report.layers[0].blocks, report.layers[0].output_error < 0.5
        (128, True)
    """
    begin = time.perf_counter()
    if not isinstance(model, nn.Module):
        raise TypeError(
            message("model", got=type(model).__name__, allowed="a torch.nn.Module", fix="pass one")
        )
    settings = _settings(
        method, calibration, reconstruct, sequential, steps, memory_limit, output_errors, progress
    )
    budget = as_budget(density)
    if isinstance(budget, NM) and settings.steps > 1:
        raise ValueError(
            message(
                "steps",
                got=f"{settings.steps} with the pattern {budget}",
                allowed="1, for the pattern has no density in between",
                fix="leave out steps",
            )
        )
    run = Run(model, budget, settings)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="sparsify_ replaced nothing")
            sparsify_(model, density=run, blocksize=blocksize, filter=filter)
    except UserWarning as nothing:
        if "sparsify_ replaced nothing" not in str(nothing):
            raise
        text = str(nothing).replace("sparsify_ replaced nothing", "prune_ found nothing to prune")
        raise ValueError(text) from None
    with torch.no_grad():
        for name, values in run.values.items():
            layer = model.get_submodule(name)
            assert isinstance(layer, BlockSparse)
            layer.values.copy_(values)
    return PruneReport(tuple(run.rows.values()), time.perf_counter() - begin)


def _settings(
    method: Any,
    calibration: Any,
    reconstruct: Any,
    sequential: Any,
    steps: Any,
    memory_limit: Any,
    output_errors: Any,
    progress: Any,
) -> Settings:
    """Check how to prune."""
    method = _method(method)
    if isinstance(reconstruct, bool):
        reconstruct = LeastSquares() if reconstruct else None
    elif not isinstance(reconstruct, LeastSquares):
        allowed = "True, False or LeastSquares(…)"
        raise TypeError(
            message("reconstruct", got=repr(reconstruct), allowed=allowed, fix="pass one")
        )
    if progress is not None and not callable(progress):
        allowed = "a function of (done, total, name)"
        raise TypeError(message("progress", got=repr(progress), allowed=allowed, fix="pass one"))
    needed = [name for name, on in (("reconstruct", reconstruct), ("sequential", sequential)) if on]
    if method.needs != "nothing":
        needed.insert(0, f"method {type(method).__name__}")
    if calibration is None and needed:
        raise ValueError(
            message(
                "calibration",
                got=f"None with {' and '.join(needed)}",
                allowed="data that run through the model",
                fix="pass batches, as in calibration=[tokenizer(texts, return_tensors='pt', "
                'padding=True)], or method="magnitude", which needs none',
            )
        )
    return Settings(
        method=method,
        feed=None if calibration is None else Feed(calibration),
        reconstruct=reconstruct,
        sequential=checked_flag("sequential", sequential),
        steps=checked_int("steps", steps, fix="leave it out to prune at once"),
        memory_limit=checked_int("memory_limit", memory_limit, fix="it is in bytes"),
        output_errors=checked_flag("output_errors", output_errors),
        progress=progress,
    )


def _method(method: Any) -> OneShot:
    names = ", ".join(map(repr, METHODS))
    if isinstance(method, str) and method in METHODS:
        return METHODS[method]()
    if not isinstance(method, str | type) and isinstance(method, OneShot):
        return method
    allowed = f"{names}, or an object such as Wanda()"
    fix = "pass one of these"
    if "movement" in str(method).lower():
        fix = "movement pruning needs training: Movement(…).attach(model, optimizer)"
    kind = ValueError if isinstance(method, str) else TypeError
    raise kind(message("method", got=f"{method!r:.60}", allowed=allowed, fix=fix))
