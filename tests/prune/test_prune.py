import copy

import pytest
import torch
from torch import nn

from sparsetile.matrix import Pattern, block_scores
from sparsetile.nn import ERK, BlockSparse, GlobalMagnitude, Linear, Uniform, sparsify_
from sparsetile.prune import NM, LeastSquares, Magnitude, SparseGPT, Wanda, prune_
from support_prune import correlated, dense_net

METHODS = ["magnitude", "wanda", "sparsegpt"]
DATA = correlated(256, 36, dtype=torch.float32)


def dense_weights(model):
    return [m.weight.to_dense().detach() for m in model.modules() if isinstance(m, Linear)]


@pytest.mark.parametrize("blocksize", [1, 4, (5, 3)])
@pytest.mark.parametrize("reconstruct", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_report_says_what_is_in_the_model(method, reconstruct, blocksize):
    dense, model = dense_net(), dense_net()
    report = prune_(
        model,
        density=0.4,
        blocksize=blocksize,
        method=method,
        calibration=[DATA],
        reconstruct=reconstruct,
    )
    positions = sum(layer.positions for layer in report.layers)
    assert sum(layer.blocks for layer in report.layers) == round(0.4 * positions)
    x = DATA
    for i, row in ((0, report.layers[0]), (2, report.layers[1])):
        layer = model[i]
        assert (row.blocks, row.density) == (layer.nnzb, layer.density)
        wanted, got = (x @ w.detach().T for w in (dense[i].weight, layer.weight.to_dense()))
        error = float((wanted - got).norm() / wanted.norm())
        assert row.output_error == pytest.approx(error, rel=1e-3)
        assert layer.bias is not None and torch.equal(layer.bias, dense[i].bias)
        x = torch.tanh(dense[0](DATA)).detach()
    table = str(report)
    assert f"{report.layers[0].output_error:.3f}" in table and "total" in table
    assert "nan" not in table


def test_magnitude_is_what_sparsify_does():
    model = dense_net()
    wanted = sparsify_(dense_net(), density=0.3, blocksize=4, method="magnitude")
    report = prune_(model, density=0.3, blocksize=4)
    for got, want in zip(dense_weights(model), dense_weights(wanted), strict=True):
        assert torch.equal(got, want)
    assert [layer.output_error for layer in report.layers] == [None, None]


@pytest.mark.parametrize("blocksize", [1, 4, 16])
@pytest.mark.parametrize("density", [0.75, 0.5, 0.3, 0.2])
def test_sparsegpt_beats_magnitude_in_every_layer_of_a_trained_net(trained, density, blocksize):
    net, data = trained

    def errors(method, **options):
        model = copy.deepcopy(net)
        report = prune_(
            model,
            density=density,
            blocksize=blocksize,
            method=method,
            calibration=[data],
            **options,
        )
        return [layer.output_error for layer in report.layers]

    for obs, magnitude in zip(errors("sparsegpt"), errors("magnitude"), strict=True):
        assert obs < 0.9 * magnitude
    for solved, plain in zip(errors("wanda", reconstruct=True), errors("wanda"), strict=True):
        assert solved < 0.95 * plain


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    x = correlated(1024, 48, dtype=torch.float32)
    y = torch.sin(x @ torch.randn(48, 16))
    net = nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU())
    net.append(nn.Linear(96, 16))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(150):
        optimizer.zero_grad()
        (net(x) - y).square().mean().backward()
        optimizer.step()
    return net, x


def test_sequential_sees_the_inputs_that_pruned_layers_give(trained):
    net, data = trained
    seen = []

    class Watching(Wanda):
        def prune(self, layer):
            seen.append((layer.name, layer.inputs.gram.clone()))
            return super().prune(layer)

    model = copy.deepcopy(net)
    prune_(
        model,
        density=0.3,
        blocksize=4,
        method=Watching(),
        calibration=[data],
        sequential=True,
    )
    x = data
    for i, (name, gram) in zip((0, 2, 4), seen, strict=True):
        assert name == str(i)
        torch.testing.assert_close(gram, (x.T @ x).double(), rtol=1e-3, atol=1e-1)
        x = torch.relu(model[i](x)).detach()


def test_steps_recalibrate_and_only_ever_shrink(trained):
    net, data = trained
    counts, grams = [], []

    class Watching(SparseGPT):
        def prune(self, layer):
            kept = super().prune(layer)
            assert not bool((kept.blocks & ~layer.live).any())
            if layer.name == "2":
                counts.append(int(kept.blocks.sum()))
                grams.append(layer.inputs.gram.clone())
            return kept

    model, ticks = copy.deepcopy(net), []
    report = prune_(
        model,
        density=0.25,
        blocksize=4,
        method=Watching(),
        calibration=[data],
        steps=4,
        progress=lambda done, total, name: ticks.append((done, total, name)),
    )
    full = 24 * 24
    final = model[2].nnzb
    assert counts == [final + round((full - final) * (1 - s / 4) ** 3) for s in (1, 2, 3, 4)]
    assert len({float(gram.sum()) for gram in grams}) == 4
    assert [t for t in ticks if t[2] != "calibration"][-1] == (12, 12, "4")
    assert sum(t[2] == "calibration" for t in ticks) == 4
    assert report.layers[1].blocks == final


