"""What the recurrent layers have in common: their weights, and running over time both ways."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from sparsetile.nn import _check, _dense
from sparsetile.nn._linear import Linear

# The tensors that go from step to step, each [batch, size]: the output first.
State = tuple[Tensor, ...]


class Weight(NamedTuple):
    """One weight of a recurrent layer: its layer's name, outputs, inputs, whether with a bias."""

    name: str
    m: int
    k: int
    bias: bool


class Recurrent(nn.Module):
    """Layers run over time, whose input and hidden weights are block-sparse `Linear` layers.

    A subclass says how many gates there are and what a step does.
    """

    gates: int
    dense_type: type[nn.RNNBase]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        blocksize: int | tuple[int, int] = 16,
        density: float,
    ) -> None:
        super().__init__()
        self._configure(
            _check.checked_size("input_size", input_size),
            _check.checked_size("hidden_size", hidden_size),
            _check.checked_size("num_layers", num_layers),
            bias,
            batch_first,
            dropout,
            bidirectional,
            _check.checked_size("proj_size", proj_size),
        )
        for name, m, k, with_bias in self._weights():
            layer = Linear(
                k, m, with_bias, blocksize=blocksize, density=density, device=device, dtype=dtype
            )
            self.add_module(name, layer)
        if not self._layer("hh_l0").values.is_meta:
            self.reset_parameters()

    def _configure(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        proj_size: int,
    ) -> None:
        """Note the sizes, checked as torch checks them."""
        if hidden_size < 1 or num_layers < 1:
            raise ValueError(
                f"hidden_size and num_layers must be 1 or more, got {hidden_size} and {num_layers}"
            )
        if proj_size >= hidden_size:
            raise ValueError(
                f"proj_size must be smaller than hidden_size={hidden_size}, or 0 for no "
                f"projection, got {proj_size}"
            )
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(f"dropout must be a share in [0, 1], got {dropout!r}")
        if dropout and num_layers == 1:
            warnings.warn(
                f"dropout={dropout} has no effect with num_layers=1: it comes between layers; "
                "leave it out, or add layers",
                UserWarning,
                stacklevel=4,
            )
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw all weights anew: within ±1/√hidden_size, as torch does, if all inputs are stored.

        A row that stores a part of its inputs is drawn as much wider as `Linear` draws it.
        """
        for name, _, k, _ in self._weights():
            layer = self._layer(name)
            layer.reset_parameters()
            layer.values.mul_((k / self.hidden_size) ** 0.5)
            if layer.bias is not None:
                layer.bias.uniform_(-1, 1).mul_(self.hidden_size**-0.5)

    def flatten_parameters(self) -> None:
        """Do nothing; torch's layers have this method, and programs call it."""

    def extra_repr(self) -> str:
        """Describe the sizes for the repr."""
        parts = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0}
        defaults |= {"bidirectional": False, "proj_size": 0}
        for name, default in defaults.items():
            if getattr(self, name) != default:
                parts.append(f"{name}={getattr(self, name)}")
        return ", ".join(parts)

    def _step(self, name: str, gates: Tensor, state: State) -> State:
        """Go one step: from the input's share of the gates `[batch, gates * hidden_size]`."""
        raise NotImplementedError

    def _state_sizes(self) -> tuple[int, ...]:
        """Sizes of the state's tensors."""
        return (self._output_size,)

    @property
    def _output_size(self) -> int:
        return self.proj_size or self.hidden_size

    def _layer(self, name: str) -> Linear:
        layer = self._modules[name]
        assert isinstance(layer, Linear)
        return layer

    def _names(self) -> Iterator[tuple[int, str]]:
        """Depth and name of each layer and direction, in the order of torch's states."""
        for depth in range(self.num_layers):
            yield depth, f"l{depth}"
            if self.bidirectional:
                yield depth, f"l{depth}_reverse"

    def _weights(self) -> Iterator[Weight]:
        rows, out = self.gates * self.hidden_size, self._output_size
        for depth, name in self._names():
            inputs = out * (1 + self.bidirectional) if depth else self.input_size
            yield Weight(f"ih_{name}", rows, inputs, self.bias)
            yield Weight(f"hh_{name}", rows, out, self.bias)
            if self.proj_size:
                yield Weight(f"hr_{name}", out, self.hidden_size, False)

    def _run(
        self, x: Tensor | PackedSequence, hx: State | None
    ) -> tuple[Tensor | PackedSequence, State]:
        """Run all layers over a sequence, given as torch's layers take it."""
        if isinstance(x, PackedSequence):
            sizes, order = x.batch_sizes.tolist(), x.sorted_indices
            start = self._start(x.data, sizes[0], hx)
            if order is not None:
                start = tuple(tensor.index_select(1, order) for tensor in start)
            data, end = self._layers(x.data, sizes, start)
            if x.unsorted_indices is not None:
                end = tuple(tensor.index_select(1, x.unsorted_indices) for tensor in end)
            return PackedSequence(data, x.batch_sizes, order, x.unsorted_indices), end
        if not isinstance(x, Tensor) or x.dim() not in (2, 3):
            got = f"shape {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(
                "input must be a sequence [time, batch, input_size], [batch, time, input_size] "
                f"with batch_first, [time, input_size] or a PackedSequence, got {got}"
            )
        batched = x.dim() == 3
        if not batched:
            x = x[:, None]
            hx = None if hx is None else tuple(tensor.unsqueeze(1) for tensor in hx)
        elif self.batch_first:
            x = x.transpose(0, 1)
        time, batch, _ = x.shape
        if not time:
            raise ValueError("input must have at least one time step, got 0")
        data, end = self._layers(x.flatten(0, 1), [batch] * time, self._start(x, batch, hx))
        y = data.unflatten(0, (time, batch))
        if not batched:
            return y[:, 0], tuple(tensor[:, 0] for tensor in end)
        return (y.transpose(0, 1) if self.batch_first else y), end

    def _start(self, x: Tensor, batch: int, hx: State | None) -> State:
        """The states before the first step, `[layers * directions, batch, size]` each."""
        count = self.num_layers * (1 + self.bidirectional)
        wanted = [(count, batch, size) for size in self._state_sizes()]
        if hx is None:
            return tuple(x.new_zeros(shape) for shape in wanted)
        if [tuple(tensor.shape) for tensor in hx] != wanted:
            raise ValueError(
                f"hx must have shape {' and '.join(str(list(shape)) for shape in wanted)}, one "
                "state for each layer and direction, got "
                + " and ".join(str(list(tensor.shape)) for tensor in hx)
            )
        return hx

    def _layers(self, data: Tensor, sizes: list[int], start: State) -> tuple[Tensor, State]:
        """Run layer after layer over packed rows `[sum(sizes), ...]`."""
        ends: list[State] = []
        outputs: list[Tensor] = []
        for i, (depth, name) in enumerate(self._names()):
            if depth and len(outputs) == 1 + self.bidirectional:  # the layer before is complete
                data = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)
                data = nn.functional.dropout(data, self.dropout, self.training)
                outputs = []
            gates = self._layer(f"ih_{name}")(data).split(sizes)
            first = tuple(tensor[i] for tensor in start)
            run = self._backwards if name.endswith("_reverse") else self._forwards
            output, end = run(name, gates, first)
            outputs.append(output)
            ends.append(end)
        data = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)
        return data, tuple(torch.stack(tensors) for tensors in zip(*ends, strict=True))

    def _forwards(self, name: str, gates: Sequence[Tensor], state: State) -> tuple[Tensor, State]:
        """Step from the first time on; sequences that end keep their last state."""
        outputs, ended = [], []
        for step in gates:
            alive = len(step)
            if alive < len(state[0]):
                ended.append(tuple(tensor[alive:] for tensor in state))
                state = tuple(tensor[:alive] for tensor in state)
            state = self._step(name, step, state)
            outputs.append(state[0])
        parts = zip(state, *reversed(ended), strict=True)
        return torch.cat(outputs), tuple(torch.cat(part) if ended else part[0] for part in parts)

    def _backwards(self, name: str, gates: Sequence[Tensor], state: State) -> tuple[Tensor, State]:
        """Step from the last time back; sequences that end earlier begin later."""
        outputs, first = [], state
        state = tuple(tensor[:0] for tensor in first)
        for step in reversed(gates):
            begun, alive = len(state[0]), len(step)
            if begun < alive:
                new = [tensor[begun:alive] for tensor in first]
                state = tuple(map(torch.cat, zip(state, new, strict=True))) if begun else tuple(new)
            state = self._step(name, step, state)
            outputs.append(state[0])
        return torch.cat(outputs[::-1]), state

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        # Torch's layers keep `weight_ih_l0` where ours have a layer `ih_l0` with a `weight`.
        for name, *_ in self._weights():
            for kind in ("weight", "bias"):
                theirs = f"{prefix}{kind}_{name}"
                if theirs in state_dict:
                    state_dict[f"{prefix}{name}.{kind}"] = state_dict.pop(theirs)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    @classmethod
    def _assembled(cls, dense: nn.RNNBase, layers: Mapping[str, Linear]) -> "Recurrent":
        """Make a layer of the sizes of a dense one, with given layers for its weights."""
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the dense layer has warned already
            made._configure(
                dense.input_size,
                dense.hidden_size,
                dense.num_layers,
                dense.bias,
                dense.batch_first,
                dense.dropout,
                dense.bidirectional,
                dense.proj_size,
            )
        for name, *_ in made._weights():
            made.add_module(name, layers[name])
        return made.train(dense.training)

    @classmethod
    def _from(
        cls,
        dense: nn.RNNBase,
        blocksize: int | tuple[int, int],
        density: float,
        method: Literal["magnitude", "random"],
        score: Literal["l1", "l2", "max"],
    ) -> "Recurrent":
        wanted = cls.dense_type.__name__
        if not isinstance(dense, cls.dense_type):
            raise TypeError(f"expected a torch.nn.{wanted}, got {type(dense).__name__}")
        kept = {
            name: Linear.from_linear(
                layer, blocksize=blocksize, density=density, method=method, score=score
            )
            for name, layer in dense_layers(dense).items()
        }
        return cls._assembled(dense, kept)

    def to_dense(self) -> nn.RNNBase:
        """Make the dense layer of torch with the same function; copies of all weights."""
        extra = {"proj_size": self.proj_size} if self.proj_size else {}
        make = cast(Callable[..., nn.RNNBase], self.dense_type)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about dropout, as this layer has
            dense = make(
                self.input_size,
                self.hidden_size,
                self.num_layers,
                self.bias,
                self.batch_first,
                self.dropout,
                self.bidirectional,
                device="meta",
                **extra,
            )
        for name, *_ in self._weights():
            linear = self._layer(name).to_linear()
            setattr(dense, f"weight_{name}", linear.weight)
            if self.bias:
                setattr(dense, f"bias_{name}", linear.bias)
        return dense.train(self.training)


def dense_layers(dense: nn.RNNBase) -> dict[str, nn.Linear]:
    """The weights of a dense recurrent layer as linear layers that share its parameters.

    Args:
        dense: A `torch.nn.LSTM` or `torch.nn.GRU`.

    Returns:
        Linear layers by the names that a sparse layer has for them.

    Raises:
        ValueError: If a weight is computed.

    Examples:
        >>> list(dense_layers(nn.GRU(4, 8)))
        ['ih_l0', 'hh_l0']
    """
    layers = {}
    for full in dense._flat_weights_names:
        kind, _, name = full.partition("_")
        if kind != "weight":
            continue
        weight, bias = dense._parameters.get(full), dense._parameters.get(f"bias_{name}")
        if weight is None:
            raise ValueError(
                f"{full} is computed by a parametrization or a pruning mask; make it plain first"
            )
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
        layer.weight = weight
        layer.register_parameter("bias", bias)
        if why := _dense.unfit(layer):
            raise ValueError(f"{full} cannot be made sparse: {why}")
        layers[name] = layer
    return layers
