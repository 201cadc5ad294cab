"""Which weights of a model are not a linear layer's own."""

from torch import nn


def tied_weights(model: nn.Module) -> dict[str, str]:
    """Find weights that several modules share.

    Args:
        model: Any module.

    Returns:
        For the name of each module whose weight is shared, the name of another that has it.

    Examples:
        >>> model = nn.ModuleDict({"embed": nn.Embedding(8, 4), "head": nn.Linear(4, 8)})
        >>> model["head"].weight = model["embed"].weight
        >>> tied_weights(model)
        {'embed': 'head', 'head': 'embed'}
    """
    holders: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for weight in module._parameters.values():
            if weight is not None and weight.ndim > 1:
                holders.setdefault(id(weight), []).append(name)
    tied: dict[str, str] = {}
    for names in holders.values():
        for name in names:
            others = [other for other in names if other != name]
            if others:
                tied[name] = others[0]
    return tied


def sharers(model: nn.Module, owner: nn.Module) -> dict[str, nn.Module]:
    """Find the other modules that have a module's weight.

    Args:
        model: Any module.
        owner: The module in it whose `weight` is meant.

    Returns:
        The modules by name.

    Examples:
        >>> model = nn.ModuleDict({"embed": nn.Embedding(8, 4), "head": nn.Linear(4, 8)})
        >>> model["head"].weight = model["embed"].weight
        >>> list(sharers(model, model["embed"]))
        ['head']
    """
    weight = owner._parameters.get("weight")
    return {
        name: module
        for name, module in model.named_modules()
        if module is not owner and any(p is weight for p in module._parameters.values())
    }


def output_head(model: nn.Module) -> nn.Module | None:
    """The module that a Hugging Face model names as its output head; None for other models."""
    named = getattr(model, "get_output_embeddings", None)
    head = named() if callable(named) else None
    return head if isinstance(head, nn.Module) else None


def input_table(model: nn.Module) -> nn.Module | None:
    """The embedding that a Hugging Face model names for its input; None for other models."""
    named = getattr(model, "get_input_embeddings", None)
    table = named() if callable(named) else None
    return table if isinstance(table, nn.Module) else None
