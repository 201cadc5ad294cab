"""The model that `sparsetile advise` measures, and what it is run on."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from sparsetile.bench._errors import CommandError
from sparsetile.bench._model_files import build_model, load_model
from sparsetile.bench.pretrain._settings import PRESETS
from sparsetile.nn import densify_

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def question(
    preset: str, *, batch: int, sequence: int, dtype: str
) -> tuple[nn.Module, dict[str, Any]]:
    """Make a model and inputs of the sizes that were asked for.

    Args:
        preset: The name of a size of BERT's encoder, or the folder of a model.
        batch: Rows.
        sequence: Tokens of a row.
        dtype: Type of the weights and inputs.

    Returns:
        The model, dense, and keyword arguments for it.

    Raises:
        CommandError: If there is no such size or folder, or the model takes no such inputs.
    """
    kind = DTYPES[dtype]
    if preset in PRESETS:
        return _encoder(preset).to(kind).eval(), {
            "hidden_states": torch.randn(batch, sequence, PRESETS[preset][1]).to(kind)
        }
    folder = Path(preset)
    if not folder.exists():
        names = ", ".join(PRESETS)
        raise CommandError(f"--preset {preset}: must be one of {names}, or the folder of a model")
    # Only sizes matter: weights need not be read, but where the layers are sparse already.
    ours = (folder / "sparsetile.json").is_file()
    model = densify_(load_model(folder)) if ours else build_model(folder)
    config = getattr(model, "config", None)
    tokens = getattr(config, "vocab_size", None)
    if getattr(model, "main_input_name", "") != "input_ids" or not isinstance(tokens, int):
        raise CommandError(
            f"{folder}: is not a model of tokens; measure it in Python with sparsetile.nn.advise"
        )
    most = getattr(config, "max_position_embeddings", None)
    if isinstance(most, int) and sequence > most:
        raise CommandError(f"--sequence {sequence}: the model takes at most {most} tokens")
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(tokens, (batch, sequence), generator=generator)
    return model.to(kind), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _encoder(preset: str) -> nn.Module:
    from transformers import BertConfig, BertModel

    layers, width, heads = PRESETS[preset]
    config = BertConfig(
        vocab_size=8,  # the embedding is not measured
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        pad_token_id=None,
    )
    encoder: nn.Module = BertModel(config, add_pooling_layer=False).encoder
    return encoder
