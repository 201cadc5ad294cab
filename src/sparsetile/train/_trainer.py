"""Follows an optimizer and updates the patterns of a model's sparse layers when it is time."""

import gc
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sparsetile.nn import BlockSparse, Linear
from sparsetile.train._averages import warn_of_averages
from sparsetile.train._bits import count_bits, no_bits, set_bits_
from sparsetile.train._budget import Change, Stock
from sparsetile.train._closure import after_closure
from sparsetile.train._infancy import Infancy
from sparsetile.train._layers import check_same_pattern, same_layers, trained_layers
from sparsetile.train._listening import Listening
from sparsetile.train._moments import (
    check_optimizer,
    check_room,
    momentum_of,
    per_block_state,
    replace_state,
)
from sparsetile.train._positions import positions
from sparsetile.train._records import Coverage, Update
from sparsetile.train._riding import ride
from sparsetile.train._room import Room
from sparsetile.train._schedule import Never
from sparsetile.train._state import VERSION, check_method, check_state, method_state, update_of
from sparsetile.train._update import Move, apply_, choose

if TYPE_CHECKING:
    from sparsetile.train._method import Method

# The trainer that was attached last to each layer; two would move blocks behind each other's back.
_TRAINERS: "weakref.WeakKeyDictionary[BlockSparse, weakref.ref[Trainer]]" = (
    weakref.WeakKeyDictionary()
)


