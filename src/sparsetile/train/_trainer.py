"""Follows an optimizer and updates the patterns of a model's sparse layers when it is time."""

import gc
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from sparsetile.nn import Linear
from sparsetile.train._bits import count_bits, no_bits, set_bits_
from sparsetile.train._moments import check_optimizer, check_room, per_block_state
from sparsetile.train._schedule import Never
from sparsetile.train._state import VERSION, check_state
from sparsetile.train._update import move_blocks_, positions

if TYPE_CHECKING:
    from sparsetile.train._method import Method

# The trainer that was attached last to each layer; two would move blocks behind each other's back.
_TRAINERS: "weakref.WeakKeyDictionary[Linear, weakref.ref[Trainer]]" = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Update:
    """What one update did: after which step, and how many blocks moved in each layer.

    Examples:
        >>> Update(step=100, moved={"up": 30, "down": 20}).total
        50
    """

    step: int
    moved: Mapping[str, int]

    @property
    def total(self) -> int:
        """Blocks moved in all layers."""
        return sum(self.moved.values())


@dataclass(frozen=True)
class Coverage:
    """Share of the block positions that have been stored at any time, by layer and on average.

    Examples:
        >>> Coverage({"up": 0.5, "down": 0.25}).mean
        0.375
    """

    layers: Mapping[str, float]

    @property
    def mean(self) -> float:
        """Average over the layers."""
        return sum(self.layers.values()) / max(len(self.layers), 1)


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
        self.layers = _layers(model, optimizer)
        if self._moves:
            check_optimizer(optimizer)
        self.step_count = 0
        self.history: list[Update] = []
        self._generator = torch.Generator().manual_seed(method.seed)
        # Which positions were stored at any time, one bit each.
        self._positions = {name: _size(layer) for name, layer in self.layers.items()}
        self._ever = {name: no_bits(size) for name, size in self._positions.items()}
        self._mark()
        self._room = {name: layer.nnzb for name, layer in self.layers.items()}
        self._optimizer = weakref.ref(optimizer)
        self._hooks = (
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        )
        self._attached = True
        for layer in self.layers.values():
            _TRAINERS[layer] = weakref.ref(self)

    def detach(self) -> None:
        """Stop following the optimizer; the patterns stay as they are."""
        self._attached = False
        for hook in self._hooks:
            hook.remove()

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

        Returns:
            Plain numbers and tensors, fit for `torch.save` and `torch.load(weights_only=True)`.
        """
        self._mark()
        return {
            "version": VERSION,
            "step_count": self.step_count,
            "generator": self._generator.get_state(),
            "history": [{"step": u.step, "moved": dict(u.moved)} for u in self.history],
            "positions": dict(self._positions),
            "ever": {name: ever.clone() for name, ever in self._ever.items()},
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
                other sparse layers.
        """
        check_state(state, self._positions)
        self.step_count = int(state["step_count"])
        self._generator.set_state(state["generator"].cpu())
        self.history = [Update(entry["step"], dict(entry["moved"])) for entry in state["history"]]
        for name, ever in self._ever.items():
            ever.copy_(state["ever"][name])

    @property
    def _moves(self) -> bool:
        return not isinstance(self.method.clock, Never)

    @property
    def _live(self) -> bool:
        return self._attached and self._optimizer() is not None

    def _mark(self) -> None:
        """Note the positions that are stored now, however they came to be."""
        for name, layer in self.layers.items():
            set_bits_(self._ever[name], positions(layer).cpu())

    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        # Torch's own kernels would meet state of the old size, some of them unchecked.
        for name, layer in self.layers.items():
            if layer.nnzb != self._room[name] and layer.values.requires_grad:
                check_room(optimizer, layer.values, name)
                self._room[name] = layer.nnzb

    def _after_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.step_count += 1
        due = self.method.clock.due(self.step_count)
        # Also after the first step, so that an unfit optimizer is found before the run is long.
        if not due and not (self._moves and self.step_count == 1):
            return
        layers = {name: layer for name, layer in self.layers.items() if layer.values.requires_grad}
        states = {
            name: list(per_block_state(optimizer, layer.values, name))
            for name, layer in layers.items()
        }
        if not due:
            return
        self._mark()
        moved = {}
        for name, layer in layers.items():
            move = move_blocks_(
                layer,
                self.method.amount.count(self.step_count, layer.nnzb),
                drop=self.method.drop,
                grow=self.method.grow,
                generator=self._generator,
                state=states[name],
            )
            moved[name] = len(move.grown)
        self.history.append(Update(self.step_count, moved))


def _layers(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Linear]:
    """The trained sparse layers of a model, by the names they have without wrappers."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer must be a torch optimizer, got {type(optimizer).__name__}")
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    layers: dict[str, Linear] = {}
    owner: dict[int, str] = {}
    for long_name, layer in model.named_modules():
        if not isinstance(layer, Linear) or not layer.values.requires_grad:
            continue
        name = _bare(long_name)
        if layer.values.is_meta:
            raise ValueError(f"layer {name!r} is on the meta device; load its values first")
        if id(layer.values) in owner:
            raise ValueError(
                f"layers {owner[id(layer.values)]!r} and {name!r} share their values but not their "
                "indices, so blocks cannot move; use one module in both places"
            )
        if id(layer.values) not in held:
            raise ValueError(
                f"optimizer does not hold the values of layer {name!r}; build the optimizer after "
                "sparsify_, freeze the layer, or attach to the part of the model it trains"
            )
        if name in layers:  # only where a model has both `x` and `module.x`
            name = long_name
        owner[id(layer.values)] = name
        layers[name] = layer
    if not layers:
        raise ValueError(
            "model has no trained sparse layer; call sparsify_(model, density=…, blocksize=…) first"
        )
    _refuse_second(layers)
    return layers


def _refuse_second(layers: dict[str, Linear]) -> None:
    if any(map(_follower, layers.values())):
        gc.collect()  # an optimizer that a scheduler has wrapped outlives its last name
    for name, layer in layers.items():
        if trainer := _follower(layer):
            raise ValueError(
                f"layer {name!r} is attached to an optimizer already, by "
                f"{type(trainer.method).__name__}; detach() that trainer first"
            )


def _follower(layer: Linear) -> Trainer | None:
    """The trainer that moves a layer's blocks now."""
    entry = _TRAINERS.get(layer)
    trainer = entry() if entry else None
    return trainer if trainer and trainer._live else None


def _bare(name: str) -> str:
    """A module's name without what torch.compile and DistributedDataParallel put before it."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod").removeprefix("module.")


def _size(layer: Linear) -> int:
    """Number of block positions of a layer."""
    rows, columns = layer.pattern.grid
    return rows * columns
