import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sparsetile.matrix import pattern_from_dense, random_pattern
from sparsetile.nn import ER, ERK, Candidate, GlobalMagnitude, Linear, PerLayer, Uniform, sparsify_
from sparsetile.nn._budget_split import split, total_blocks

SIZES = st.integers(1, 40)
DENSITIES = st.floats(0, 1, exclude_min=True)
BLOCKS = st.tuples(st.integers(1, 9), st.integers(1, 9))


def candidates(sizes, blocksize):
    return [Candidate(str(i), torch.randn(m, k), blocksize) for i, (m, k) in enumerate(sizes)]


LAYERS = st.builds(candidates, st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=6), BLOCKS)


def counts(budget, layers):
    return [share if isinstance(share, int) else share.nnzb for share in budget.share(layers)]


@settings(max_examples=80, deadline=None)
@given(LAYERS, DENSITIES, st.sampled_from([Uniform, ER, ERK, GlobalMagnitude]))
def test_the_number_of_blocks_is_exact_and_fits_every_layer(layers, density, budget):
    got = counts(budget(density), layers)
    room = [layer.positions for layer in layers]
    assert sum(got) == max(round(density * sum(room)), len(layers))
    assert all(1 <= count <= most for count, most in zip(got, room, strict=True))
    assert got == counts(budget(density), layers)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0.01, 100)), min_size=1), DENSITIES)
def test_shares_are_proportional_but_for_the_bounds(layers, density):
    room, wanted = [most for most, _ in layers], [want for _, want in layers]
    total = total_blocks(room, density)
    got = split(total, wanted, room)
    assert sum(got) == total
    scales = [
        ((count - 1) / want, (count + 1) / want)
        for count, want, most in zip(got, wanted, room, strict=True)
        if 1 < count < most
    ]
    # One scale gives all counts that no bound has touched, less than one block off.
    if scales:
        assert max(low for low, _ in scales) <= min(high for _, high in scales) * (1 + 1e-9)


@settings(max_examples=80, deadline=None)
@given(LAYERS, DENSITIES, DENSITIES, st.sampled_from([Uniform, ER]))
def test_more_density_is_more_of_every_layer_but_for_rounding(layers, one, other, budget):
    fewer, more = (counts(budget(density), layers) for density in sorted((one, other)))
    assert all(few <= many + 1 for few, many in zip(fewer, more, strict=True))


@settings(max_examples=40, deadline=None)
@given(LAYERS, DENSITIES, DENSITIES)
def test_what_global_magnitude_keeps_it_keeps_at_higher_densities(layers, one, other):
    fewer, more = (GlobalMagnitude(d).share(layers) for d in sorted((one, other)))
    for few, many in zip(fewer, more, strict=True):
        assert not (few.block_mask() & ~many.block_mask()).any()


# Sizes of layers, block, density, then the blocks of each layer.
WORKED = {
    "equal_layers_round_by_order": (Uniform(0.1), [(64, 64)] * 3, 16, [2, 2, 1]),
    "ragged_edges_are_positions": (Uniform(0.5), [(65, 64), (64, 64)], 16, [10, 8]),
    # Densities 2/64 and 5/64 of 256 and 64 positions are as 8 to 5: of 32, 19.7 and 12.3.
    "er_by_hand": (ER(0.1), [(64, 64), (16, 64)], 4, [20, 12]),
    "er_of_a_square_net_is_uniform": (ER(0.25), [(64, 64)] * 2, 8, [16, 16]),
    # 8×8 would get 3 blocks and has room for 1: it is full, and the others share 52 - 1.
    "er_fills_the_smallest": (ER(0.4), [(8, 8), (64, 64), (64, 64)], 8, [1, 26, 25]),
    "one_each_at_least": (Uniform(0.001), [(64, 64), (16, 16)], 16, [1, 1]),
    "all": (ER(1.0), [(64, 64), (16, 48)], 16, [16, 3]),
}


@pytest.mark.parametrize("case", WORKED)
def test_worked_examples(case):
    budget, sizes, blocksize, want = WORKED[case]
    assert counts(budget, candidates(sizes, (blocksize, blocksize))) == want


