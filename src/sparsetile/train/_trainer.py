"""Follows an optimizer and updates the patterns of a model's sparse layers when it is time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sparsetile.nn import Linear
from sparsetile.train._moments import per_block_state
from sparsetile.train._schedule import Never
from sparsetile.train._update import move_blocks_, positions

if TYPE_CHECKING:
    from sparsetile.train._method import Method


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
        self.step_count = 0
        self.history: list[Update] = []
        self._generator = torch.Generator().manual_seed(method.seed)
        self._ever = {name: _stored(layer) for name, layer in self.layers.items()}
        self._hook = optimizer.register_step_post_hook(self._after_step)

    def detach(self) -> None:
        """Stop following the optimizer; the patterns stay as they are."""
        self._hook.remove()

    def coverage(self) -> Coverage:
        """Measure how much of each layer has been tried.

        Returns:
            Share of the block positions that have been stored at any time.
        """
        return Coverage(
            {
                name: int(ever.count_nonzero()) / len(ever) if len(ever) else 1.0
                for name, ever in self._ever.items()
            }
        )

    def state_dict(self) -> dict[str, Any]:
        """Collect what a resumed run needs beside the model and the optimizer.

        Returns:
            Plain numbers and tensors, fit for `torch.save` and `torch.load(weights_only=True)`.
        """
        return {
            "version": 1,
            "step_count": self.step_count,
            "generator": self._generator.get_state(),
            "history": [{"step": u.step, "moved": dict(u.moved)} for u in self.history],
            "ever": {name: ever.clone() for name, ever in self._ever.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another run stopped; the run then equals one that never stopped.

        Load the model's and the optimizer's state too, before or after.

        Args:
            state: What `state_dict` returned.

        Raises:
            TypeError: If it is no mapping.
            ValueError: If entries are missing, or it comes from a model with other sparse layers.
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"state must be what state_dict() returned, got {type(state).__name__}")
        missing = {"version", "step_count", "generator", "history", "ever"} - state.keys()
        if missing:
            raise ValueError(
                f"state lacks {', '.join(sorted(missing))}; give what Trainer.state_dict() returned"
            )
        if state["version"] != 1:
            raise ValueError(f"state must be of version 1, got {state['version']!r}")
        theirs = {name: len(ever) for name, ever in state["ever"].items()}
        ours = {name: len(ever) for name, ever in self._ever.items()}
        if theirs != ours:
            odd = sorted(name for name, _ in theirs.items() ^ ours.items())
            raise ValueError(
                f"state comes from a model with other sparse layers: {odd[0]!r} differs in name or "
                "number of block positions; build the same model and attach before loading"
            )
        self.step_count = int(state["step_count"])
        self._generator.set_state(state["generator"])
        self.history = [Update(entry["step"], dict(entry["moved"])) for entry in state["history"]]
        for name, ever in state["ever"].items():
            self._ever[name].copy_(ever)

    def _after_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.step_count += 1
        due = self.method.clock.due(self.step_count)
        moves = not isinstance(self.method.clock, Never)
        # Also after the first step, so that an unfit optimizer is found before the run is long.
        if not due and not (moves and self.step_count == 1):
            return
        states = {
            name: list(per_block_state(optimizer, layer.values, name))
            for name, layer in self.layers.items()
        }
        if not due:
            return
        moved = {}
        for name, layer in self.layers.items():
            move = move_blocks_(
                layer,
                self.method.amount.count(self.step_count, layer.nnzb),
                drop=self.method.drop,
                grow=self.method.grow,
                generator=self._generator,
                state=states[name],
            )
            self._ever[name][move.grown.cpu()] = True
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
    _refuse_second(layers, optimizer)
    return layers


def _refuse_second(layers: dict[str, Linear], optimizer: torch.optim.Optimizer) -> None:
    mine = {id(layer) for layer in layers.values()}
    for hook in optimizer._optimizer_step_post_hooks.values():
        other = getattr(hook, "__self__", None)
        if isinstance(other, Trainer) and mine & {id(layer) for layer in other.layers.values()}:
            raise ValueError(
                f"{type(other.method).__name__} is attached to this optimizer already; "
                "detach() it first"
            )


def _bare(name: str) -> str:
    """A module's name without what torch.compile and DistributedDataParallel put before it."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod").removeprefix("module.")


def _stored(layer: Linear) -> Tensor:
    """A grid of block positions, flat and on the CPU, true where a block is stored."""
    rows, columns = layer.pattern.grid
    ever = torch.zeros(rows * columns, dtype=torch.bool)
    ever[positions(layer).cpu()] = True
    return ever
