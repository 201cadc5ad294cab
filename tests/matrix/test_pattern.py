import copy
import gc
import io
import os
import pickle
import signal
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from sparsetile.matrix import Pattern, random_pattern
from support import SHAPES, patterns, places, some_pattern


@pytest.fixture(params=SHAPES)
def pattern(request):
    return some_pattern(request.param)


def test_indices_are_int32_whatever_was_given():
    for kind in (list, np.array, torch.tensor, lambda v: np.array(v, np.uint8)):
        p = Pattern((4, 6), (2, 3), kind([0, 1, 3]), kind([1, 0, 1]))
        assert (p.crow_indices.dtype, p.col_indices.dtype) == (torch.int32, torch.int32)
        assert places(p) == [(0, 1), (1, 0), (1, 1)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_makes_patterns_after_the_parent_used_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.randn(10**6).exp()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # ends the child, should it hang
        p = random_pattern(100, 100, blocksize=1, density=0.5, seed=0)
        os._exit(0 if p.T.nnzb == p.nnzb == 5000 else 1)
    torch.set_num_threads(threads)
    assert os.waitpid(child, 0)[1] == 0


def test_later_writes_to_the_arguments_do_not_reach_the_pattern():
    col = torch.tensor([0, 1], dtype=torch.int32)
    p = Pattern((4, 4), 2, [0, 1, 2], col)
    col[0] = 7
    assert p.col_indices.tolist() == [0, 1]


def test_attributes_cannot_be_set():
    p = Pattern((4, 4), 2, [0, 1, 2], [0, 1])
    with pytest.raises(AttributeError):
        p.shape = (8, 8)


def test_an_empty_list_of_columns_is_a_pattern_of_no_blocks():
    p = Pattern((4, 4), 2, [0, 0, 0], [])
    assert p.nnzb == 0 and p.density == 0.0 and p.T.nnzb == 0


def test_mask_marks_every_stored_block(pattern):
    (m, k), (r, c) = pattern.shape, pattern.blocksize
    want = torch.zeros(m, k, dtype=torch.bool)
    for i, j in places(pattern):
        want[i * r : (i + 1) * r, j * c : (j + 1) * c] = True
    assert torch.equal(pattern.to_mask(), want)


def test_block_mask_has_one_element_a_block(pattern):
    mask = pattern.block_mask()
    assert mask.shape == pattern.grid
    assert mask.nonzero().tolist() == [list(p) for p in places(pattern)]


def test_row_indices_name_the_block_row(pattern):
    assert pattern.row_indices.dtype == torch.int32
    assert pattern.row_indices.tolist() == [i for i, _ in places(pattern)]


def test_density_counts_values_inside_the_matrix(pattern):
    mask = pattern.to_mask()
    want = mask.sum().item() / mask.numel() if mask.numel() else 0.0
    assert pattern.density == pytest.approx(want, abs=1e-12)


def test_ragged_says_whether_a_block_reaches_over_the_edge():
    assert [some_pattern(kind).ragged for kind in ("square", "ragged_rows", "ragged_cols")] == [
        False,
        True,
        True,
    ]


@settings(max_examples=40, deadline=None)
@given(patterns())
def test_transpose_is_the_canonical_pattern_of_the_transposed_mask(pattern):
    assert torch.equal(pattern.T.to_mask(), pattern.to_mask().T)


@settings(max_examples=40, deadline=None)
@given(patterns())
def test_transpose_permutation_says_where_each_block_comes_from(pattern):
    here = places(pattern)
    assert pattern.transpose_permutation.dtype == torch.int64
    moved = [here[b] for b in pattern.transpose_permutation.tolist()]
    assert [(j, i) for i, j in moved] == places(pattern.T)


def test_transposing_twice_gives_the_same_object(pattern):
    assert pattern.T.T is pattern and pattern.T is pattern.T


def test_transpose_outlives_its_pattern():
    flipped = some_pattern("tall").T
    gc.collect()
    assert flipped.T == some_pattern("tall")


def test_a_pattern_and_its_transpose_are_no_reference_cycle():
    p = some_pattern("wide")
    gone = weakref.ref(p.T)
    gc.disable()
    try:
        del p
        assert gone() is None
    finally:
        gc.enable()


def test_transpose_of_more_columns_than_16_bits_hold():
    p = random_pattern(3, 70_000, blocksize=1, density=0.001, seed=0)
    assert [(j, i) for i, j in places(p.T)] == sorted(
        places(p), key=lambda place: (place[1], place[0])
    )


def test_equal_patterns_hash_alike(pattern):
    twin = Pattern(pattern.shape, pattern.blocksize, pattern.crow_indices, pattern.col_indices)
    assert twin == pattern and hash(twin) == hash(pattern) and len({twin, pattern}) == 1


@pytest.mark.parametrize(
    "other",
    [
        Pattern((4, 4), 2, [0, 1, 2], [0, 0]),
        Pattern((4, 4), 2, [0, 2, 2], [0, 1]),
        Pattern((4, 3), 2, [0, 1, 2], [0, 1]),
        Pattern((4, 8), (2, 4), [0, 1, 2], [0, 1]),
        "a string",
    ],
    ids=["columns", "rows", "shape", "blocksize", "type"],
)
def test_different_patterns_are_unequal(other):
    assert Pattern((4, 4), 2, [0, 1, 2], [0, 1]) != other


def test_copies_of_an_immutable_are_itself(pattern):
    assert copy.copy(pattern) is pattern and copy.deepcopy([pattern])[0] is pattern


def test_pickle_round_trip(pattern):
    assert pickle.loads(pickle.dumps(pattern)) == pattern


def test_torch_save_round_trip_with_weights_only(pattern):
    file = io.BytesIO()
    torch.save(pattern, file)
    file.seek(0)
    assert torch.load(file, weights_only=True) == pattern


def test_a_damaged_pickle_is_refused():
    kind, (shape, blocksize, crow, col) = some_pattern("square").__reduce__()
    with pytest.raises(ValueError, match="block column 100"):
        kind(shape, blocksize, crow, col + 1000)


def test_to_the_same_device_is_the_same_pattern(pattern):
    assert pattern.to("cpu") is pattern


@pytest.mark.parametrize(
    ("density", "text"),
    [(0.25, "density=0.25, 4096 blocks"), (0.0001, "density=0.0001, 2 blocks")],
)
def test_repr_is_one_line(density, text):
    p = random_pattern(1024, 2048, blocksize=(16, 8), density=density, seed=0)
    assert repr(p) == f"Pattern(1024×2048, blocksize=16×8, {text}, cpu)"


def test_html_repr_holds_a_small_picture_and_the_line():
    p = random_pattern(4096, 4096, blocksize=4, density=0.1, seed=0)
    html = p._repr_html_()
    assert "<svg" in html and repr(p) in html and len(html) < 150_000
