"""Advice names what was measured, and sparsify_ keeps to it."""

import itertools
import warnings

import pytest
import torch
from torch import nn

from sparsetile.nn import GRU, Linear, advise, sparsify_
from sparsetile.nn import _advise_time as timing
from sparsetile.nn._advise_inputs import Call, calls_of
from support import without_type_checks

CPU = torch.device("cpu")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 32)
        self.other = nn.Linear(8, 32)
        self.down = nn.Linear(32, 8, bias=False)
        self.norm = nn.BatchNorm1d(8)
        self.unused = nn.Linear(8, 8)

    def forward(self, x, again=False):
        for _ in range(2 if again else 1):
            x = self.norm(self.down(self.up(x) + self.other(x)))
        return x


@pytest.fixture
def clock(monkeypatch):
    """Every dense product takes 4 ms, a sparse one as long as the table says (2 ms)."""
    seen = {"groups": [], "times": {}, "seconds": []}

    def fastest(cases, *, seconds, clock=None):
        for call in cases.values():
            call()  # they must run
        seen["groups"].append(list(cases))
        seen["seconds"].append(seconds)
        seen["threads"] = torch.get_num_threads()
        return {way: 4e-3 if way is None else seen["times"].get(way, 2e-3) for way in cases}

    monkeypatch.setattr(timing, "fastest", fastest)
    return seen


def state(model):
    found = {name: value.clone() for name, value in model.state_dict().items()}
    return found, [module.training for module in model.modules()]


def test_layers_are_measured_at_the_rows_they_get_and_equal_ones_once(clock):
    model = Model()
    before, modes = state(model)
    x = torch.randn(6, 8)
    drawn = torch.get_rng_state()
    advice = advise(model, density=0.25, blocksize=4, example_inputs=x, seconds=1.0)
    assert torch.equal(drawn, torch.get_rng_state())
    assert len(clock["groups"]) == 2 and clock["seconds"] == [0.5, 0.5]
    rows = [(layer.name, layer.shape, layer.rows) for layer in advice.layers]
    assert rows == [
        ("up", (32, 8), 6),
        ("other", (32, 8), 6),
        ("down", (8, 32), 6),
        ("unused", (8, 8), 0),
    ]
    up = advice["up"]
    assert (up.dense_ms, up.sparse_ms, up.ratio) == (4.0, 2.0, 2.0)
    assert (up.dense_bytes, up.sparse_bytes) == (1024, 4 * 64 + 4 * (9 + 4))
    assert (up.recommendation, up.why) == ("sparse", "2.00× as fast, with 30 % of the bytes")
    assert advice["unused"].recommendation == "dense"
    assert "never reach" in advice["unused"].why and advice["unused"].ratio is None
    assert (advice.dense_ms, advice.advised_ms, advice.ratio) == (12.0, 6.0, 2.0)
    assert advice.advised_bytes == sum(
        row.sparse_bytes if row.name != "unused" else 256 for row in advice.layers
    )
    after, same = state(model)
    assert same == modes and all(torch.equal(before[name], after[name]) for name in before)
    assert not any(module._forward_pre_hooks for module in model.modules())
    for words in ("layer", "up", "2.00×", "as advised", "unused: example_inputs never reach it"):
        assert words in str(advice)
    with pytest.raises(KeyError):
        advice["nothing"]


def test_calls_of_one_layer_are_added_up(clock):
    model = Model()
    inputs = {"x": torch.randn(6, 8), "again": True}
    advice = advise(model, density=0.25, blocksize=4, example_inputs=inputs)
    assert (advice["up"].rows, advice["up"].dense_ms) == (12, 8.0)