class Trainer:
    """Updates patterns after an optimizer's steps; made by the `attach` of a method.

    Attributes:
        layers: The sparse layers it looks after, by name.
        step_count: Optimizer steps seen so far.
        history: One `Update` for each update so far.

    Examples:
        >>> from sparsetile.train import DynSparse
        >>> model = nn.Sequential(Linear(64, 64, density=0.25))
        >>> optimizer = torch.optim.Adam(model.parameters())
        >>> trainer = DynSparse(total_steps=10, every=2).attach(model, optimizer)
        >>> for _ in range(10):
        ...     optimizer.zero_grad()
        ...     model(torch.randn(8, 64)).square().mean().backward()
        ...     optimizer.step()
        >>> [update.total for update in trainer.history]
        [2, 2, 1, 1]
        >>> trainer.coverage().mean > 0.25
        True
    """

    def __init__(
        self, method: "Method", model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        self.method = method
        optimizer = _unwrapped(optimizer)
        self.layers = trained_layers(model, optimizer)
        _refuse_second(self.layers)
        if self._moves:
            check_optimizer(optimizer)
        self.step_count = 0
        self.history: list[Update] = []
        self._callbacks: list[Any] = []
        self._copies: list[Mapping[str, BlockSparse]] = []
        self._generator = torch.Generator().manual_seed(method.seed)
        # Which positions were stored at any time, one bit each.
        self._positions = {name: _size(layer) for name, layer in self.layers.items()}
        self._ever = {name: no_bits(size) for name, size in self._positions.items()}
        self._mark()
        self._at_start = {name: layer.nnzb for name, layer in self.layers.items()}
        self._room = dict(self._at_start)
        # What growth scores and constraints note of a layer from one update to the next.
        self._memory: dict[str, dict[str, Tensor]] = {name: {} for name in self.layers}
        self._infancy = Infancy(method.young, self.layers)
        self._listening = Listening(method, self._memory)
        self._optimizer = weakref.ref(optimizer)
        method.after_update(self.layers, {}, self._generator)  # may refuse
        self._hooks = (
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
            *ride(self, optimizer),
        )
        self._attached = True
        for layer in self.layers.values():
            _TRAINERS[layer] = weakref.ref(self)
        self._listen()

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        """The optimizer it follows; None once that is gone."""
        return self._optimizer()

    def detach(self) -> None:
        """Stop following the optimizer; the patterns stay as they are."""
        self._attached = False
        self._listening.end()
        for hook in self._hooks:
            hook.remove()

    def add_callback(self, callback: Any) -> Any:
        """Call an object's `on_step(trainer)` and `on_update(trainer, update)` from now on.

        An object that has `on_add(trainer)` too can refuse the trainer at once.

        Args:
            callback: Any object with one or both of these methods. `on_step` comes after every
                optimizer step, before the update that may follow it, `on_update` after an update.

        Returns:
            The callback.

        Raises:
            TypeError: If it has neither method.
        """
        if not any(callable(getattr(callback, name, None)) for name in ("on_step", "on_update")):
            raise TypeError(
                f"callback must have a method on_step(trainer) or on_update(trainer, update), got "
                f"{callback!r}; for a plain function f write a class with one of them"
            )
        if check := getattr(callback, "on_add", None):
            check(self)
        self._callbacks.append(callback)
        return callback

    def follow(self, copy: nn.Module) -> None:
        """Move the blocks of a copy along from now on: averaged weights, a teacher of itself.

        In the copy survivors keep their values too, and new blocks begin at zero.

        Args:
            copy: A copy of the model with the same pattern, such as
                `torch.optim.swa_utils.AveragedModel(model)`.

        Raises:
            TypeError: If it is no module.
            ValueError: If a layer is missing, is the model's own, or has another pattern.
        """
        self._copies.append(same_layers(copy, self.layers))
        self._share_sets()

    def coverage(self) -> Coverage:
        """Measure how much of each layer has been tried.

        Returns:
            Share of the block positions that have been stored at any time.
        """
        self._mark()
        return Coverage(
            {
                name: count_bits(self._ever[name]) / size if size else 1.0
                for name, size in self._positions.items()
            }
        )

    def state_dict(self) -> dict[str, Any]:
        """Collect what a resumed run needs beside the model and the optimizer.

        The optimizer's own state holds it too, and restores it when it is loaded.

        Returns:
            Plain numbers and tensors, fit for `torch.save` and `torch.load(weights_only=True)`.
        """
        self._mark()
        return {
            "version": VERSION,
            "method": method_state(self.method),
            "step_count": self.step_count,
            "generator": self._generator.get_state(),
            "history": [
                {**vars(u), **{k: dict(v) for k, v in vars(u).items() if k != "step"}}
                for u in self.history
            ],
            "positions": dict(self._positions),
            "at_start": dict(self._at_start),
            "ever": {name: ever.clone() for name, ever in self._ever.items()},
            "born": {name: born.clone() for name, born in self._infancy.born.items()},
            "memory": {
                name: {key: value.clone() for key, value in notes.items()}
                for name, notes in self._memory.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another run stopped; the run then equals one that never stopped.

        Load the model's and the optimizer's state too, before or after. A state that is refused
        changes nothing.

        Args:
            state: What `state_dict` returned.

        Raises:
            TypeError: If it is no mapping, or an entry has the wrong type.
            ValueError: If entries are missing or out of range, or it comes from a model with
                other sparse layers or from another method or schedule.
        """
        check_state(state, self._positions, self._infancy.dtype)
        check_method(state, self.method)
        self.step_count = int(state["step_count"])
        self._generator.set_state(state["generator"].cpu())
        self.history = [update_of(entry) for entry in state["history"]]
        self._at_start = dict(state["at_start"])
        for name, ever in self._ever.items():
            device = self.layers[name].values.device
            ever.copy_(state["ever"][name])
            self._infancy.born[name] = state["born"][name].to(device, copy=True)
            self._memory[name] = {
                key: value.to(device, copy=True) for key, value in state["memory"][name].items()
            }
            self._room[name] = len(state["born"][name])
        self._listening.end()
        self._listen()

    @property
    def _moves(self) -> bool:
        return not isinstance(self.method.clock, Never)

    @property
    def _live(self) -> bool:
        return self._attached and self._optimizer() is not None

    def _trained(self) -> dict[str, BlockSparse]:
        """The layers that are not frozen now."""
        return {name: layer for name, layer in self.layers.items() if layer.values.requires_grad}

    def _mark(self) -> None:
        """Note the positions that are stored now, however they came to be."""
        for name, layer in self.layers.items():
            set_bits_(self._ever[name], positions(layer).cpu())

    def _listen(self) -> None:
        """Collect gradients during the next step, if the growth score will ask for them."""
        due = self.method.clock.due(self.step_count + 1)
        self._listening.begin(self._trained(), self.step_count, due)

    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        # Torch's own kernels would meet state of the old size, some of them unchecked.
        for name, layer in self.layers.items():
            if layer.nnzb != self._room[name] and layer.values.requires_grad:
                check_room(optimizer, layer.values, name)
                self._room[name] = layer.nnzb
                self._infancy.forget(name, layer)
        self._infancy.before_step(self.step_count + 1)

        def change_gradients() -> None:
            self.method.before_step(self._trained(), optimizer)

        return after_closure(change_gradients, args, kwargs)

    def _after_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.step_count += 1
        self._infancy.after_step(self.step_count, optimizer)
        self._listening.observe()
        self._call("on_step")
        due = self.method.clock.due(self.step_count)
        # Also after the first step, so that an unfit optimizer is found before the run is long.
        if due or (self._moves and self.step_count == 1):
            layers = self._trained()
            for name, layer in layers.items():
                list(per_block_state(optimizer, layer.values, name))
            if due:
                self._update(optimizer, layers)
        self._listen()

    @torch.no_grad()
    def _update(self, optimizer: torch.optim.Optimizer, layers: Mapping[str, BlockSparse]) -> None:
        self._mark()
        method, step = self.method, self.step_count
        stocks = {
            name: Stock(
                layer,
                method.drop(layer),
                self._at_start[name],
                method.amount.count(step, layer.nnzb),
                momentum_of(optimizer, layer.values),
            )
            for name, layer in layers.items()
        }
        changes = method.budget.changes(step, stocks)
        warn_of_averages(layers, self._copies)
        before = self.history[-1].step if self.history else -1
        moved, dropped, wasted, blocks, new = {}, {}, {}, {}, {}
        for name, layer in layers.items():
            move = self._choose(name, layer, stocks[name].scores, changes[name])
            wasted[name] = int((self._infancy.newest(name, before) & move.leaves).sum())
            self._apply(name, layer, move, optimizer)
            moved[name], dropped[name] = len(move.grown), int(move.leaves.sum())
            blocks[name], new[name] = layer.nnzb, move.new
        self._listening.end()
        method.after_update(layers, new, self._generator)
        self._share_sets()
        self.history.append(Update(step, moved, dropped, wasted, blocks))
        self._call("on_update", self.history[-1])

    def _choose(self, name: str, layer: BlockSparse, scores: Tensor, change: Change) -> Move:
        heard, memory = self._listening.heard(name), self._memory[name]
        room = Room(layer, positions(layer), self._generator, heard, memory)
        self._listening.release(name)
        return choose(room, scores, change, self.method.grow, self.method.constraint)

    def _apply(
        self, name: str, layer: BlockSparse, move: Move, optimizer: torch.optim.Optimizer
    ) -> None:
        twins = [copy[name] for copy in self._copies]
        for twin in twins:
            check_same_pattern(name, twin, layer)
        others = [
            (tensor, replace_state(optimizer, layer.values, key))
            for key, tensor in per_block_state(optimizer, layer.values, name)
        ]
        apply_(move, layer, others)
        for twin in twins:
            apply_(move, twin, [])
        self._infancy.move(name, move, self.step_count)
        self._room[name] = layer.nnzb

    def _share_sets(self) -> None:
        """Let copies compute with the blocks that the model computes with."""
        for copy in self._copies:
            for name, layer in self.layers.items():
                twin = copy[name]
                if isinstance(layer, Linear) and isinstance(twin, Linear):
                    twin.set_forward_(layer.used)

    def _call(self, event: str, *args: Any) -> None:
        for callback in self._callbacks:
            if function := getattr(callback, event, None):
                function(self, *args)


def _unwrapped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer inside the wrappers of accelerate and Lightning, which have no hooks."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = inner
    return optimizer


def _refuse_second(layers: dict[str, BlockSparse]) -> None:
    if any(map(_follower, layers.values())):
        gc.collect()  # an optimizer that a scheduler has wrapped outlives its last name
    for name, layer in layers.items():
        if trainer := _follower(layer):
            raise ValueError(
                f"layer {name!r} is attached to an optimizer already, by "
                f"{type(trainer.method).__name__}; detach() that trainer first"
            )


def _follower(layer: BlockSparse) -> Trainer | None:
    """The trainer that moves a layer's blocks now."""
    entry = _TRAINERS.get(layer)
    trainer = entry() if entry else None
    return trainer if trainer and trainer._live else None


def _size(layer: BlockSparse) -> int:
    """Number of block positions of a layer."""
    rows, columns = layer.pattern.grid
    return rows * columns
