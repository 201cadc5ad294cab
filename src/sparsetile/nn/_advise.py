"""Measures on this machine which layers of a model would be faster sparse."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any, Literal

import torch
from torch import nn

from sparsetile.matrix import Pattern, random_pattern
from sparsetile.nn import _advise_time as timing
from sparsetile.nn import _check
from sparsetile.nn._advise_inputs import Call, calls_of
from sparsetile.nn._advise_report import Advice, AdvisedLayer, Trial
from sparsetile.nn._selection import Filter, selected
from sparsetile.nn._targets import LinearTarget, Target

Progress = Callable[[int, int, str], None]
Way = tuple[float, tuple[int, int]]  # density and block size


def advise(
    model: nn.Module,
    *,
    density: float | Sequence[float],
    blocksize: int | tuple[int, int] | list[int | tuple[int, int]],
    example_inputs: Any,
    filter: Filter | None = None,
    threads: int | None = None,
    seconds: float = 10.0,
    progress: Progress | None = None,
) -> Advice:
    """Measure which linear layers of a model would be faster sparse, on this machine.

    The model runs once on the example inputs, in evaluation mode, to see how many rows each layer
    is given; it is not changed. Then each layer's forward product is timed at these shapes, dense
    and sparse in turns, with a random pattern. Equal layers are timed once. Beside other work on
    the machine, times of more than one thread are rough: measure alone, or with `threads=1`, where
    only CPU time counts.

    Args:
        model: Any module.
        density: Share of the blocks to keep, in (0, 1], or several to try.
        blocksize: Shape of the blocks, an int or `(r, c)`, or a list of several to try.
        example_inputs: What the model is to be run on: a tensor, a tuple of arguments, or a
            mapping of keyword arguments. Batch and sequence should be those of real use.
        filter: `filter(module, name)` says which linear layers to look at; by default those that
            `sparsify_` would replace.
        threads: Threads of a product; by default as many as torch uses now.
        seconds: Time to spend on timing, all layers together; each case is timed three times at
            least, however long that takes.
        progress: Called as `progress(done, total, name)` before each group of equal layers.

    Returns:
        A row for each layer with its fastest density and block size, and what was measured for
        the others; `print` shows it as a table.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If one is out of range.

    Examples:
        >>> model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
        >>> advice = advise(
        ...     model, density=0.1, blocksize=[4, 16], example_inputs=torch.ones(32, 64), seconds=0
        ... )
        >>> [(layer.name, layer.rows, len(layer.trials)) for layer in advice.layers]
        [('0', 32, 2), ('2', 32, 2)]
    """
    ways = _checked(model, density, blocksize, filter, seconds)
    targets, left = selected(model, filter, False)
    linear = {each.name: each.dense for each in targets if isinstance(each, LinearTarget)}
    calls = calls_of(model, linear, example_inputs)
    with _threads(threads):
        trials = _measured(
            linear,
            calls,
            lambda layer: {way: _random(layer, way) for way in ways},
            seconds=seconds,
            progress=progress,
        )
        used = torch.get_num_threads()
    rows = tuple(_row(name, layer, calls[name], trials[name]) for name, layer in linear.items())
    return Advice(rows, used, _left(left, targets))


def slower(
    targets: Sequence[Target],
    patterns: Sequence[Pattern | None],
    model: nn.Module,
    example_inputs: Any,
    *,
    seconds: float = 10.0,
) -> dict[str, str]:
    """Find the linear layers that would be slower sparse, at the patterns they are to have.

    Args:
        targets: What is to be replaced.
        patterns: One for each weight of each target, in order; None where it stays dense.
        model: The model.
        example_inputs: As for `advise`.
        seconds: As for `advise`.

    Returns:
        The reason by the layer's name, also of layers that the inputs do not reach.
    """
    given = iter(patterns)
    chosen: dict[str, tuple[nn.Module, Pattern]] = {}
    for target in targets:
        for _ in target.weights():
            pattern = next(given)
            if pattern is not None and isinstance(target, LinearTarget):
                chosen[target.name] = target.dense, pattern
    layers = {name: layer for name, (layer, _) in chosen.items()}
    calls = calls_of(model, layers, example_inputs)
    ways = {id(layer): {_way(pattern): pattern} for layer, pattern in chosen.values()}
    trials = _measured(layers, calls, lambda layer: ways[id(layer)], seconds=seconds)
    rows = [_row(name, layer, calls[name], trials[name]) for name, layer in layers.items()]
    return {row.name: row.why for row in rows if row.recommendation == "dense"}


def _measured(
    layers: Mapping[str, nn.Module],
    calls: Mapping[str, Sequence[Call]],
    patterns: Callable[[nn.Module], Mapping[Way, Pattern]],
    *,
    seconds: float,
    progress: Progress | None = None,
) -> dict[str, tuple[Trial, ...]]:
    """Time each layer at each call it gets, equal ones once, and add up its calls."""
    made = {name: patterns(layer) for name, layer in layers.items()}
    keys = {
        (name, call): (timing.alike(layers[name], call), tuple(made[name]))
        for name in layers
        for call in calls[name]
    }
    groups: dict[Hashable, tuple[str, Call]] = {}
    for (name, call), key in keys.items():
        groups.setdefault(key, (name, call))
    times: dict[Hashable, dict[Way | None, float]] = {}
    for done, (group, (name, call)) in enumerate(groups.items()):
        if progress is not None:
            progress(done, len(groups), name)
        cases = timing.products(layers[name], made[name], call)
        times[group] = timing.fastest(cases, seconds=seconds / len(groups))
    if progress is not None:
        progress(len(groups), len(groups), "")
    trials: dict[str, tuple[Trial, ...]] = {}
    for name, layer in layers.items():
        seen = [times[keys[name, call]] for call in calls[name]]
        weight = layer._parameters["weight"]
        assert weight is not None
        trials[name] = tuple(
            Trial(
                density=way[0],
                blocksize=way[1],
                sparse_ms=1e3 * sum(one[way] for one in seen),
                dense_ms=1e3 * sum(one[None] for one in seen),
                bytes=timing.stored_bytes(pattern, weight.dtype),
            )
            for way, pattern in (made[name].items() if seen else ())
        )
    return trials


def _row(
    name: str, layer: nn.Module, calls: Sequence[Call], trials: tuple[Trial, ...]
) -> AdvisedLayer:
    weight = layer._parameters["weight"]
    assert weight is not None
    size = weight.numel() * weight.element_size()
    rows = sum(call.rows for call in calls)
    best = min(trials, key=lambda trial: trial.sparse_ms, default=None)
    advice: Literal["sparse", "dense"] = "dense"
    if best is None:
        why = "example_inputs never reach it: not measured, stays dense"
    else:
        share = f"{100 * best.bytes / size:.0f} %" if size else "0 %"
        if best.ratio >= 1:
            advice, why = "sparse", f"{best.ratio:.2f}× as fast, with {share} of the bytes"
        elif best.bytes < size:
            why = f"only {best.ratio:.2f}× as fast, though with {share} of the bytes"
        else:
            why = f"only {best.ratio:.2f}× as fast, and {share} of the bytes"
    return AdvisedLayer(name, timing.shape_of(layer), rows, size, trials, advice, why)


def _random(layer: nn.Module, way: Way) -> Pattern:
    density, block = way
    return random_pattern(*timing.shape_of(layer), blocksize=block, density=density, seed=0)


def _way(pattern: Pattern) -> Way:
    mb, kb = pattern.grid
    return (pattern.nnzb / (mb * kb) if mb * kb else 1.0), pattern.blocksize


def _left(left: str, targets: Sequence[Target]) -> str:
    others = [target.name for target in targets if not isinstance(target, LinearTarget)]
    found = [left.removeprefix("the model's layers: ")] if left.startswith("the model's") else []
    if others:
        found.append(f"{', '.join(others)}, which only linear layers can be advised on")
    if not targets and not found:
        found.append(left)
    return ", ".join(found)


def _checked(
    model: Any, density: Any, blocksize: Any, filter: Any, seconds: Any
) -> tuple[Way, ...]:
    """Check the arguments; every density with every block size."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if filter is not None and not callable(filter):
        raise TypeError(
            f"filter must be callable as filter(module, name) -> bool, got {type(filter).__name__}"
        )
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not isfinite(seconds) or seconds < 0:
        raise ValueError(
            f"seconds: got {seconds!r}; allowed: a number from 0 up; pass 10 for ten seconds in all"
        )
    densities = list(density) if isinstance(density, list | tuple) else [density]
    blocks = blocksize if isinstance(blocksize, list) else [blocksize]
    for name, several in (("density", densities), ("blocksize", blocks)):
        if not several:
            raise ValueError(
                f"{name}: got an empty list; allowed: one or more to try; pass one such as 0.1 for "
                "density, 16 for blocksize"
            )
    pairs = [(share, _check.check_draw(None, b, share)) for share in densities for b in blocks]
    return tuple(dict.fromkeys((float(share), block) for share, block in pairs))


@contextmanager
def _threads(number: Any) -> Iterator[None]:
    """Let torch use so many threads for as long as a `with` lasts."""
    if number is None:
        yield
        return
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(
            f"threads: got {number!r}; allowed: an int from 1; leave it out to use torch's"
        )
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
