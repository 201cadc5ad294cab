"""A long short-term memory whose input and hidden weights are block-sparse."""

from typing import Literal, cast

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from sparsetile.nn._recurrent import Recurrent, State


class LSTM(Recurrent):
    """A long short-term memory, called as `torch.nn.LSTM` is, with block-sparse weights.

    Each weight is a `Linear` layer: `ih_l0` for the input and `hh_l0` for the hidden state of the
    first layer, `ih_l0_reverse` for the other direction, `hr_l0` for a projection. The input's
    product is one for all time steps. Checkpoints of `torch.nn.LSTM` load at the present pattern.

    Args:
        input_size: Size of each input.
        hidden_size: Size of the cell.
        num_layers: Layers, one run over the outputs of the other.
        bias: Whether to add learned biases.
        batch_first: Whether sequences are `[batch, time, size]`, not `[time, batch, size]`.
        dropout: Share of outputs set to zero between layers in training.
        bidirectional: Whether to run backwards too.
        proj_size: Size that the output is projected to; 0 for no projection.
        device: Where the layer lives.
        dtype: Floating type of its values.
        blocksize: Shape of the blocks, an int or `(r, c)`.
        density: Share of each weight's blocks to store, in (0, 1].

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Examples:
        >>> import torch
        >>> lstm = LSTM(32, 64, density=0.25)
        >>> y, (h, c) = lstm(torch.randn(10, 4, 32))
        >>> y.shape, h.shape, lstm.hh_l0.nnzb
        (torch.Size([10, 4, 64]), torch.Size([1, 4, 64]), 16)
    """

    gates = 4
    dense_type = nn.LSTM

    def forward(
        self, input: Float[Tensor, "..."] | PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, Tensor]]:
        """Run over sequences.

        Args:
            input: `[time, batch, input_size]`, `[batch, time, input_size]` with `batch_first`,
                `[time, input_size]`, or a `PackedSequence`.
            hx: Output and cell before the first step, `[layers * directions, batch, size]` each;
                zero if left out.

        Returns:
            All outputs, and the last `(h, c)`.
        """
        y, (h, c) = self._run(input, hx)
        return y, (h, c)

    def _state_sizes(self) -> tuple[int, ...]:
        return self._output_size, self.hidden_size

    def _step(self, name: str, gates: Tensor, state: State) -> State:
        h, c = state
        i, f, g, o = (gates + self._layer(f"hh_{name}")(h)).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return (self._layer(f"hr_{name}")(h) if self.proj_size else h), c

    @classmethod
    def from_lstm(
        cls,
        lstm: nn.LSTM,
        *,
        blocksize: int | tuple[int, int] = 16,
        density: float,
        method: Literal["magnitude", "random"] = "magnitude",
        score: Literal["l1", "l2", "max"] = "l1",
    ) -> "LSTM":
        """Keep some blocks of each weight of a dense layer.

        Args:
            lstm: The dense layer.
            blocksize: Shape of the blocks, an int or `(r, c)`.
            density: Share of each weight's blocks to keep.
            method: Keep the strongest blocks, or random ones.
            score: Strength of a block for `method="magnitude"`.

        Returns:
            A layer with copies of the kept values and of the biases.

        Raises:
            TypeError: If `lstm` is of another kind.
            ValueError: If the other arguments are out of range, or a weight is computed.

        Examples:
            >>> LSTM.from_lstm(nn.LSTM(32, 64), density=0.5).ih_l0.density
            0.5
        """
        return cast(LSTM, cls._from(lstm, blocksize, density, method, score))

    def to_lstm(self) -> nn.LSTM:
        """Make the dense layer of the same function.

        Returns:
            A `torch.nn.LSTM` with copies of all weights, zero where nothing is stored.

        Examples:
            >>> LSTM(32, 64, density=0.5).to_lstm()
            LSTM(32, 64)
        """
        return cast(nn.LSTM, self.to_dense())
