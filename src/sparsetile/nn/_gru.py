"""A gated recurrent unit whose input and hidden weights are block-sparse."""

from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from sparsetile.nn._recurrent import Recurrent, State


class GRU(Recurrent):
    """A gated recurrent unit, called as `torch.nn.GRU` is, with block-sparse weights.

    Each weight is a `Linear` layer: `ih_l0` for the input and `hh_l0` for the hidden state of the
    first layer, `ih_l0_reverse` for the other direction. The input's product is one for all time
    steps. Checkpoints of `torch.nn.GRU` load at the present pattern.

    Args:
        input_size: Size of each input.
        hidden_size: Size of the state.
        num_layers: Layers, one run over the outputs of the other.
        bias: Whether to add learned biases.
        batch_first: Whether sequences are `[batch, time, size]`, not `[time, batch, size]`.
        dropout: Share of outputs set to zero between layers in training.
        bidirectional: Whether to run backwards too.
        device: Where the layer lives.
        dtype: Floating type of its values.
        blocksize: Shape of the blocks, an int or `(r, c)`.
        density: Share of each weight's blocks to store, in (0, 1].

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Examples:
        >>> gru = GRU(32, 64, density=0.25)
        >>> y, h = gru(torch.randn(10, 4, 32))
        >>> y.shape, h.shape, gru.hh_l0.nnzb
        (torch.Size([10, 4, 64]), torch.Size([1, 4, 64]), 12)
    """

    gates = 3
    dense_type = nn.GRU

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        blocksize: int | tuple[int, int] = 16,
        density: float,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
            blocksize=blocksize,
            density=density,
        )

    def forward(
        self, input: Float[Tensor, "..."] | PackedSequence, hx: Tensor | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Run over sequences.

        Args:
            input: `[time, batch, input_size]`, `[batch, time, input_size]` with `batch_first`,
                `[time, input_size]`, or a `PackedSequence`.
            hx: State before the first step, `[layers * directions, batch, hidden_size]`; zero if
                left out.

        Returns:
            All outputs, and the last state.
        """
        y, (h,) = self._run(input, None if hx is None else (hx,))
        return y, h

    def _step(self, name: str, gates: Tensor, state: State) -> State:
        (h,) = state
        of_input, of_state = gates.chunk(3, 1), self._layer(f"hh_{name}")(h).chunk(3, 1)
        reset = (of_input[0] + of_state[0]).sigmoid()
        keep = (of_input[1] + of_state[1]).sigmoid()
        new = (of_input[2] + reset * of_state[2]).tanh()
        return (new + keep * (h - new),)

    @classmethod
    def from_gru(
        cls,
        gru: nn.GRU,
        *,
        blocksize: int | tuple[int, int] = 16,
        density: float,
        method: Literal["magnitude", "random"] = "magnitude",
        score: Literal["l1", "l2", "max"] = "l1",
    ) -> "GRU":
        """Keep some blocks of each weight of a dense layer.

        Args:
            gru: The dense layer.
            blocksize: Shape of the blocks, an int or `(r, c)`.
            density: Share of each weight's blocks to keep.
            method: Keep the strongest blocks, or random ones.
            score: Strength of a block for `method="magnitude"`.

        Returns:
            A layer with copies of the kept values and of the biases.

        Raises:
            TypeError: If `gru` is of another kind.
            ValueError: If the other arguments are out of range, or a weight is computed.

        Examples:
            >>> GRU.from_gru(torch.nn.GRU(32, 64), density=0.5).ih_l0.density
            0.5
        """
        return cast(GRU, cls._from(gru, blocksize, density, method, score))

    def to_gru(self) -> nn.GRU:
        """Make the dense layer of the same function.

        Returns:
            A `torch.nn.GRU` with copies of all weights, zero where nothing is stored.

        Examples:
            >>> GRU(32, 64, density=0.5).to_gru()
            GRU(32, 64)
        """
        return cast(nn.GRU, self.to_dense())
