"""A language model's head that multiplies by the table of its embedding."""

from jaxtyping import Float
from torch import Tensor, nn

from sparsetile import ops
from sparsetile.nn._embedding import Embedding
from sparsetile.nn._weight import Weight


class TiedHead(nn.Module):
    """Applies `y = x Eᵀ + b` with the block-sparse table `E` of an `Embedding`.

    The embedding owns values and indices, and the head reads them there. So there is one
    parameter, which gets the sum of both gradients, one entry in a checkpoint, and one pattern: an
    update of it is seen by both. Moving, casting and copying the model they are in keeps them tied.

    Args:
        embedding: The table; it is not registered as a submodule, so that it has one place only.
        bias: Whether to add a learned bias.

    Raises:
        TypeError: If `embedding` is no sparsetile Embedding.

    Examples:
        >>> import torch
        >>> table = Embedding(1000, 64, density=0.1)
        >>> head = TiedHead(table)
        >>> head(table(torch.tensor([1, 2, 3]))).shape
        torch.Size([3, 1000])
        >>> list(head.parameters())
        []
    """

    bias: nn.Parameter | None

    def __init__(self, embedding: Embedding, bias: bool = False) -> None:
        super().__init__()
        if not isinstance(embedding, Embedding):
            raise TypeError(
                f"embedding must be a sparsetile.nn.Embedding, got {type(embedding).__name__}; "
                "Embedding.from_embedding makes one of a torch.nn.Embedding"
            )
        # In a tuple, where torch does not find modules.
        self._owner = (embedding,)
        if bias:
            self.bias = nn.Parameter(embedding.values.new_zeros(embedding.num_embeddings))
        else:
            self.register_parameter("bias", None)

    def forward(self, x: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch m"]:
        """Multiply: `x[..., embedding_dim]` to `[..., num_embeddings]`."""
        table = self.embedding
        return ops.linear_from_indices(
            x, table.values, table.crow_indices, table.col_indices, table.shape, self.bias
        )

    @property
    def embedding(self) -> Embedding:
        """The embedding whose table this is."""
        return self._owner[0]

    @property
    def in_features(self) -> int:
        """Size of each input."""
        return self.embedding.embedding_dim

    @property
    def out_features(self) -> int:
        """Size of each output: the number of rows of the table."""
        return self.embedding.num_embeddings

    @property
    def weight(self) -> Weight:
        """The embedding's table as one matrix."""
        return self.embedding.weight

    def extra_repr(self) -> str:
        """Describe the head for its one-line repr."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
