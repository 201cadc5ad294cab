"""The sparse module for a dense one's place, before there is anything to fill it with."""

from collections.abc import Mapping

from torch import nn

from sparsetile.matrix import Pattern
from sparsetile.nn import _dense
from sparsetile.nn._block_sparse import BlockSparse
from sparsetile.nn._embedding import Embedding
from sparsetile.nn._linear import Linear
from sparsetile.nn._targets import RECURRENT


def empty_twin(module: nn.Module, patterns: Mapping[str, Pattern]) -> nn.Module:
    """Make a sparse module on the meta device, to be filled from a checkpoint by assignment.

    Nothing is read of the module but its sizes, so it may be on the meta device itself, and nothing
    of its size is allocated.

    Args:
        module: A `torch.nn.Linear`, transformers' `Conv1D`, a `torch.nn.Embedding`, LSTM or GRU; or
            a module of this library that stores other blocks.
        patterns: The blocks of its weight, under the empty name; those of a recurrent layer by the
            names of its linear layers (`ih_l0`, `hh_l0`, …).

    Returns:
        A module without data, in the module's training mode.

    Raises:
        TypeError: If there is no sparse module of that kind.
        ValueError: If names or shapes do not fit.

    Examples:
        >>> twin = empty_twin(nn.Linear(4, 8), {"": Pattern((8, 4), 4, [0, 1, 1], [0])})
        >>> twin.nnzb, twin.values.device.type
        (1, 'meta')
    """
    if isinstance(module, nn.RNNBase) and type(module) in RECURRENT:
        return _recurrent(module, patterns).train(module.training)
    if set(patterns) != {""}:
        raise ValueError(f"a {type(module).__name__} has one weight, named '', got {[*patterns]}")
    return _single(module, patterns[""]).train(module.training)


def _single(module: nn.Module, pattern: Pattern) -> BlockSparse:
    bias = module._parameters.get("bias") is not None
    if isinstance(module, Linear):
        _check(module.shape, pattern)
        layer = _linear(pattern, bias)
        layer._layout, layer.activation = module._layout, module.activation
        return layer
    if isinstance(module, Embedding | nn.Embedding):
        _check((module.num_embeddings, module.embedding_dim), pattern)
        return Embedding(
            *pattern.shape,
            module.padding_idx,
            blocksize=pattern.blocksize,
            pattern=pattern,
            device="meta",
        )
    layout = _dense.layout(module)
    if not isinstance(module, nn.Linear) and layout == "linear":
        raise TypeError(
            f"there is no sparse module for a {type(module).__name__}; there is one for Linear, "
            "Conv1D, Embedding, LSTM and GRU"
        )
    weight = module._parameters.get("weight")
    if weight is None:
        raise ValueError("its weight is computed by a parametrization or a pruning mask")
    _check(tuple(weight.shape) if layout == "linear" else tuple(weight.shape)[::-1], pattern)
    layer = _linear(pattern, bias)
    layer._layout = layout
    return layer


def _recurrent(dense: nn.RNNBase, patterns: Mapping[str, Pattern]) -> nn.Module:
    names = [full.removeprefix("weight_") for full in dense._flat_weights_names if "weight" in full]
    if set(patterns) != set(names):
        raise ValueError(f"its weights are {sorted(names)}, got {sorted(patterns)}")
    layers = {}
    for name in names:
        weight = dense._parameters.get(f"weight_{name}")
        if weight is None:
            raise ValueError(f"weight_{name} is computed by a parametrization or a pruning mask")
        _check(tuple(weight.shape), patterns[name])
        layers[name] = _linear(patterns[name], f"bias_{name}" in dense._parameters)
    return RECURRENT[type(dense)]._assembled(dense, layers)


def _linear(pattern: Pattern, bias: bool) -> Linear:
    m, k = pattern.shape
    return Linear(k, m, bias, blocksize=pattern.blocksize, pattern=pattern, device="meta")


def _check(shape: tuple[int, ...], pattern: Pattern) -> None:
    if shape != pattern.shape:
        raise ValueError(f"its weight is {shape[0]}×{shape[1]}, the pattern {pattern.summary()}")
