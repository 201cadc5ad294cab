"""What a sparse layer answers when somebody asks for its weight."""

from collections.abc import Callable
from typing import Any

from sparsetile.matrix import BSR


class Weight(BSR):
    """A layer's values and pattern, as one matrix.

    Modules of torch that hand their layers' weights to a fused dense kernel
    (`torch.nn.TransformerEncoderLayer` in evaluation) look for this method on each argument, and
    call the layers one by one when they find it.
    """

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return NotImplemented

    def __getattr__(self, name: str) -> Any:
        # Reached for what is not there: `hasattr` and torch's own look-ups go on as ever.
        raise AttributeError(
            f"layer.weight is a block-sparse matrix and has no attribute {name!r}; the parameter "
            "is layer.values, of shape [nnzb, r, c]; layer.weight.to_dense() is a copy as a tensor"
        )
