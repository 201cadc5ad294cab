"""A trained sparse model as a folder of plain files, and back."""

import json
from pathlib import Path
from typing import Any

from torch import nn

from sparsetile._whole import write_whole
from sparsetile.bench._errors import CommandError
from sparsetile.bench._files import write_text
from sparsetile.bench._model import build, make_sparse

_MODEL, _CONFIG, _SPARSE, _TOKENIZER = (
    "model.safetensors",
    "config.json",
    "sparse.json",
    "tokenizer.json",
)


def save(
    folder: Path, model: nn.Module, config: Any, tokenizer: Any, *, density: float, blocksize: int
) -> list[Path]:
    """Write weights, configs and tokenizer.

    Args:
        folder: An existing folder.
        model: A model whose block layers are sparse.
        config: Its Hugging Face config.
        tokenizer: A `tokenizers.Tokenizer`.
        density: Density of the sparse layers.
        blocksize: Their block size.

    Returns:
        The files written.
    """
    save_weights(folder / _MODEL, model)
    write_text(folder / _CONFIG, json.dumps(config.to_dict(), indent=2, default=str) + "\n")
    sparse = {"density": density, "blocksize": blocksize}
    write_text(folder / _SPARSE, json.dumps(sparse, indent=2) + "\n")
    write_text(folder / _TOKENIZER, tokenizer.to_str(pretty=False) + "\n")
    return [folder / name for name in (_MODEL, _CONFIG, _SPARSE, _TOKENIZER)]


def load(folder: Path) -> tuple[nn.Module, Any]:
    """Build a saved model anew from its files.

    Args:
        folder: What `save` wrote to.

    Returns:
        The model in evaluation mode, and its tokenizer.

    Raises:
        CommandError: If a file is missing or does not fit the others.
    """
    from tokenizers import Tokenizer
    from transformers import AutoConfig

    lacking = [n for n in (_MODEL, _CONFIG, _SPARSE, _TOKENIZER) if not (folder / n).is_file()]
    if lacking:
        raise CommandError(
            f"{folder} lacks {', '.join(lacking)}; give a folder that `sparsetile demo` wrote"
        )
    config = AutoConfig.from_pretrained(folder)
    sparse = json.loads((folder / _SPARSE).read_text(encoding="utf-8"))
    model = make_sparse(build(config, seed=0), **sparse, seed=0)
    load_weights(folder / _MODEL, model)
    return model.eval(), Tokenizer.from_file(str(folder / _TOKENIZER))


def save_weights(path: Path, model: nn.Module) -> None:
    """Write a model's tensors as one safetensors file."""
    from safetensors.torch import save as to_bytes

    # A tied head is the embedding under a second name: safetensors wants every tensor once.
    seen: set[int] = set()
    tensors = {}
    for name, tensor in model.state_dict().items():
        if tensor.numel() and tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        tensors[name] = tensor.detach().contiguous()
    write_whole(path, to_bytes(tensors, metadata={"format": "pt"}))


def load_weights(path: Path, model: nn.Module) -> None:
    """Read what `save_weights` wrote into a model of the same kind, of any pattern.

    Raises:
        CommandError: If tensors are missing or unknown.
    """
    from safetensors.torch import load_file

    answer = model.load_state_dict(load_file(path), strict=False)
    tied = set(getattr(model, "all_tied_weights_keys", {}))
    wrong = answer.unexpected_keys + [k for k in answer.missing_keys if k not in tied]
    if wrong:
        raise CommandError(f"{path} does not fit its config: {', '.join(wrong[:5])}")
