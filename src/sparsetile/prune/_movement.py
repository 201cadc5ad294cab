"""Movement pruning: during fine-tuning, blocks that move towards zero go."""

import weakref
from collections.abc import Mapping
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from sparsetile.nn import BlockSparse
from sparsetile.train import GMP, Constant, Cubic, Method, Within, block_l1, uniform

# Name of the scores in the optimizer's state, where they move with the blocks and are saved.
KEY = "movement_score"

# Which optimizer holds a layer's scores.
_OPTIMIZERS: "weakref.WeakKeyDictionary[BlockSparse, weakref.ref[torch.optim.Optimizer]]" = (
    weakref.WeakKeyDictionary()
)
# Scores of the first step, which must not be in the state before the optimizer's own.
_FIRST: "weakref.WeakKeyDictionary[BlockSparse, Tensor]" = weakref.WeakKeyDictionary()


class Movement(Method):
    """Drops the blocks that fine-tuning has moved towards zero, until a density is reached.

    The score of a block is the sum of `-w · dL/dw` over its values and over all steps so far: it
    falls where gradient descent shrinks the weight, whatever its size. At blocksize 1 this is
    movement pruning (Sanh et al., "Movement Pruning: Adaptive Sparsity by Fine-Tuning", 2020,
    section 4, with their cubic schedule), for blocks block movement pruning (Lagunas et al.,
    "Block Pruning For Faster Transformers", 2021). Unlike theirs, whose weights are masked, blocks
    that left do not come back: memory and time fall as they leave.

    Start it from `sparsify_(model, density=1.0, …)`, fine-tune with a small learning rate, and
    help it with `distillation_loss`. Scores live in the optimizer's state under `movement_score`,
    and are saved with it. Until a layer has scores, magnitudes take their place.

    Args:
        density: Density to end with, in (0, 1].
        total_steps: Optimizer steps of the whole run.
        every: Steps between updates.
        start: Share of the run before the first block leaves.
        stop: Share of the run after which the density is reached.
        scope: "layer": every layer goes to this density; "global": the layers together do.
        seed: Not used; all trainers take one.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Examples:
        >>> from torch import nn
        >>> from sparsetile.nn import sparsify_
        >>> model = sparsify_(nn.Sequential(nn.Linear(64, 64)), density=1.0, blocksize=16)
        >>> optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        >>> trainer = Movement(density=0.25, total_steps=20, every=5).attach(model, optimizer)
        >>> for _ in range(20):
        ...     optimizer.zero_grad()
        ...     model(torch.randn(8, 64)).square().mean().backward()
        ...     optimizer.step()
        >>> model[0].nnzb, optimizer.state[model[0].values]["movement_score"].shape
        (4, torch.Size([4]))
    """

    def __init__(
        self,
        *,
        density: float,
        total_steps: int,
        every: int = 100,
        start: float = 0.1,
        stop: float = 0.7,
        scope: Literal["layer", "global"] = "layer",
        seed: int = 0,
    ) -> None:
        # GMP checks and rounds these; what differs is the score.
        schedule = GMP(
            density=density,
            total_steps=total_steps,
            every=every,
            start=start,
            stop=stop,
            scope=scope,
            seed=seed,
        )
        assert isinstance(schedule.clock, Within) and isinstance(schedule.budget, Cubic)
        super().__init__(
            drop=movement,
            grow=uniform,
            clock=schedule.clock,
            amount=Constant(0.0),
            budget=schedule.budget,
            seed=seed,
        )

    @torch.no_grad()
    def before_step(
        self, layers: Mapping[str, BlockSparse], optimizer: torch.optim.Optimizer
    ) -> None:
        """Add this step's movement to the scores, before the optimizer changes the weights.

        Args:
            layers: The layers that are trained now.
            optimizer: The optimizer, about to step.
        """
        for layer in layers.values():
            gradient = layer.values.grad
            if gradient is None:
                continue
            dtype = torch.promote_types(layer.values.dtype, torch.float32)
            moved = -(layer.values.to(dtype) * gradient.to(dtype)).sum(dim=(1, 2))
            if not bool(moved.isfinite().all()):  # of a step that overflowed
                continue
            _OPTIMIZERS[layer] = weakref.ref(optimizer)
            first = _FIRST.pop(layer, None)
            before = optimizer.state.get(layer.values, {}).get(KEY, first)
            if before is not None and len(before) == len(moved):
                optimizer.state[layer.values][KEY] = before.to(dtype) + moved
            elif optimizer.state.get(layer.values):
                optimizer.state[layer.values][KEY] = moved
            else:
                # An optimizer takes state that is not empty for its own, and would not make its.
                _FIRST[layer] = moved


@torch.no_grad()
def movement(layer: BlockSparse) -> Float[Tensor, " nnzb"]:
    """Score blocks by their movement away from zero, as `Movement` has summed it up.

    Args:
        layer: A sparse layer.

    Returns:
        One score for each stored block; magnitudes where there are no scores yet.

    Raises:
        TypeError: If it is no sparse layer.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> layer = Linear(2, 2, blocksize=2, density=1.0)
        >>> movement(layer).equal(block_l1(layer))
        True
    """
    magnitudes = block_l1(layer)
    holder = _OPTIMIZERS.get(layer)
    optimizer = holder() if holder else None
    state = {} if optimizer is None else optimizer.state.get(layer.values, {})
    scores = state.get(KEY, _FIRST.get(layer))
    if not isinstance(scores, Tensor) or scores.shape != magnitudes.shape:
        return magnitudes
    return scores
