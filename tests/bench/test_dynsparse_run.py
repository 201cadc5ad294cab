"""One run of the experiment: what it trains, what it counts, and that it is what was asked."""

import pytest
import torch
from torch.nn import functional as F

import support_dynsparse as support
from sparsetile import train
from sparsetile.bench.dynsparse import _cost
from sparsetile.bench.dynsparse._model import Size, build
from sparsetile.bench.dynsparse._setting import setting_of
from sparsetile.bench.dynsparse._store import RESULTS, Store
from sparsetile.bench.dynsparse._train import Loop, rate_at, run
from sparsetile.nn import Linear

DATA = support.data()


def silent(step, loss):
    pass


def curve_of(setting):
    return [point["loss"] for point in run(setting, DATA, silent).curve]


def test_embedding_and_head_are_the_same_for_every_width_and_block():
    models = [
        build(Size(1, width, 16, 32), blocksize=b, density=0.5, seed=3)
        for width, b in ((16, None), (32, None), (32, 4))
    ]
    assert all(model.embedding.weight.shape == (32, 64) for model in models)
    assert torch.equal(models[1].embedding.weight, models[2].embedding.weight)
    sparse = [name for name, module in models[2].named_modules() if isinstance(module, Linear)]
    assert sparse == [f"blocks.0.{part}" for part in ("qkv", "out", "wide", "narrow")]


def test_the_model_predicts_only_from_what_came_before():
    model = build(Size(2, 32, 16, 32), blocksize=4, density=0.5, seed=0)
    inputs = torch.randint(32, (1, 16))
    changed = inputs.clone()
    changed[0, 9] = (changed[0, 9] + 1) % 32
    seen = []
    for tokens in (inputs, changed):
        first = torch.full((1, 16), -100)
        first[0, :9] = 5
        seen.append(model(tokens, first))
    assert torch.equal(*seen)


def test_the_loss_is_the_cross_entropy_of_the_tied_head():
    model = build(Size(1, 16, 16, 32), blocksize=None, density=1.0, seed=0)
    inputs, targets = torch.randint(32, (2, 3, 16))
    x = model.up(model.embedding(inputs)) + model.places
    for block in model.blocks:
        x = block(x)
    logits = model.down(model.norm(x)) @ model.embedding.weight.T + model.head_bias
    wanted = F.cross_entropy(logits.reshape(-1, 32), targets.reshape(-1))
    torch.testing.assert_close(model(inputs, targets), wanted)


@pytest.mark.parametrize("method", ["static", "dynsparse", "rigl"])
def test_the_number_of_blocks_never_changes(method):
    loop = Loop(support.setting(method), DATA)
    layers = [module for module in loop.model.modules() if isinstance(module, Linear)]
    counts = [layer.nnzb for layer in layers]
    first = [layer.col_indices.clone() for layer in layers]
    for _ in range(12):
        loop.step()
        assert [layer.nnzb for layer in layers] == counts
    assert isinstance(loop.trainer.method, {"rigl": train.RigL}.get(method, train.Method))
    moved = any(not torch.equal(a, b.col_indices) for a, b in zip(first, layers, strict=True))
    assert moved == (method != "static")


@pytest.mark.parametrize(("drop", "score"), [("l2", train.block_l2), ("max", train.block_max)])
def test_blocks_are_scored_as_the_setting_says(drop, score):
    assert Loop(support.setting(drop=drop), DATA).trainer.method.drop is score


def test_equal_settings_give_equal_curves_and_other_seeds_do_not():
    once = curve_of(support.setting(seed=1))
    assert once == curve_of(support.setting(seed=1))
    assert once != curve_of(support.setting(seed=2))


def test_data_order_and_judged_batches_do_not_depend_on_the_model():
    loops = [
        Loop(support.setting("dense", 0, width=16), DATA),
        Loop(support.setting("dynsparse"), DATA),
    ]
    for step in (0, 5, 300):
        pairs = zip(*(loop.batches[step] for loop in loops), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    for a, b in zip(*(loop.judged for loop in loops), strict=True):
        assert torch.equal(a[0], b[0])
        assert torch.equal(a[0][:, 1:], a[1][:, :-1])


def test_a_run_learns_and_tells_all_that_is_kept(tmp_path):
    setting = support.setting(steps=100, every=15)
    told = []
    result = run(setting, DATA, lambda step, loss: told.append(step))
    assert told == [50, 100]
    assert result.row["loss"] < DATA.unigram - 0.2
    assert result.row["stuck"] == 0
    assert {*result.row} == {*RESULTS} - {"commit"}
    assert [point["step"] for point in result.curve][-1] == 100
    covered = [point["coverage"] for point in result.curve]
    assert covered == sorted(covered)
    assert covered[-1] > 0.3
    assert 0 < result.row["wasted"] < 1
    assert result.row["updates"] == 6
    store = Store(tmp_path)
    store.add("main", setting, result)
    (again,) = Store(tmp_path).runs
    assert setting_of(again) == setting
    assert again["loss"] == pytest.approx(result.row["loss"], rel=1e-5)


def test_a_run_that_learned_nothing_is_called_stuck():
    assert run(support.setting("dense", 0, lr=1e-9), DATA, silent).row["stuck"] == 1


def test_what_a_run_costs_is_counted():
    size = Size(2, 256, 64, 1024)
    assert _cost.flops(size, 0.1) == pytest.approx(85.6e6, rel=1e-3)
    assert _cost.flops(Size(2, 92, 64, 1024)) == pytest.approx(87.0e6, rel=1e-3)
    assert _cost.attention_share(Size(2, 256, 128, 1)) == pytest.approx(
        4 * 128 / (24 * 256 + 4 * 128)
    )
    loop = Loop(support.setting("dense", 0, width=16), DATA)
    loop.step()
    layers, whole = _cost.bytes_held(loop.model, loop.optimizer)
    weights = sum(p.numel() for name, p in loop.model.named_parameters() if "blocks" in name)
    norms = 4 * 16
    assert layers == pytest.approx((weights - norms) * 16, rel=0.01)  # and a step count each
    parameters = sum(p.numel() for p in loop.model.parameters())
    assert whole == pytest.approx(parameters * 16, rel=0.01)
    assert _cost.stored_density(loop.model) == 1.0


def test_the_learning_rate_rises_and_falls_to_zero():
    rates = [rate_at(step, 100) for step in range(100)]
    assert max(rates) == 1.0
    assert rates[:5] == sorted(rates[:5])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert 0 < rates[-1] < 0.02
    assert rate_at(0, 1) > 0


def test_masked_words_can_be_restored_too():
    setting = support.setting("dense", 0, objective="mlm")
    loop = Loop(setting, DATA)
    assert not loop.model.blocks[0].causal
    inputs, targets = loop.judged[0]
    asked = targets != -100
    assert 0 < asked.float().mean() < 0.4
    assert (inputs[~asked] < 32).all()
    assert len(run(setting, DATA, silent).curve) == 8
