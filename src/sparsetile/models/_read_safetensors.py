"""Tensors of a `.safetensors` file."""

from pathlib import Path

import torch
from torch import Tensor

from sparsetile.models._read_stored import Stored, key_of
from sparsetile.models._say import refusal

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_AGAIN = "the file is damaged or cut off: get it again"


def stored_safetensors(path: Path) -> Stored:
    """Open a file and look at its header; tensors are read one by one when they are asked for.

    Args:
        path: The file.

    Returns:
        Its tensors.

    Raises:
        ValueError: If it is damaged, or holds numbers that torch does not know.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> from safetensors.torch import save_file
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.safetensors")
        ...     save_file({"w": torch.zeros(2, 3)}, path)
        ...     stored_safetensors(path).shapes
        {'w': (2, 3)}
    """
    from safetensors import SafetensorError, safe_open

    try:
        file = safe_open(path, framework="pt", device="cpu")
        names = list(file.keys())
        slices = {name: file.get_slice(name) for name in names}
        shapes = {name: tuple(slices[name].get_shape()) for name in names}
        kinds = {name: slices[name].get_dtype() for name in names}
        metadata = dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        allowed = "a whole safetensors file"
        raise refusal(path.name, got=f"{error}", allowed=allowed, fix=_AGAIN) from None
    for name, kind in kinds.items():
        if kind not in DTYPES:
            raise refusal(
                key_of(path, name),
                got=f"numbers of type {kind}",
                allowed=", ".join(DTYPES),
                fix="load it with the library that wrote it, and save it as a plain float type",
            )

    def read(name: str) -> Tensor:
        try:
            return file.get_tensor(name)
        except (SafetensorError, OSError, ValueError, RuntimeError) as error:
            allowed = "a whole tensor"
            raise refusal(key_of(path, name), got=f"{error}", allowed=allowed, fix=_AGAIN) from None

    dtypes = {name: DTYPES[kind] for name, kind in kinds.items()}
    return Stored(path, "safetensors", shapes, dtypes, read, metadata)