def test_the_best_of_several_ways_is_named_and_all_are_kept(clock):
    clock["times"] = {(0.5, (4, 4)): 5e-3, (0.25, (4, 4)): 3e-3, (0.25, (8, 2)): 1e-3}
    advice = advise(
        Model(),
        density=[0.5, 0.25],
        blocksize=[4, (8, 2)],
        example_inputs=(torch.randn(6, 8),),
        filter=lambda module, name: name in ("up", "down"),
    )
    up = advice["up"]
    assert [(trial.density, trial.blocksize) for trial in up.trials] == [
        (0.5, (4, 4)),
        (0.5, (8, 2)),
        (0.25, (4, 4)),
        (0.25, (8, 2)),
    ]
    assert (up.best.density, up.best.blocksize, up.ratio) == (0.25, (8, 2), 4.0)
    text = str(advice)
    assert "All at density 0.5 in 4×4: 10.000 ms of 8.000 dense, 0.80×; 0 of 2 layers" in text
    assert "Not looked at: 2 not selected by filter" in text


def test_threads_are_used_and_given_back(clock):
    before = torch.get_num_threads()
    advice = advise(Model(), density=1, blocksize=4, example_inputs=torch.ones(2, 8), threads=2)
    assert (clock["threads"], advice.threads, torch.get_num_threads()) == (2, 2, before)


