"""The optimizer's memory of each stored block."""

from collections.abc import Iterator

import torch
from torch import Tensor


def per_block_state(
    optimizer: torch.optim.Optimizer, values: Tensor, name: str
) -> Iterator[Tensor]:
    """Find the state tensors that hold one entry for each stored value.

    Args:
        optimizer: Any optimizer.
        values: The parameter of a sparse layer.
        name: What to call the parameter in errors.

    Yields:
        Each tensor of the parameter's shape: momentum, first and second moments and the like.
        Numbers (such as a step counter) belong to the whole parameter and are left out.

    Raises:
        ValueError: If a tensor has another shape, so that nobody can say which of its entries
            belong to which block.
    """
    for key, state in optimizer.state.get(values, {}).items():
        if not isinstance(state, Tensor):
            continue
        if state.shape == values.shape:
            yield state
        elif state.numel() != 1:
            raise ValueError(
                f"{type(optimizer).__name__} keeps state {key!r} of shape {list(state.shape)} for "
                f"{name}, whose values have shape {list(values.shape)}; moving blocks needs state "
                "of the values' shape or single numbers: use another optimizer or Static()"
            )
