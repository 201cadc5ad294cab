"""Checks of a trainer's saved state, all of them before anything is taken over."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sparsetile.train._bits import no_bits
from sparsetile.train._check import checked_int
from sparsetile.train._records import Update

if TYPE_CHECKING:
    from sparsetile.train._method import Method

VERSION = 3
_KEYS = (
    "version",
    "step_count",
    "generator",
    "history",
    "positions",
    "at_start",
    "ever",
    "born",
    "memory",
)
_COUNTS = ("moved", "dropped", "wasted", "blocks")


def check_state(state: Any, positions: Mapping[str, int], born: torch.dtype) -> None:
    """Refuse what no trainer of this model can have saved.

    Args:
        state: What is to be loaded.
        positions: Number of block positions of each layer that the trainer looks after.
        born: How its trainer notes the births of blocks.

    Raises:
        TypeError: If an entry has the wrong type.
        ValueError: If an entry is missing or out of range, or belongs to other layers.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"state must be what state_dict() returned, got {type(state).__name__}")
    missing = sorted(set(_KEYS) - state.keys())
    if missing:
        raise ValueError(
            f"state lacks {', '.join(missing)}; give what Trainer.state_dict() returned"
        )
    version = state["version"]
    if not isinstance(version, int) or version != VERSION:
        raise ValueError(f"state must be of version {VERSION}, got {version!r}")
    steps = checked_int("state['step_count']", state["step_count"], least=0)
    _check_generator(state["generator"])
    _check_history(state["history"], steps)
    _check_layers(_mapping("state['positions']", state["positions"]), positions)
    parts = {}
    for key in ("at_start", "ever", "born", "memory"):
        parts[key] = _mapping(f"state[{key!r}]", state[key])
        if parts[key].keys() != positions.keys():
            raise ValueError(
                f"state[{key!r}] must have the layers of state['positions'], {sorted(positions)}, "
                f"got {sorted(map(str, parts[key]))}"
            )
    for name, size in positions.items():
        at_start = parts["at_start"][name]
        checked_int(f"state['at_start'][{name!r}]", at_start, least=0, most=size)
        _check_bits(f"state['ever'][{name!r}]", parts["ever"][name], size)
        _check_born(f"state['born'][{name!r}]", parts["born"][name], size, born)
        notes = f"state['memory'][{name!r}]"
        for key, value in _mapping(notes, parts["memory"][name]).items():
            if not isinstance(value, Tensor) or value.is_meta:
                raise TypeError(
                    f"{notes}[{key!r}] must be a tensor that holds data, got {_kind(value)}"
                )


def method_state(method: "Method") -> dict[str, str]:
    """Say by which method and schedule a run trains.

    Returns:
        The words for it by part; those for objects of the user's own are left out.
    """
    parts = {"clock": method.clock, "amount": method.amount}
    words = {name: repr(part) for name, part in parts.items() if is_dataclass(part)}
    return {"name": type(method).__name__, **words}


def check_method(state: Mapping[str, Any], method: "Method") -> None:
    """Refuse the state of a run by another method or schedule.

    Raises:
        TypeError: If it tells its method in another way than `method_state`.
        ValueError: If the methods differ.
    """
    theirs, ours = _mapping("state['method']", state.get("method", {})), method_state(method)
    for part in ours.keys() & theirs.keys():
        if theirs[part] != ours[part]:
            raise ValueError(
                f"state comes from {_words(theirs)}, and this trainer is {_words(ours)}; build the "
                "method as in the run that is resumed, or, to begin its own schedule with this "
                "one, leave the trainer's state out: del optimizer_state['sparsetile']"
            )


def _words(method: Mapping[str, str]) -> str:
    parts = ", ".join(f"{key}={value}" for key, value in method.items() if key != "name")
    return f"{method.get('name', 'a method')}({parts})"


def update_of(entry: Mapping[str, Any]) -> Update:
    """Make the record of one update from its saved form."""
    return Update(entry["step"], *(dict(entry[key]) for key in _COUNTS))


def _check_layers(theirs: Mapping[Any, Any], ours: Mapping[str, int]) -> None:
    for name, size in theirs.items():
        checked_int(f"state['positions'][{name!r}]", size, least=0)
    if theirs == ours:
        return
    odd = sorted(str(name) for name in theirs.keys() | ours if theirs.get(name) != ours.get(name))
    raise ValueError(
        f"state comes from a model with other sparse layers: state['positions'] and the model "
        f"differ in {odd[0]!r}, by name or number of block positions; build the same model and "
        "attach before loading"
    )


def _check_generator(value: Any) -> None:
    if not isinstance(value, Tensor) or value.dtype != torch.uint8 or value.is_meta:
        raise TypeError(
            f"state['generator'] must be the uint8 tensor of a generator, got {_kind(value)}"
        )
    try:
        torch.Generator().set_state(value.cpu())
    except (RuntimeError, TypeError) as fault:
        raise ValueError(f"state['generator'] is no state of a CPU generator: {fault}") from fault


def _check_history(value: Any, steps: int) -> None:
    if not isinstance(value, list | tuple):
        raise TypeError(f"state['history'] must be a list of updates, got {_kind(value)}")
    for i, entry in enumerate(value):
        name = f"state['history'][{i}]"
        if missing := {"step", *_COUNTS} - _mapping(name, entry).keys():
            wanted = ", ".join(("step", *_COUNTS))
            raise ValueError(f"{name} must have {wanted}; it lacks {sorted(missing)}")
        checked_int(f"{name}['step']", entry["step"], least=1, most=steps)
        for key in _COUNTS:
            for layer, count in _mapping(f"{name}[{key!r}]", entry[key]).items():
                if not isinstance(layer, str):
                    raise TypeError(f"{name}[{key!r}] must have layers' names, got {_kind(layer)}")
                checked_int(f"{name}[{key!r}][{layer!r}]", count, least=0)


def _check_bits(name: str, value: Any, size: int) -> None:
    wanted = no_bits(size).shape
    if not isinstance(value, Tensor) or value.dtype != torch.uint8 or value.is_meta:
        raise TypeError(f"{name} must be a uint8 tensor that holds data, got {_kind(value)}")
    if value.layout != torch.strided or value.shape != wanted:
        raise ValueError(
            f"{name} must be of shape {list(wanted)}, one bit for each of {size} block positions, "
            f"got {list(value.shape)}"
        )
    if size % 8 and int(value[-1]) >> size % 8:
        raise ValueError(f"{name} marks positions beyond the {size} that there are")


def _check_born(name: str, value: Any, size: int, dtype: torch.dtype) -> None:
    if not isinstance(value, Tensor) or value.dtype != dtype or value.is_meta:
        raise TypeError(
            f"{name} must be a {dtype} tensor that holds data, as methods with this young=… save "
            f"it, got {_kind(value)}"
        )
    if value.ndim != 1 or len(value) > size:
        raise ValueError(
            f"{name} must be a vector with one entry for each stored block, at most {size}, got "
            f"shape {list(value.shape)}"
        )


def _mapping(name: str, value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping, got {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a {value.dtype} tensor of shape {list(value.shape)} on {value.device}"
    return f"{value!r} of type {type(value).__name__}"
