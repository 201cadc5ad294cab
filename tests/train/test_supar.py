import math

import pytest
import torch
from torch import nn

from sparsetile.nn import Linear, sparsify_
from sparsetile.train import supar_groups, supar_init_
from support import without_type_checks


def rates(model, groups):
    names = {id(p): name for name, p in model.named_parameters()}
    return {names[id(p)]: g["lr"] for g in groups for p in g["params"]}


@pytest.mark.parametrize(
    ("width", "density", "base_density", "factor"),
    [
        (256, 1.0, 1.0, 1),
        (256, 0.125, 1.0, 8),
        (512, 0.125, 1.0, 4),
        (1024, 0.25, 1.0, 1),
        (128, 1.0, 1.0, 2),
        (256, 0.125, 0.25, 2),
    ],
)
def test_rates_and_spreads_go_by_width_times_density(width, density, base_density, factor):
    model = nn.Sequential(Linear(256, 256, density=density, blocksize=8))
    multipliers = dict(width=width, base_width=256, base_density=base_density)
    groups = supar_groups(model, 0.01, **multipliers)
    assert rates(model, groups) == pytest.approx({"0.values": 0.01 * factor, "0.bias": 0.01})
    spread = supar_init_(model, 0.1, **multipliers)[0].values.std().item()
    assert spread == pytest.approx(0.1 * math.sqrt(factor), rel=0.05)


def net():
    return nn.ModuleDict({
        "embed": nn.Embedding(16, 32),
        "norm": nn.LayerNorm(32),
        "up": Linear(32, 128, density=0.5, blocksize=8),
        "down": Linear(128, 32, density=0.25, blocksize=8),
        "frozen": Linear(32, 32, density=0.5, blocksize=8).requires_grad_(False),
        "head": nn.Linear(32, 16),
    })  # fmt: skip


def test_all_else_keeps_the_base_rate_and_vectors_have_no_decay():
    model = net()
    groups = supar_groups(model, 0.01, width=64, base_width=32, weight_decay=0.1)
    by_name = rates(model, groups)
    assert by_name["up.values"] == pytest.approx(0.01)
    assert by_name["down.values"] == pytest.approx(0.02)
    assert {r for n, r in by_name.items() if not n.endswith("values")} == {0.01}
    assert set(by_name) == {n for n, p in model.named_parameters() if p.requires_grad}
    for group in groups:
        assert {p.ndim > 1 for p in group["params"]} == {group["weight_decay"] == 0.1}
    torch.optim.AdamW(groups)


def test_hidden_names_dense_layers_too():
    model = net()
    groups = supar_groups(
        model, 0.01, width=64, base_width=32, hidden=lambda m, name: name in ("up", "head")
    )
    by_name = rates(model, groups)
    assert by_name["head.weight"] == pytest.approx(0.005)
    assert by_name["down.values"] == 0.01


def test_layers_of_nearly_one_density_share_a_group():
    model = sparsify_(
        nn.Sequential(*(nn.Linear(2048, 1024) for _ in range(3))),
        density=1000.3 / 8192,
        blocksize=16,
    )
    assert len({layer.nnzb for layer in model}) == 2
    assert len(supar_groups(model, 0.01, width=64)) == 2


def test_padding_stays_zero():
    layer = supar_init_(Linear(30, 21, density=0.5, blocksize=8), 1.0, width=30)
    dense = layer.to_linear().weight
    assert layer.values.count_nonzero() == dense.count_nonzero() > 0


def trained(width, density, base_density=1.0):
    """What three hidden layers put out at first, and how much ten steps of Adam change of it."""
    torch.manual_seed(0)
    ends = nn.Linear(16, width, bias=False), nn.Linear(width, 4, bias=False)
    middle = (Linear(width, width, False, density=density, blocksize=4) for _ in range(3))
    model = nn.Sequential(ends[0], *middle, ends[1])
    nn.init.normal_(ends[0].weight)
    nn.init.normal_(ends[1].weight, std=1 / width)
    ends[1].requires_grad_(False)
    base = dict(width=width, base_width=128, base_density=base_density)
    supar_init_(model, 128**-0.5, **base)
    optimizer = torch.optim.Adam(supar_groups(model, 2**-9, **base))
    x, y = torch.randn(64, 16), torch.randn(64, 4)
    first = outputs(model, x)
    for _ in range(10):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
    changes = [after - before for before, after in zip(first, outputs(model, x), strict=True)]
    return torch.stack([size(values) for values in (first, changes)])


@torch.no_grad()
def outputs(model, x):
    found = []
    for layer in model[:-1]:
        x = layer(x)
        found.append(x)
    return found[1:]


def size(values):
    """Root mean square of each layer's."""
    return torch.stack([value.square().mean().sqrt() for value in values])


def test_outputs_and_their_changes_are_of_one_size_in_width_and_density():
    base = trained(128, 1.0)
    for width, density in [(128, 0.25), (256, 0.5), (512, 0.0625)]:
        first, changes = trained(width, density) / base
        assert (first - 1).abs().max() < 0.15, (width, density, first)
        assert 0.6 < changes.min() and changes.max() < 1.5, (width, density, changes)


def test_without_the_multipliers_they_shrink_with_the_density():
    # What the check above can tell: here a layer with 1/16 of the inputs is treated as dense.
    first, changes = trained(128, 0.0625, base_density=0.0625) / trained(128, 1.0)
    assert first.max() < 0.4 and changes.max() < 0.5, (first, changes)


BAD = {
    "model": (lambda: supar_groups([1], 0.1, width=8), "model must be a torch.nn.Module"),
    "lr": (lambda: supar_groups(net(), 0, width=8), "lr must be finite and above 0, got 0"),
    "lr_text": (lambda: supar_groups(net(), "1", width=8), "lr must be a number"),
    "width": (lambda: supar_groups(net(), 0.1, width=0), "width must be finite and above 0"),
    "base_width": (lambda: supar_groups(net(), 1, width=8, base_width=-1), "base_width must be"),
    "base_density": (
        lambda: supar_groups(net(), 1, width=8, base_density=1.5),
        r"base_density must be in \(0, 1\], got 1.5",
    ),
    "decay": (
        lambda: supar_groups(net(), 1, width=8, weight_decay=-1),
        "weight_decay must be finite and above 0 or 0, got -1",
    ),
    "hidden": (lambda: supar_groups(net(), 1, width=8, hidden="up"), "hidden must be callable"),
    "nothing": (lambda: supar_groups(nn.Linear(4, 4), 1, width=8), "model has no hidden layer"),
    "nothing_init": (lambda: supar_init_(nn.Linear(4, 4), 1, width=8), "model has no hidden layer"),
    "std": (lambda: supar_init_(net(), math.nan, width=8), "std must be finite and above 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_call_is_refused_with_its_argument_named(case):
    call, message = BAD[case]
    with without_type_checks(), pytest.raises((TypeError, ValueError), match=message):
        call()
