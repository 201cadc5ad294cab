"""The optimizer's memory of each stored block."""

import numbers
from collections.abc import Callable, Iterator

import torch
from torch import Tensor


def check_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimizer whose state cannot be told apart by parameter.

    Args:
        optimizer: Any optimizer.

    Raises:
        ValueError: If it keeps state of several parameters in one place.
    """
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    # LBFGS puts the history of all parameters, flattened, under the first of them.
    if isinstance(optimizer, torch.optim.LBFGS) or any(id(p) not in held for p in optimizer.state):
        raise ValueError(
            f"optimizer must keep its state by parameter, got {type(optimizer).__name__}, which "
            "keeps one history of all parameters together, so its part of a block cannot move "
            "with the block; use SGD, Adam or AdamW, or Static()"
        )


def check_room(optimizer: torch.optim.Optimizer, values: Tensor, name: str) -> None:
    """Refuse state that was made for another number of blocks.

    Args:
        optimizer: The optimizer, about to take a step.
        values: The parameter of a sparse layer, of which the number of blocks has changed.
        name: What to call the layer in errors.

    Raises:
        ValueError: If there is such state.
    """
    for key, state in optimizer.state.get(values, {}).items():
        if not isinstance(state, Tensor) or state.ndim != values.ndim:
            continue
        if state.shape != values.shape and state.shape[1:] == values.shape[1:]:
            raise ValueError(
                f"layer {name!r} has {len(values)} blocks since set_pattern_ or load_state_dict, "
                f"but {type(optimizer).__name__} keeps state {key!r} for {len(state)}; after "
                "changing the number of blocks detach() the trainer, build the optimizer anew and "
                "attach again (or load the optimizer's state too)"
            )


def per_block_state(
    optimizer: torch.optim.Optimizer, values: Tensor, name: str
) -> Iterator[tuple[str, Tensor]]:
    """Find the state tensors that hold something for each stored block.

    Args:
        optimizer: Any optimizer.
        values: The parameter of a sparse layer, `[nnzb, r, c]`.
        name: What to call the parameter in errors.

    Yields:
        Name and tensor of each that has the parameter's shape (momentum, first and second moments
        and the like), or of that shape with rows or columns of blocks summed up (Adafactor).
        Numbers (such as a step counter) belong to the whole parameter and are left out.

    Raises:
        ValueError: If a tensor has another shape or an entry is no tensor, so that nobody can say
            what of it belongs to which block.
    """
    n, r, c = values.shape
    shapes = {(n, *rest) for rest in ((r, c), (r, 1), (1, c), (1, 1), (r,), (c,), (1,), ())}
    for key, state in optimizer.state.get(values, {}).items():
        if state is None or isinstance(state, numbers.Number | str):
            continue
        if not isinstance(state, Tensor):
            raise ValueError(
                f"{type(optimizer).__name__} keeps state {key!r} of type {type(state).__name__} "
                f"for layer {name!r}; moving blocks needs tensors of the values' shape or single "
                "numbers: use another optimizer or Static()"
            )
        if tuple(state.shape) in shapes and state.ndim:
            yield key, state
        elif state.numel() != 1:
            raise ValueError(
                f"{type(optimizer).__name__} keeps state {key!r} of shape {list(state.shape)} for "
                f"layer {name!r}, whose values have shape {list(values.shape)}; moving needs "
                "state of the values' shape, of sums over rows or columns of blocks, or single "
                "numbers: use another optimizer or Static()"
            )


def replace_state(
    optimizer: torch.optim.Optimizer, values: Tensor, key: str
) -> Callable[[Tensor], None]:
    """Make a function that puts another tensor in the place of one of the optimizer's."""

    def replace(tensor: Tensor) -> None:
        optimizer.state[values][key] = tensor

    return replace


def momentum_of(optimizer: torch.optim.Optimizer, values: Tensor) -> Tensor | None:
    """Find the smoothed gradient that an optimizer keeps of a parameter.

    Args:
        optimizer: Any optimizer.
        values: The parameter.

    Returns:
        Adam's first moment or SGD's momentum; None where there is neither.
    """
    state = optimizer.state.get(values, {})
    for key in ("exp_avg", "momentum_buffer"):
        if isinstance(found := state.get(key), Tensor) and found.shape == values.shape:
            return found
    return None
