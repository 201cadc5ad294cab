import torch
from hypothesis import given
from hypothesis import strategies as st

from sparsetile.train._bits import count_bits, no_bits, set_bits_


@given(st.integers(0, 99), st.data())
def test_bits_are_those_of_a_mask(size, data):
    wanted = torch.zeros(size, dtype=torch.bool)
    bits = no_bits(size)
    for _ in range(2):
        chosen = torch.tensor(data.draw(st.permutations(range(size)))[: size // 3]).long()
        wanted[chosen] = True
        set_bits_(bits, chosen)
    unpacked = (bits[:, None] >> torch.arange(8) & 1).flatten()[:size].bool()
    assert torch.equal(unpacked, wanted)
    assert count_bits(bits) == int(wanted.sum())
