"""Checkpoints whose weights cannot be had from the file alone, each with the way out."""

from collections.abc import Iterable, Mapping
from typing import Any

from sparsetile.models._read_stored import Stored, key_of
from sparsetile.models._say import refusal

_PLAIN = "weights as they are multiplied with, or with their masks"
# By the end of a name: what it is a sign of, and what to do.
_SIGNS: tuple[tuple[str, str, str], ...] = (
    (
        ".mask_scores",
        "a checkpoint in the middle of movement pruning, whose threshold is not in the file",
        "finish it first: nn_pruning's ModelPatchingCoordinator.compile_model, or apply the final "
        "threshold and save the plain weights",
    ),
    (
        ".input_extract",
        "a layer that nn_pruning's optimize_model cut down",
        "take the model before optimize_model, whose name has no '-opt-', or load it with "
        "nn_pruning",
    ),
    (
        ".output_expand",
        "a layer that nn_pruning's optimize_model cut down",
        "take the model before optimize_model, whose name has no '-opt-', or load it with "
        "nn_pruning",
    ),
    (
        ".parametrizations.weight.original",
        "a weight under a parametrization whose mask is not in the file",
        "call sparsifier.squash_mask() (torch.ao.pruning) or remove_parametrizations before "
        "saving, or save the sparsifier's state_dict() beside the model",
    ),
    (
        ".parametrizations.weight.original0",
        "a weight that a parametrization computes",
        "call torch.nn.utils.parametrize.remove_parametrizations before saving",
    ),
    *(
        (
            end,
            "a quantised weight",
            "decompress it with the library that wrote it, and save plain floating weights",
        )
        for end in (
            *(".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_global_scale"),
            *(".qweight", ".qzeros", ".scales_and_zeros"),
        )
    ),
)
_DENSE_FORMATS = ("dense", "sparse-bitmask", "sparse-24-bitmask", "")


def refuse_unfinished(stored: Stored, left: Iterable[str]) -> None:
    """Refuse names that tell of more work to do.

    Args:
        stored: The file.
        left: Names that no layout has taken.

    Raises:
        ValueError: If a weight is hidden, cut down or quantised.
    """
    for name in left:
        for end, got, fix in _SIGNS:
            if name.endswith(end):
                raise refusal(key_of(stored.path, name), got=got, allowed=_PLAIN, fix=fix)


def refuse_incomplete(stored: Stored, left: Iterable[str]) -> None:
    """Refuse parts without the others that they need.

    Args:
        stored: The file.
        left: Names that no layout has taken.

    Raises:
        ValueError: If a part is missing.
    """
    needs = {
        "_orig": ("_mask",),
        ".bsr_values": (".bsr_crow_indices", ".bsr_col_indices"),
        ".compressed": (".bitmask", ".shape"),
        ".block_mask": (".data", ".cols_a"),
        ".crow_indices": (".values", ".col_indices"),
    }
    for name in left:
        for end, others in needs.items():
            if name.endswith(end):
                base = name[: -len(end)]
                missing = [base + other for other in others if base + other not in stored.shapes]
                if missing:
                    raise refusal(
                        key_of(stored.path, name),
                        got=f"no {' and no '.join(map(repr, missing))}",
                        allowed="all parts of a weight",
                        fix="the file is cut off or was filtered: get it again",
                    )


def refuse_config(name: str, config: Mapping[str, Any]) -> None:
    """Refuse models that a `config.json` says are quantised.

    Args:
        name: The file's name, for messages.
        config: Its content.

    Raises:
        ValueError: If weights are quantised, or sparse in a way that is not known.
    """
    for key in ("quantization_config", "compression_config"):
        found = config.get(key)
        if not isinstance(found, Mapping):
            continue
        method = found.get("quant_method", "compressed-tensors")
        format = str(found.get("format", "") or "")
        sparse = found.get("sparsity_config")
        inner = str(sparse.get("format", "") or "") if isinstance(sparse, Mapping) else ""
        quantised = bool(found.get("config_groups")) or method != "compressed-tensors"
        if quantised or format not in _DENSE_FORMATS or inner not in _DENSE_FORMATS:
            raise refusal(
                f"{name}, {key}",
                got=f"{method} weights of format {format or inner or 'unknown'!r}",
                allowed="plain floating weights, sparse-bitmask or sparse-24-bitmask",
                fix="decompress the model with the library that wrote it, and save it again",
            )
