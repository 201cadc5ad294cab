"""Hooks that users put on a module stay when another takes its place."""

from torch import nn

# Handles of hooks find their hooks through these dictionaries, so the dictionaries move along.
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def share_hooks(old: nn.Module, new: nn.Module) -> None:
    """Let a module have another's hooks, and those to come.

    Args:
        old: The module that users put hooks on.
        new: The module that is to run them.

    Examples:
        >>> old, new = nn.ReLU(), nn.GELU()
        >>> handle = old.register_forward_hook(lambda *_: None)
        >>> share_hooks(old, new)
        >>> len(new._forward_hooks)
        1
    """
    for name in _HOOKS:
        setattr(new, name, getattr(old, name))
