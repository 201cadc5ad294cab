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
