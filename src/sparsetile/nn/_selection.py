"""Which modules of a model `sparsify_` replaces, and why the others are left."""

from collections import Counter
from collections.abc import Callable, Mapping

from torch import nn

from sparsetile.nn import _dense, _embedding
from sparsetile.nn._block_sparse import BlockSparse
from sparsetile.nn._targets import RECURRENT, LinearTarget, RecurrentTarget, TableTarget, Target
from sparsetile.nn._tied import input_table, output_head, sharers, tied_weights

Filter = Callable[[nn.Module, str], bool]


def selected(model: nn.Module, filter: Filter | None, embeddings: bool) -> tuple[list[Target], str]:
    """Find what to replace, all fit for it.

    Args:
        model: Any module.
        filter: Says which modules to replace; None for the default.
        embeddings: Whether tables are offered too.

    Returns:
        The targets in the model's order, and in words why other modules are left.

    Raises:
        ValueError: If a selected weight is shared or computed.

    Examples:
        >>> targets, left = selected(nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 4)), None, False)
        >>> [target.name for target in targets], left
        (['0'], "the model's layers: 1 recurrent, for a filter to select")
    """
    tied, head = tied_weights(model), output_head(model)
    left: Counter[str] = Counter()
    tables = _tables(model, filter, left) if embeddings else {}
    with_tables = {module for table in tables.values() for module in table.tied.values()}
    targets: list[Target] = []
    for name, module in model.named_modules():
        if isinstance(module, BlockSparse):
            left["sparse already"] += 1
        elif name in tables:
            targets.append(tables[name])
        elif type(module) in RECURRENT:
            if filter is None or not filter(module, name):
                left["recurrent, for a filter to select"] += 1
                continue
            target = RecurrentTarget(name, module)
            _refuse_shared(name, tied)
            target.weights()  # which refuses what is computed
            targets.append(target)
        elif isinstance(module, nn.Linear) or _dense.is_conv1d(module):
            if module in with_tables:
                continue
            if why := _left_dense(module, name, filter, tied, head):
                left[why] += 1
                continue
            _refuse_shared(name, tied)
            if why := _dense.unfit(module):
                raise ValueError(f"layer {name!r} cannot be made sparse: {why}")
            targets.append(LinearTarget(name, module))
    reasons = ", ".join(f"{count} {why}" for why, count in left.items())
    return targets, f"the model's layers: {reasons}" if left else "the model has no linear layer"


def _tables(model: nn.Module, filter: Filter | None, left: Counter[str]) -> dict[str, TableTarget]:
    """The embeddings to replace by name, each with the modules that share its weight."""
    only = input_table(model) if filter is None else None
    tables: dict[str, TableTarget] = {}
    seen: set[nn.Module] = set()
    for name, module in model.named_modules():
        if not isinstance(module, nn.Embedding) or module in seen:
            continue
        if why := _left_table(module, name, filter, only):
            left[why] += 1
            continue
        if why := _embedding.unfit(module):
            raise ValueError(f"embedding {name!r} cannot be made sparse: {why}")
        tied = sharers(model, module)
        for other, sharer in tied.items():
            if not isinstance(sharer, nn.Embedding | nn.Linear):
                raise ValueError(
                    f"embedding {name!r} shares its weight with {other!r}, a "
                    f"{type(sharer).__name__}; only embeddings and linear heads can go with it: "
                    "leave it out in filter, or untie it first"
                )
        seen.update(tied.values())
        tables[name] = TableTarget(name, module, tied)
    return tables


def _left_table(
    module: nn.Embedding, name: str, filter: Filter | None, only: nn.Module | None
) -> str | None:
    """Why an embedding is passed over; None if it is selected."""
    if filter is not None:
        return None if filter(module, name) else "not selected by filter"
    if _dense.plain_type(module) is not nn.Embedding:
        return "of a subclass"
    return None if only in (None, module) else "an embedding of something else than the input"


def _left_dense(
    module: nn.Module, name: str, filter: Filter | None, tied: Mapping[str, str], head: object
) -> str | None:
    """Why a dense linear layer is passed over; None if it is selected."""
    if isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear):
        return "inside MultiheadAttention"
    if filter is not None:
        return None if filter(module, name) else "not selected by filter"
    if _dense.plain_type(module) is not nn.Linear and not _dense.is_conv1d(module):
        return "of a subclass"
    if module is head:
        return "the output head"
    return "with a shared weight" if name in tied else None


def _refuse_shared(name: str, tied: Mapping[str, str]) -> None:
    if name in tied:
        raise ValueError(
            f"filter selects {name!r}, whose weight is shared with {tied[name]!r}; a shared "
            "weight stays dense: leave it out in filter, untie it first, or choose the embedding "
            "it is shared with, with embeddings=True"
        )
