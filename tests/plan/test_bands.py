"""The cut into bands is the best one, whatever the rows hold."""

from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsetile.plan import balanced_bands, imbalance
from support import without_type_checks

ROWS = st.lists(st.integers(0, 12), max_size=7)


def heaviest(counts, bounds):
    return max(sum(counts[a:b]) for a, b in pairwise(bounds))


def best_heaviest(counts, parts):
    """Every cut there is."""
    inner = combinations_with_replacement(range(len(counts) + 1), parts - 1)
    return min(heaviest(counts, (0, *cut, len(counts))) for cut in inner)


@given(counts=ROWS, parts=st.integers(1, 5))
def test_no_cut_has_a_lighter_heaviest_band(counts, parts):
    bounds = balanced_bands(counts, parts).tolist()
    assert heaviest(counts, bounds) == best_heaviest(counts, parts)


@given(counts=st.lists(st.integers(0, 10**6), max_size=60), parts=st.integers(1, 80))
def test_bands_cover_all_rows_in_order(counts, parts):
    bounds = balanced_bands(counts, parts)
    assert bounds.dtype == np.int64 and bounds.shape == (parts + 1,)
    assert bounds[0] == 0 and bounds[-1] == len(counts) and (np.diff(bounds) >= 0).all()


@given(counts=st.lists(st.integers(0, 10**6), min_size=1, max_size=60), parts=st.integers(1, 80))
def test_heaviest_band_is_within_one_row_of_an_equal_share(counts, parts):
    bounds = balanced_bands(counts, parts).tolist()
    assert heaviest(counts, bounds) <= sum(counts) // parts + max(counts)


@pytest.mark.parametrize(
    ("counts", "parts", "bounds"),
    [
        ([1] * 8, 4, [0, 2, 4, 6, 8]),
        ([1] * 10, 4, [0, 3, 5, 8, 10]),
        ([100, 1, 1, 1], 2, [0, 1, 4]),
        ([1, 1, 1, 100], 2, [0, 3, 4]),
        ([5], 3, [0, 0, 1, 1]),
        ([], 2, [0, 0, 0]),
        ([0, 0, 0], 2, [0, 0, 3]),
    ],
)
def test_worked_examples(counts, parts, bounds):
    assert balanced_bands(counts, parts).tolist() == bounds


def test_equal_shares_are_kept_when_one_heavy_row_sets_the_weight():
    # The last row weighs 6 whatever is done; the others are still spread over the other bands.
    assert balanced_bands([1] * 6 + [6], 3).tolist() == [0, 4, 6, 7]


def test_small_integers_do_not_overflow():
    assert balanced_bands(np.full(300, 100, np.int8), 3).tolist() == [0, 100, 200, 300]


def test_imbalance_is_one_for_equal_bands():
    assert imbalance([2, 2, 2, 2], [0, 2, 4]) == 1.0


def test_imbalance_is_the_number_of_bands_when_one_holds_all():
    assert imbalance([4, 4, 0], [0, 2, 2, 3]) == 3.0


def test_imbalance_of_no_work_is_one():
    assert imbalance([0, 0], [0, 1, 2]) == 1.0


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: balanced_bands([1.5, 2.0], 2), TypeError, "float64; give whole numbers"),
        (lambda: balanced_bands([True, False], 2), TypeError, "bool; give whole numbers"),
        (lambda: balanced_bands([[1], [2]], 2), ValueError, r"shape \(2, 1\)"),
        (lambda: balanced_bands([3, -1], 2), ValueError, r"counts\[1\] is -1; give 0 or more"),
        (lambda: balanced_bands([3], 0), ValueError, "parts=0; give 1 or more"),
        (lambda: balanced_bands([1], 2**31), ValueError, "parts=2147483648; .* at most"),
        (lambda: balanced_bands([1], 2.5), TypeError, "parts=2.5; give a whole number"),
        (lambda: imbalance([1, 2], [0, 1]), ValueError, "from 0 to 2"),
        (lambda: imbalance([1, 2], [1, 2]), ValueError, "from 0 to 2"),
        (lambda: imbalance([1, 2], [0, 2, 1, 2]), ValueError, "ascending"),
        (lambda: imbalance([1, 2], [2]), ValueError, "from 0 to 2"),
        (lambda: imbalance([1, 2], [0.0, 2.0]), ValueError, "whole numbers"),
    ],
)
def test_bad_input_says_what_to_give(call, error, says):
    with without_type_checks(), pytest.raises(error, match=says):
        call()