def test_progress_names_each_group(clock):
    told = []
    advise(
        Model(),
        density=0.5,
        blocksize=4,
        example_inputs=torch.ones(2, 8),
        progress=lambda *words: told.append(words),
    )
    assert told == [(0, 2, "up"), (1, 2, "down"), (2, 2, "")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_every_dtype_and_ragged_blocks_run(clock, dtype):
    model = nn.Sequential(nn.Linear(7, 5, dtype=dtype))
    x = torch.ones(3, 2, 7, dtype=dtype)
    layer = advise(model, density=0.5, blocksize=4, example_inputs=x).layers[0]
    assert (layer.rows, layer.dense_bytes) == (6, 35 * dtype.itemsize)


def test_autocast_is_measured_as_it_ran():
    model = nn.Linear(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        calls = calls_of(model, {"": model}, torch.ones(2, 4))
    assert calls == {"": [Call((2, 4), torch.float32, CPU, torch.bfloat16)]}
    product = timing.products(model, {}, calls[""][0])[None]
    kinds = []
    handle = model.register_forward_hook(lambda *_: kinds.append("hook"))
    product()
    handle.remove()
    assert kinds == []  # the layer's own product alone is timed


def test_torch_encoders_are_heard_although_they_have_a_fast_path(clock):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    advice = advise(layer, density=0.5, blocksize=4, example_inputs=torch.ones(2, 3, 8))
    rows = {row.name: row.rows for row in advice.layers}
    assert rows == {"linear1": 6, "linear2": 6}


def test_sparse_and_recurrent_layers_are_said_to_be_left(clock):
    model = nn.ModuleDict({"a": Linear(8, 8, density=0.5, blocksize=4), "b": nn.GRU(8, 8)})
    model.forward = lambda x: x
    advice = advise(
        model,
        density=0.5,
        blocksize=4,
        example_inputs=torch.ones(1, 8),
        filter=lambda module, name: True,
    )
    assert not advice.layers and advice.ratio == 1.0
    assert "1 sparse already" in str(advice) and "b, which only linear" in str(advice)


def test_the_fastest_call_counts_and_cases_take_turns():
    order, ticks = [], itertools.count()
    durations = {"a": iter([5, 2, 9]), "b": iter([1, 7, 3])}
    now = 0.0

    def clock():
        nonlocal now
        if next(ticks) % 2:
            now += next(durations[order[-1]])
        return now

    cases = {name: (lambda name=name: order.append(name)) for name in durations}
    assert timing.fastest(cases, seconds=0.0, clock=clock) == {"a": 2.0, "b": 1.0}
    assert order == ["a", "b"] + ["a", "a", "b", "b"] * 3


def test_slower_layers_stay_dense_and_are_named(clock):
    clock["times"] = {(0.25, (4, 4)): 5e-3}
    model = Model()
    with pytest.warns(UserWarning, match=r"left 2 of 2 layers dense.*up: only 0.80× as fast"):
        sparsify_(
            model,
            density={"up": 0.25, "down": 0.25},
            blocksize=4,
            keep_dense_if_slower=True,
            example_inputs=torch.ones(2, 8),
            filter=lambda module, name: name in ("up", "down"),
        )
    assert not any(isinstance(module, Linear) for module in model.modules())


def test_faster_layers_become_sparse_and_unreached_ones_stay(clock):
    model = Model()
    with pytest.warns(UserWarning, match="left 1 of 4 layers dense.*unused: .* never reach"):
        sparsify_(
            model,
            density=0.5,
            blocksize=4,
            method="magnitude",
            keep_dense_if_slower=True,
            example_inputs=torch.ones(2, 8),
        )
    kinds = {name: type(layer) is Linear for name, layer in model.named_children()}
    assert kinds == {"up": True, "other": True, "down": True, "norm": False, "unused": False}


def test_recurrent_layers_are_made_sparse_unmeasured(clock):
    model = nn.Sequential(nn.Linear(8, 8), nn.GRU(8, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sparsify_(
            model,
            density=0.5,
            blocksize=4,
            filter=lambda module, name: True,
            keep_dense_if_slower=True,
            example_inputs=torch.ones(3, 2, 8),
        )
    assert isinstance(model[0], Linear) and isinstance(model[1], GRU)
    assert len(clock["groups"]) == 1


GOOD = {"density": 0.5, "blocksize": 4, "example_inputs": torch.ones(2, 8)}
BAD = [
    ({"density": 0.0}, ValueError, "density"),
    ({"density": "half"}, TypeError, "density"),
    ({"density": []}, ValueError, "density: got an empty list"),
    ({"blocksize": []}, ValueError, "blocksize: got an empty list"),
    ({"blocksize": 0}, ValueError, "blocksize"),
    ({"example_inputs": "text"}, TypeError, "tokenize text first"),
    ({"example_inputs": ["a", "b"]}, TypeError, "tokenize text first"),
    ({"example_inputs": None}, TypeError, "example_inputs: got NoneType"),
    ({"filter": 3}, TypeError, "filter must be callable"),
    ({"seconds": -1}, ValueError, "seconds: got -1"),
    ({"seconds": float("nan")}, ValueError, "seconds: got nan"),
    ({"threads": 0}, ValueError, "threads: got 0"),
    ({"threads": True}, ValueError, "threads: got True"),
]


@pytest.mark.parametrize(("wrong", "error", "words"), BAD)
def test_bad_input_is_refused_by_name(clock, wrong, error, words):
    with without_type_checks(), pytest.raises(error, match=words):
        advise(Model(), **(GOOD | wrong))


def test_what_is_no_module_is_refused():
    with without_type_checks(), pytest.raises(TypeError, match="model must be a torch"):
        advise(3, **GOOD)


@pytest.mark.parametrize(
    ("flags", "error", "words"),
    [
        ({"keep_dense_if_slower": True}, ValueError, "example_inputs: got none"),
        ({"example_inputs": torch.ones(2, 8)}, ValueError, "example_inputs: got some"),
        ({"keep_dense_if_slower": 1}, TypeError, "keep_dense_if_slower must be True or False"),
    ],
)
def test_sparsify_wants_inputs_exactly_to_measure(flags, error, words):
    model = Model()
    with without_type_checks(), pytest.raises(error, match=words):
        sparsify_(model, density=0.5, blocksize=4, **flags)
    assert type(model.up) is nn.Linear


def test_a_model_that_fails_on_its_inputs_is_left_as_it_was(clock):
    model = Model()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        advise(model, density=0.5, blocksize=4, example_inputs=torch.ones(2, 9))
    assert model.training and not any(m._forward_pre_hooks for m in model.modules())
