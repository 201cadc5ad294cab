"""Dealing block products and rows to tiles."""

import heapq

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparsetile.plan.masked._assign import deal


@given(
    weights=st.lists(st.integers(0, 6), max_size=40),
    tiles=st.integers(1, 9),
)
def test_dealing_is_largest_first_to_the_idlest(weights, tiles):
    loads = [0] * tiles
    for weight in sorted(weights, reverse=True):
        heapq.heapreplace(loads, loads[0] + weight)
    tile = deal(np.array(weights, np.int64), tiles)
    dealt = np.bincount(tile, weights, minlength=tiles)
    assert sorted(dealt.tolist()) == sorted(loads)
