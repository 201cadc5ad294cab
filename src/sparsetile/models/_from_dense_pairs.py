"""Which hidden features of a model may change their order without changing its function."""

import operator
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from sparsetile.models._from_dense_layers import is_linear

# Modules and functions that treat each feature alike and by itself.
ELEMENTWISE = (
    *(nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.Mish, nn.ELU, nn.SELU, nn.CELU, nn.LeakyReLU),
    *(nn.Sigmoid, nn.LogSigmoid, nn.Tanh, nn.Softplus, nn.Softsign, nn.Hardswish, nn.Hardtanh),
    *(nn.Hardsigmoid, nn.Dropout, nn.Identity),
)
_FUNCTIONS = {
    *(F.relu, F.gelu, F.silu, F.mish, F.elu, F.selu, F.leaky_relu, F.dropout, F.softplus),
    *(F.hardswish, F.hardtanh, F.sigmoid, F.tanh, F.relu6, torch.relu, torch.tanh, torch.sigmoid),
}
# Blocks of known models by the end of the class's name: rows of the first, columns of the last.
_KNOWN: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("MLP", ("gate_proj", "up_proj"), "down_proj"),
    ("MLP", ("c_fc",), "c_proj"),
    ("MLP", ("fc1",), "fc2"),
    ("DecoderLayer", ("fc1",), "fc2"),
    ("EncoderLayer", ("fc1",), "fc2"),
    ("FFN", ("lin1",), "lin2"),
    ("DenseActDense", ("wi",), "wo"),
    ("GatedActDense", ("wi_0", "wi_1"), "wo"),
    ("Layer", ("intermediate.dense",), "output.dense"),
    ("MLP", ("dense_h_to_4h",), "dense_4h_to_h"),
)


@dataclass(frozen=True)
class Pair:
    """Linear layers between which only elementwise steps lie.

    The order of the producers' rows is the order of the consumer's columns.

    Attributes:
        producers: Names of the layers before; several where their outputs are multiplied.
        consumer: Name of the layer after.
    """

    producers: tuple[str, ...]
    consumer: str


def found_pairs(model: nn.Module) -> list[Pair]:
    """Find what may be reordered: chains in `nn.Sequential`, known blocks, and traced graphs.

    Args:
        model: Any module.

    Returns:
        The pairs; each layer is at most once a producer and at most once a consumer.

    Examples:
        >>> found_pairs(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
        [Pair(producers=('0',), consumer='2')]
    """
    once = _used_once(model)
    pairs: list[Pair] = []
    seen: set[str] = set()
    ways = (_sequential(model), _blocks(model), _traced(model))
    for way in ways:
        for pair in way:
            names = {f"{name} rows" for name in pair.producers} | {f"{pair.consumer} columns"}
            if not names & seen and once.issuperset((*pair.producers, pair.consumer)):
                seen |= names
                pairs.append(pair)
    return pairs


def _used_once(model: nn.Module) -> set[str]:
    """Linear layers whose weight, module and outputs nobody else sees."""
    weights = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    places = Counter(id(m) for _, m in model.named_modules(remove_duplicate=False))
    return {
        name
        for name, module in model.named_modules()
        if is_linear(module)
        and places[id(module)] == 1
        and all(weights[id(p)] == 1 for p in module.parameters())
        and not _watched(module)
    }


def _watched(module: nn.Module) -> bool:
    """Whether a hook sees what goes in or out."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def _sequential(model: nn.Module) -> Iterator[Pair]:
    for name, module in model.named_modules():
        if type(module) is not nn.Sequential:
            continue
        before: str | None = None
        for child_name, child in module.named_children():
            full = f"{name}.{child_name}" if name else child_name
            if is_linear(child):
                if before is not None:
                    yield Pair((before,), full)
                before = full
            elif not isinstance(child, ELEMENTWISE) or _watched(child):
                before = None


def _blocks(model: nn.Module) -> Iterator[Pair]:
    """Known blocks, only of the libraries that they are known in."""
    for name, module in model.named_modules():
        kind = type(module)
        before = f"{name}." if name else ""
        if kind is nn.TransformerEncoderLayer or kind is nn.TransformerDecoderLayer:
            yield Pair((f"{before}linear1",), f"{before}linear2")
        if not kind.__module__.startswith("transformers.models."):
            continue
        for end, producers, consumer in _KNOWN:
            parts = [_inner(module, path) for path in (*producers, consumer)]
            if kind.__name__.endswith(end) and all(part and is_linear(part) for part in parts):
                yield Pair(tuple(before + path for path in producers), before + consumer)
                break


def _inner(module: nn.Module, path: str) -> nn.Module | None:
    try:
        return module.get_submodule(path)
    except AttributeError:
        return None


def _traced(model: nn.Module) -> Iterator[Pair]:
    """Pairs in the graph of a model that torch.fx can follow; none of others."""
    if type(model).__module__.startswith("transformers.") or isinstance(model, nn.Sequential):
        return
    try:
        graph = torch.fx.Tracer().trace(model)
    except Exception:  # of the model's own code, which was not written for proxies
        return
    modules = dict(model.named_modules())
    for node in graph.nodes:
        if node.op != "call_module" or not is_linear(modules[str(node.target)]):
            continue
        at = node
        while len(at.users) == 1:
            after = next(iter(at.users))
            target = after.target
            if after.op == "call_module" and is_linear(modules[str(target)]):
                if len(after.args) == 1 and after.args[0] is at:
                    yield Pair((str(node.target),), str(target))
                break
            if not _elementwise(after, modules):
                break
            at = after


def _elementwise(node: torch.fx.Node, modules: dict[str, nn.Module]) -> bool:
    """Whether a step of a graph treats each feature alike, with nothing but numbers beside it."""
    if node.op == "call_module":
        module = modules[str(node.target)]
        return isinstance(module, ELEMENTWISE) and not _watched(module)
    if node.op == "call_method":
        return node.target in ("relu", "tanh", "sigmoid", "contiguous", "detach")
    plain = all(not isinstance(arg, torch.fx.Node) for arg in node.args[1:])
    simple = {operator.mul, operator.add, operator.truediv, torch.mul, torch.add}
    if node.op == "call_function" and node.target in simple:
        others = [arg for arg in node.args if not isinstance(arg, torch.fx.Node)]
        return len(others) == 1 and isinstance(others[0], int | float)
    return node.op == "call_function" and node.target in _FUNCTIONS and plain
