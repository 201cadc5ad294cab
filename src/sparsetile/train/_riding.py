"""Lets a trainer ride in its optimizer's state, so that anybody's checkpoints hold it too."""

import warnings
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.hooks import RemovableHandle

if TYPE_CHECKING:
    from sparsetile.train._trainer import Trainer

# Torch's optimizers read two entries of a state by name and pass over all others.
KEY = "sparsetile"
# Torch keeps all entries of a parameter group, so this one tells of a state that nobody took.
STEPS = "sparsetile_steps"

# The trainers of each optimizer in the order in which they were attached.
_RIDERS: "weakref.WeakKeyDictionary[torch.optim.Optimizer, list[weakref.ref[Trainer]]]" = (
    weakref.WeakKeyDictionary()
)


def ride(trainer: "Trainer", optimizer: torch.optim.Optimizer) -> tuple[RemovableHandle, ...]:
    """Put a trainer's state into its optimizer's, and take it from there.

    Args:
        trainer: Whose state.
        optimizer: In whose `state_dict()` it travels and by whose `load_state_dict` it is restored,
            if it is in there. Several trainers may follow one optimizer; those that have layers of
            the same names and sizes are told apart by the order in which they were attached.

    Returns:
        Handles that end this.
    """

    def save(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        first, *others = state["param_groups"]
        if trainer.step_count:
            first = {**first, STEPS: max(trainer.step_count, first.get(STEPS, 0))}
        riders = [*state.get(KEY, []), trainer.state_dict()]
        return {**state, "param_groups": [first, *others], KEY: riders}

    def load(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
        riders = state.get(KEY, [])
        if not riders:
            return
        alike = [rider for ref in fellows if (rider := ref()) and _rides_like(rider, trainer)]
        mine = [s for s in riders if s["positions"] == trainer._positions]
        place = alike.index(trainer)
        trainer.load_state_dict(mine[place] if place < len(mine) else (mine or riders)[0])

    def tidy(optimizer: torch.optim.Optimizer) -> None:
        _take_steps(optimizer)

    _warn_if_late(optimizer)
    fellows = _RIDERS.setdefault(optimizer, [])
    fellows.append(weakref.ref(trainer))
    return (
        optimizer.register_state_dict_post_hook(save),
        optimizer.register_load_state_dict_pre_hook(load),
        optimizer.register_load_state_dict_post_hook(tidy),
    )


def _take_steps(optimizer: torch.optim.Optimizer) -> int:
    """Steps of the trainer whose state was in what the optimizer loaded; the note of it goes."""
    return max(group.pop(STEPS, 0) for group in optimizer.param_groups)


def _warn_if_late(optimizer: torch.optim.Optimizer) -> None:
    if steps := _take_steps(optimizer):
        warnings.warn(
            f"the optimizer has loaded the state of a run of {steps} steps before its trainer was "
            "attached, so the trainer's part of it is lost and its schedule begins anew; attach "
            "first and load then, or give the trainer its part: "
            "trainer.load_state_dict(optimizer_state['sparsetile'][0])",
            stacklevel=4,
        )


def _rides_like(rider: "Trainer", trainer: "Trainer") -> bool:
    return rider._attached and rider._positions == trainer._positions
