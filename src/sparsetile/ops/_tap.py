"""Lets a caller watch the gradient of a layer's weight being computed."""

from collections.abc import Callable

from jaxtyping import Int
from torch import Tensor

See = Callable[[Tensor, Tensor], None]

#: What watches, by the address of the row starts; every sampled product looks here.
WATCHED: dict[int, See] = {}


def watch(crow_indices: Int[Tensor, " mb1"], see: See) -> Callable[[], None]:
    """Call a function with the factors of every sampled product at one pattern.

    The gradient of a layer's values is such a product, `dYᵀ · X` at the stored blocks, in compiled
    graphs too. So its factors tell the gradient at any other block.

    Args:
        crow_indices: The row starts that the product is called with; the tensor, not a copy.
        see: Called with the left factor `[..., m, t]` and the right one `[..., t, k]`. It may keep
            them and must not change them. For a table that rows are looked up in (`embedding`),
            with the numbers of the rows `[...]`, integers, and the gradient of each `[..., k]`.

    Returns:
        A function that ends the watch; calling it again does nothing.

    Examples:
        >>> import torch
        >>> from sparsetile.ops import linear_from_indices, watch
        >>> crow, col = torch.tensor([0, 1, 2]).int(), torch.tensor([0, 0]).int()
        >>> values = torch.ones(2, 1, 2, requires_grad=True)
        >>> seen = []
        >>> end = watch(crow, lambda a, b: seen.append((a @ b).tolist()))
        >>> linear_from_indices(torch.ones(1, 4), values, crow, col, (2, 4)).sum().backward()
        >>> end()
        >>> seen
        [[[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]]
    """
    address = crow_indices.data_ptr()
    WATCHED[address] = see

    def end() -> None:
        if WATCHED.get(address) is see:
            del WATCHED[address]

    return end
