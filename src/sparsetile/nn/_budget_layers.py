"""Densities and patterns layer by layer, by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from sparsetile.matrix import Pattern
from sparsetile.nn._budget import Budget, Candidate, Uniform, shares_of


@dataclass(frozen=True)
class PerLayer:
    """What each layer stores, by its name or by a glob over names.

    A layer takes the entry of its own name if there is one, and otherwise the first glob that
    matches (`*` matches dots too). Layers under one glob share its budget: `{"*.mlp.*": ER(0.1)}`
    stores a tenth of those layers together, `{"*.mlp.*": 0.1}` a tenth of each.

    Args:
        choices: For a name or a glob: a density, a budget, a `Pattern`, or None to leave what
            matches dense. A mapping given to `sparsify_` means the same.

    Raises:
        TypeError: If `choices` is no mapping, or an entry is none of these.
        ValueError: If it is empty, or a density is out of range.

    Examples:
        >>> from torch import nn
        >>> from sparsetile.nn import sparsify_, summary
        >>> model = nn.ModuleDict({name: nn.Linear(64, 64) for name in ("q", "k", "out")})
        >>> model = sparsify_(model, density=PerLayer({"q": 0.5, "*": 0.25}), blocksize=16)
        >>> {name: layer.nnzb for name, layer in model.items()}
        {'q': 8, 'k': 4, 'out': 4}
    """

    choices: Mapping[str, "float | Budget | Pattern | None"]

    def __post_init__(self) -> None:
        if not isinstance(self.choices, Mapping):
            raise TypeError(
                "choices must be a mapping from names or globs to densities, "
                f"got {type(self.choices).__name__}"
            )
        if not self.choices:
            raise ValueError('choices must name a layer, got none; {"*": 0.1} means all')
        for key, choice in self.choices.items():
            if not isinstance(key, str):
                raise TypeError(f"choices must be by layer name, got {key!r}; give str keys")
            if choice is not None and not isinstance(choice, Pattern):
                as_budget(f"choices[{key!r}]", choice)

    def share(self, layers: Sequence[Candidate]) -> list[int | Pattern | None]:
        """Collect what each layer stores.

        Args:
            layers: The weights to become sparse.

        Returns:
            A number of blocks, a pattern or None for each.

        Raises:
            ValueError: If a layer matches no entry, or an entry no layer.
        """
        members: dict[str, list[int]] = {key: [] for key in self.choices}
        for i, layer in enumerate(layers):
            members[self._key(layer.name)].append(i)
        names = ", ".join(repr(layer.name) for layer in layers[:8]) + ", …" * (len(layers) > 8)
        for key, found in members.items():
            if not found:
                raise ValueError(
                    f"{key!r} of the densities by layer decides for no layer; those to be made "
                    f"sparse are {names}: remove it, or put it before a glob that takes its layers"
                )
        shares: list[int | Pattern | None] = [None] * len(layers)
        for key, found in members.items():
            choice = self.choices[key]
            if isinstance(choice, Pattern):
                share: Sequence[int | Pattern | None] = [choice] * len(found)
            elif choice is None:
                continue
            else:
                share = shares_of(as_budget(key, choice), [layers[i] for i in found])
            for i, mine in zip(found, share, strict=True):
                shares[i] = mine
        return shares

    def _key(self, name: str) -> str:
        """The entry that decides for a layer."""
        if name in self.choices:
            return name
        for key in self.choices:
            if fnmatchcase(name, key):
                return key
        raise ValueError(
            f"layer {name!r} matches none of the densities by layer, "
            f'{", ".join(map(repr, self.choices))}; add it, or {{"*": None}} as the last to leave '
            "the rest dense"
        )


def as_budget(name: str, density: Any) -> Budget:
    """Take what a user gave as a density: a number, a budget, or a mapping by layer.

    Args:
        name: Argument name for the message.
        density: What the user gave.

    Returns:
        The budget it means.

    Raises:
        TypeError: If it is none of these.
        ValueError: If it is out of range.

    Examples:
        >>> as_budget("density", 0.1)
        Uniform(density=0.1)
    """
    if isinstance(density, Mapping):
        return PerLayer(density)
    if isinstance(density, Budget) and not isinstance(density, type):
        return density
    try:
        return Uniform(density)
    except TypeError:
        got = f"{density.__name__} itself" if isinstance(density, type) else repr(density)
        raise TypeError(
            f"{name} must be a number in (0, 1], a budget such as ER(0.1), or a mapping from layer "
            f"names to these, got {got}"
        ) from None
