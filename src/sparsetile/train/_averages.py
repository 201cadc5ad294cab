"""Notices averages of a model that nobody told the trainer of."""

import warnings
from collections.abc import Iterable, Mapping

from sparsetile.nn import BlockSparse
from sparsetile.nn._copies import averages_of


def warn_of_averages(
    layers: Mapping[str, BlockSparse], followers: Iterable[Mapping[str, BlockSparse]]
) -> None:
    """Warn of a copy that is averaged with layers whose blocks are about to move.

    Args:
        layers: The layers, by name.
        followers: The copies whose blocks will move too.
    """
    known = {id(twin) for copy in followers for twin in copy.values()}
    strange = [
        name
        for name, layer in layers.items()
        if any(id(twin) not in known for twin in averages_of(layer))
    ]
    if strange:
        warnings.warn(
            f"a copy of layer {strange[0]!r} is averaged with it but does not follow its trainer: "
            "blocks move now, so from here on values of one block are averaged with those of "
            "another; call trainer.follow(copy) once, before training",
            stacklevel=2,
        )