@pytest.mark.parametrize("method", METHODS)
def test_budgets(method):
    for density, wanted in (
        (ERK(0.3), [layer.nnzb for layer in sparse_twin(ERK(0.3))]),
        ({"0": 0.5, "*": 0.25}, [72, 20]),
        ({"0": 0.5, "*": None}, [72]),
        ({"*": Uniform(1.0)}, [144, 80]),
    ):
        model = dense_net()
        prune_(model, density=density, blocksize=4, method=method, calibration=[DATA])
        assert [m.nnzb for m in model.modules() if isinstance(m, BlockSparse)] == wanted


def sparse_twin(density):
    model = sparsify_(dense_net(), density=density, blocksize=4)
    return [m for m in model.modules() if isinstance(m, BlockSparse)]


@pytest.mark.parametrize("steps", [1, 3])
def test_blocks_that_a_budget_chose_are_kept_and_values_solved_for(steps):
    wanted = [layer.pattern for layer in sparse_twin(GlobalMagnitude(0.3))]
    errors = {}
    for method in METHODS:
        model = dense_net()
        report = prune_(
            model,
            density=GlobalMagnitude(0.3),
            blocksize=4,
            method=method,
            calibration=[DATA],
            steps=steps,
        )
        assert [model[i].pattern for i in (0, 2)] == wanted
        errors[method] = report.output_error
    assert errors["sparsegpt"] < errors["magnitude"] == errors["wanda"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("nm", [NM(2, 4), NM(4, 8)])
def test_n_of_m_models_are_taken_over_without_loss(method, nm):
    model = dense_net()
    for i in (0, 2):
        weight = model[i].weight.data
        weight *= nm.strongest(weight.abs())
    dense = copy.deepcopy(model)
    report = prune_(model, density=nm, blocksize=1, method=method, calibration=[DATA])
    for i in (0, 2):
        assert model[i].nnzb == nm.count(model[i].shape)
        torch.testing.assert_close(model[i].weight.to_dense(), dense[i].weight)
    assert report.output_error < 1e-6


@pytest.mark.parametrize("reconstruct", [False, True])
def test_bf16_models_stay_bf16(reconstruct):
    model = dense_net(torch.bfloat16)
    report = prune_(
        model,
        density=0.5,
        blocksize=4,
        method="sparsegpt",
        calibration=[DATA.bfloat16()],
        reconstruct=reconstruct,
    )
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert 0 < report.output_error < 1
    assert model(DATA.bfloat16()).isfinite().all()


def test_what_is_frozen_stays_frozen_and_modes_stay():
    model = dense_net()
    model[0].requires_grad_(False)
    model[2].eval()
    prune_(model, density=0.5, blocksize=4, method="wanda", calibration=[DATA])
    assert not model[0].values.requires_grad and model[2].values.requires_grad
    assert model.training and not model[2].training


def test_sparse_layers_and_filtered_ones_are_left():
    model = dense_net()
    prune_(model, density=0.5, blocksize=4, filter=lambda module, name: name == "2")
    assert type(model[0]) is nn.Linear
    report = prune_(model, density=0.5, blocksize=2)
    assert [layer.name for layer in report.layers] == ["0"]
    assert model[2].blocksize == (4, 4)


def test_recurrent_layers_are_pruned_by_magnitude():
    model = nn.Sequential(nn.GRU(8, 8))
    report = prune_(model, density=0.5, blocksize=4, filter=lambda module, name: True)
    assert [layer.name for layer in report.layers] == ["0.ih_l0", "0.hh_l0"]
    assert all(m.density == 0.5 for m in model.modules() if isinstance(m, BlockSparse))


def test_an_error_in_the_middle_leaves_the_model_as_it_was(trained):
    net, data = trained

    class Failing(Magnitude):
        def prune(self, layer):
            if layer.name == "4":
                raise KeyboardInterrupt
            return super().prune(layer)

    model = copy.deepcopy(net)
    with pytest.raises(KeyboardInterrupt):
        prune_(
            model,
            density=0.3,
            blocksize=4,
            method=Failing(),
            calibration=[data],
            sequential=True,
        )
    for now, was in zip(model.parameters(), net.parameters(), strict=True):
        assert torch.equal(now, was)


def test_least_squares_has_settings():
    errors = [
        prune_(
            dense_net(),
            density=0.3,
            blocksize=4,
            calibration=[DATA],
            reconstruct=LeastSquares(damping=damping),
        ).output_error
        for damping in (1e-6, 10.0)
    ]
    assert errors[0] < errors[1]


def test_patterns_by_layer():
    given = Pattern((64, 36), 4, [0, *[1] * 16], [3])
    model = dense_net()
    prune_(
        model,
        density={"0": given, "2": 0.5},
        blocksize=4,
        method="sparsegpt",
        calibration=[DATA],
    )
    assert model[0].pattern == given
    scores = block_scores(model[0].weight.to_dense(), 4)
    assert int((scores > 0).sum()) == 1
