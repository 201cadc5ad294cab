"""Models made ready to be used and no longer trained."""

import torch
from torch import nn

from sparsetile.nn._block_sparse import BlockSparse
from sparsetile.nn._fuse import fuse_
from sparsetile.nn._linear import Linear

_NARROW = (torch.bfloat16, torch.float16)


def freeze_(model: nn.Module, *, dtype: torch.dtype | None = None) -> nn.Module:
    """Make the sparse layers of a model ready for inference, in place.

    - No parameter wants a gradient, and the model is in evaluation mode. Products keep the stored
      blocks of frozen layers in the order that their kernels read, from the second call on, and
      make that copy anew when the values are changed in place.
    - Activations that follow a sparse layer become part of its product: in `torch.nn.Sequential`
      (ReLU, GELU, SiLU), and in the feed-forward parts of BERT, RoBERTa, DistilBERT, GPT-2, T5,
      Llama, Mistral and Qwen2 of transformers. `densify_` puts them back; files do not know of it.
    - With `dtype`, float32 values of linear layers are stored in half as many bytes. Biases,
      inputs and outputs stay float32, and so do sums: the product is that of the rounded values.
      Embeddings, and heads tied to them, stay as they are, for their rows are the model's input.

    Args:
        model: Any module.
        dtype: torch.bfloat16 or torch.float16 to store values so; None to leave them.

    Returns:
        The model.

    Raises:
        TypeError: If the model is no module, or values are not stored in such a type.

    Examples:
        >>> model = nn.Sequential(Linear(64, 64, density=0.25), nn.GELU())
        >>> freeze_(model, dtype=torch.bfloat16)[0].values.dtype
        torch.bfloat16
        >>> model(torch.randn(3, 64)).dtype
        torch.float32
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if dtype is not None and dtype not in _NARROW:
        raise TypeError(
            f"dtype must be torch.bfloat16, torch.float16 or None, got {dtype!r}; for another, "
            "convert the whole model with model.to(dtype)"
        )
    for layer in model.modules():
        if dtype is not None and isinstance(layer, Linear):
            _store_(layer, dtype)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return fuse_(model.eval())


def _store_(layer: BlockSparse, dtype: torch.dtype) -> None:
    if layer.values.dtype is torch.float32:
        layer.values.data = layer.values.data.to(dtype)
        layer.values.grad = None
