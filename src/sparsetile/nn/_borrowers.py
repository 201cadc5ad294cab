"""Modules that use the table of an embedding elsewhere: a tied head, a second embedding."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from sparsetile import ops
from sparsetile.nn._embedding import Embedding, checked_padding
from sparsetile.nn._weight import Weight


class Borrower(nn.Module):
    """A module that reads values and indices where an `Embedding` keeps them.

    So there is one parameter, which gets the sum of all gradients, one entry in a checkpoint, and
    one pattern: an update of it is seen everywhere. Moving, casting and copying the model they are
    in keeps them tied. The embedding is no submodule here, so that it has one place only.
    """

    def __init__(self, embedding: Embedding) -> None:
        super().__init__()
        if not isinstance(embedding, Embedding):
            raise TypeError(
                f"embedding must be a sparsetile.nn.Embedding, got {type(embedding).__name__}; "
                "Embedding.from_embedding makes one of a torch.nn.Embedding"
            )
        # In a tuple, where torch does not find modules.
        self._owner = (embedding,)

    @property
    def embedding(self) -> Embedding:
        """The embedding whose table this is."""
        return self._owner[0]

    @property
    def weight(self) -> Weight:
        """The embedding's table as one matrix."""
        return self.embedding.weight


class TiedHead(Borrower):
    """Applies `y = x Eᵀ + b` with the block-sparse table `E` of an `Embedding`.

    The embedding owns the table: one parameter, which gets the sum of both gradients, one entry in
    a checkpoint, and one pattern. Moving, casting and copying the model they are in keeps them
    tied.

    Args:
        embedding: The table.
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
        super().__init__(embedding)
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
    def in_features(self) -> int:
        """Size of each input."""
        return self.embedding.embedding_dim

    @property
    def out_features(self) -> int:
        """Size of each output: the number of rows of the table."""
        return self.embedding.num_embeddings

    def extra_repr(self) -> str:
        """Describe the head for its one-line repr."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class TiedEmbedding(Borrower):
    """Looks rows up in the table of another `Embedding`, as an encoder and a decoder may share one.

    The other embedding owns the table, as for `TiedHead`.

    Args:
        embedding: The table.
        padding_idx: A row that gets no gradient from here; may count from the end.

    Raises:
        TypeError: If `embedding` is no sparsetile Embedding.
        ValueError: If there is no such row.

    Examples:
        >>> import torch
        >>> table = Embedding(1000, 64, density=0.1)
        >>> rows = torch.tensor([1, 2, 3])
        >>> torch.equal(TiedEmbedding(table)(rows), table(rows))
        True
    """

    def __init__(self, embedding: Embedding, padding_idx: int | None = None) -> None:
        super().__init__(embedding)
        self.padding_idx = checked_padding(padding_idx, embedding.num_embeddings)

    def forward(self, indices: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch k"]:
        """Look up: numbers of rows to the rows, `[...]` to `[..., embedding_dim]`."""
        table = self.embedding
        return ops.embedding_from_indices(
            indices,
            table.values,
            table.crow_indices,
            table.col_indices,
            table.shape,
            padding_idx=self.padding_idx,
        )

    def extra_repr(self) -> str:
        """Describe the embedding for its one-line repr."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.embedding.num_embeddings}, {self.embedding.embedding_dim}{padding}"
