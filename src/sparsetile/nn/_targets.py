"""The dense modules that `sparsify_` replaces, their weights, and what is made of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from sparsetile.matrix import Pattern
from sparsetile.nn import _dense
from sparsetile.nn._borrowers import Borrower, TiedEmbedding, TiedHead
from sparsetile.nn._embedding import Embedding
from sparsetile.nn._gru import GRU
from sparsetile.nn._hooks import share_hooks
from sparsetile.nn._linear import Linear
from sparsetile.nn._lstm import LSTM
from sparsetile.nn._recurrent import Recurrent, dense_layers

RECURRENT: dict[type[nn.Module], type[Recurrent]] = {nn.LSTM: LSTM, nn.GRU: GRU}

Made = dict[nn.Module, nn.Module]


@dataclass(frozen=True)
class LinearTarget:
    """A linear layer, or a `Conv1D` of transformers.

    Examples:
        >>> target = LinearTarget("up", nn.Linear(4, 8))
        >>> {name: weight.shape for name, weight in target.weights().items()}
        {'up': torch.Size([8, 4])}
    """

    name: str
    dense: nn.Module

    def weights(self) -> dict[str, Tensor]:
        """The weights `[m, k]` to store in part, by the names of the layers to come."""
        return {self.name: _dense.parts(self.dense)[0].detach()}

    def build(self, patterns: Sequence[Pattern]) -> Made:
        """Make what replaces the dense module."""
        return {self.dense: _linear(self.dense, patterns[0])}


@dataclass(frozen=True)
class RecurrentTarget:
    """A recurrent layer of torch, whose weights become linear layers.

    Examples:
        >>> list(RecurrentTarget("rnn", nn.GRU(4, 8)).weights())
        ['rnn.ih_l0', 'rnn.hh_l0']
    """

    name: str
    dense: nn.RNNBase

    def weights(self) -> dict[str, Tensor]:
        """The weights `[m, k]` to store in part, by the names of the layers to come."""
        before = f"{self.name}." if self.name else ""
        layers = dense_layers(self.dense)
        return {before + name: layer.weight.detach() for name, layer in layers.items()}

    def build(self, patterns: Sequence[Pattern]) -> Made:
        """Make what replaces the dense module."""
        pairs = zip(dense_layers(self.dense).items(), patterns, strict=True)
        layers = {name: _linear(layer, pattern) for (name, layer), pattern in pairs}
        made = RECURRENT[type(self.dense)]._assembled(self.dense, layers)
        share_hooks(self.dense, made)
        return {self.dense: made}


@dataclass(frozen=True)
class TableTarget:
    """An embedding, with the embeddings and heads that share its weight.

    Examples:
        >>> embed, head = nn.Embedding(8, 4), nn.Linear(4, 8, bias=False)
        >>> target = TableTarget("embed", embed, {"head": head})
        >>> made = target.build([Pattern((8, 4), 4, [0, 1, 1], [0])])
        >>> made[head].embedding is made[embed]
        True
    """

    name: str
    dense: nn.Embedding
    tied: Mapping[str, nn.Module] = field(default_factory=dict)

    def weights(self) -> dict[str, Tensor]:
        """The weights `[m, k]` to store in part, by the names of the layers to come."""
        return {self.name: self.dense.weight.detach()}

    def build(self, patterns: Sequence[Pattern]) -> Made:
        """Make what replaces the dense modules: one table, and modules that read it."""
        table = Embedding.from_embedding(self.dense, pattern=patterns[0])
        share_hooks(self.dense, table)
        made: Made = {self.dense: table}
        for module in self.tied.values():
            if isinstance(module, nn.Embedding):
                reader: Borrower = TiedEmbedding(table, module.padding_idx)
            else:
                reader = TiedHead(table)
                reader.register_parameter("bias", module._parameters.get("bias"))
            share_hooks(module, reader)
            made[module] = reader.train(module.training)
        return made


Target = LinearTarget | RecurrentTarget | TableTarget


def built(targets: Sequence[Target], patterns: Sequence[Pattern | None]) -> Made:
    """Make what replaces the dense modules; those without a pattern stay.

    Args:
        targets: What to replace.
        patterns: One for each weight of each target, in order.

    Returns:
        New modules by the old ones.

    Raises:
        ValueError: If some weights of one module are to be stored in part, and others whole.

    Examples:
        >>> built([LinearTarget("up", nn.Linear(4, 8))], [None])
        {}
    """
    made: Made = {}
    rest = list(patterns)
    for target in targets:
        names = list(target.weights())
        mine, rest = rest[: len(names)], rest[len(names) :]
        given = [pattern for pattern in mine if pattern is not None]
        if 0 < len(given) < len(mine):
            raise ValueError(
                f"the weights of {target.name!r} must all become sparse or all stay dense, got "
                "None for " + ", ".join(n for n, p in zip(names, mine, strict=True) if p is None)
            )
        if given:
            made |= target.build(given)
    return made


def dense_twins(sparse: nn.Module, made: Made) -> None:
    """Make the dense twin of a module if it is sparse, and of what it is tied to.

    Args:
        sparse: Any module.
        made: Dense modules by sparse ones; added to.

    Examples:
        >>> made = {}
        >>> dense_twins(Linear(64, 32, density=0.5), made)
        >>> list(made.values())
        [Linear(in_features=64, out_features=32, bias=True)]
    """
    if sparse in made:
        return
    if isinstance(sparse, Linear):
        dense: nn.Module = _conv1d(sparse) if sparse._layout == "conv1d" else sparse.to_linear()
        dense.register_parameter("bias", sparse.bias)
    elif isinstance(sparse, Recurrent):
        dense = sparse.to_dense()
        for name, layer in sparse.named_children():
            if (bias := layer._parameters.get("bias")) is not None:
                setattr(dense, f"bias_{name}", bias)
    elif isinstance(sparse, Embedding):
        dense = sparse.to_embedding()
    elif isinstance(sparse, Borrower):
        dense_twins(sparse.embedding, made)
        if isinstance(sparse, TiedEmbedding):
            dense = nn.Embedding(*sparse.embedding.shape, sparse.padding_idx, device="meta")
        else:
            assert isinstance(sparse, TiedHead)
            dense = nn.Linear(sparse.in_features, sparse.out_features, bias=False, device="meta")
            dense.register_parameter("bias", sparse.bias)
        weight = made[sparse.embedding]._parameters["weight"]
        dense.register_parameter("weight", weight)
        dense.train(sparse.training)
    else:
        return
    share_hooks(sparse, dense)
    made[sparse] = dense


def _linear(dense: nn.Module, pattern: Pattern) -> Linear:
    sparse = Linear.from_linear(dense, pattern=pattern)
    sparse.register_parameter("bias", dense._parameters.get("bias"))
    share_hooks(dense, sparse)
    return sparse


def _conv1d(sparse: Linear) -> nn.Module:
    """The transformers layer that a sparse one was made of."""
    from transformers.pytorch_utils import Conv1D

    dense = sparse.to_linear()
    conv = Conv1D(0, 0)
    conv.nf, conv.nx = sparse.out_features, sparse.in_features
    conv.weight = nn.Parameter(
        dense.weight.detach().t().contiguous(), requires_grad=dense.weight.requires_grad
    )
    return conv.train(sparse.training)