def test_the_mlp_of_the_rigl_paper_has_the_densities_of_its_formula():
    # 784-300-100-10 at density 0.1: the last layer is full, and one scale gives the others.
    layers = candidates([(300, 784), (100, 300), (10, 100)], (1, 1))
    got = counts(ERK(0.1), layers)
    scale = (0.1 * 266200 - 1000) / (300 + 784 + 100 + 300)
    assert got == [round(scale * 1084), round(scale * 400), 1000]


def test_global_magnitude_keeps_the_strongest_of_all():
    layers = candidates([(12, 16), (20, 8), (7, 9)], (4, 4))
    layers[1] = Candidate("1", layers[1].weight * 3, (4, 4))
    patterns = GlobalMagnitude(0.4).share(layers)
    kept, left = [], []
    for layer, pattern in zip(layers, patterns, strict=True):
        padded = nn.functional.pad(layer.weight, (0, -layer.shape[1] % 4, 0, -layer.shape[0] % 4))
        scores = padded.abs().unfold(0, 4, 4).unfold(1, 4, 4).sum((2, 3))
        # But for its strongest block, which every layer keeps.
        kept.append(scores[pattern.block_mask()].sort().values[:-1])
        left.append(scores[~pattern.block_mask()])
    assert torch.cat(kept).min() > torch.cat(left).max()


def test_equal_blocks_are_kept_in_the_order_of_the_layers():
    layers = [Candidate(str(i), torch.ones(8, 8), (4, 4)) for i in range(3)]
    patterns = GlobalMagnitude(0.5).share(layers)
    assert [p.col_indices.tolist() for p in patterns] == [[0, 1, 0, 1], [0], [0]]


def net():
    return nn.ModuleDict({
        "embed": nn.Linear(32, 64),
        "blocks": nn.ModuleList(
            nn.ModuleDict({"attn": nn.Linear(64, 64), "mlp": nn.Linear(64, 128)}) for _ in range(2)
        ),
        "head": nn.Linear(64, 32),
    })  # fmt: skip


def stored(model):
    return {name: m.nnzb for name, m in model.named_modules() if isinstance(m, Linear)}


def test_a_mapping_decides_by_name_and_glob_and_can_leave_layers_dense():
    pattern = random_pattern(64, 32, blocksize=8, density=0.5, seed=1)
    model = sparsify_(
        net(),
        density={
            "embed": pattern,
            "blocks.1.mlp": 1.0,
            "*.mlp": 0.25,
            "*.attn": ER(0.5),
            "*": None,
        },
        blocksize=16,
    )
    assert stored(model) == {
        "embed": 16,
        "blocks.0.attn": 8,
        "blocks.0.mlp": 8,
        "blocks.1.attn": 8,
        "blocks.1.mlp": 32,
    }
    assert model["embed"].pattern == pattern


def test_a_number_is_the_uniform_budget():
    models = [net() for _ in range(2)]
    for model, density in zip(models, (0.3, Uniform(0.3)), strict=True):
        torch.manual_seed(1)
        sparsify_(model, density=density, blocksize=4)
    for a, b in zip(models[0].modules(), models[1].modules(), strict=True):
        assert not isinstance(a, Linear) or a.pattern == b.pattern


def test_magnitude_keeps_the_strongest_of_each_layer_in_a_budget():
    model = net()
    dense = model["head"].weight.detach().clone()
    sparsify_(model, density=ER(0.2), blocksize=8, method="magnitude")
    head = model["head"]
    assert head.pattern == pattern_from_dense(dense, 8, head.nnzb / 32)


@pytest.mark.parametrize("density", [0.1, ER(0.1), PerLayer({"*": 0.1})], ids=str)
def test_balanced_layers_leave_no_row_and_no_column_empty(density):
    model = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256))
    sparsify_(model, density=density, blocksize=16, balanced=True)
    assert sum(layer.nnzb for layer in model) == 51
    for layer in model:
        mask = layer.pattern.block_mask().int()
        for load in (mask.sum(0), mask.sum(1)):
            assert load.min() >= 1 and load.max() <= 2


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_without_weights_gets_no_blocks():
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 0))
    sparsify_(model, density=ER(0.5), blocksize=4)
    assert stored(model) == {"0": 8, "1": 0}
