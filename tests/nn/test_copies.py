"""Copies that other code averages with a layer are told from snapshots of it."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from sparsetile.matrix import random_pattern
from sparsetile.nn import Linear
from sparsetile.nn._copies import averages_of


def torch_average(model):
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    return average.module, lambda: average.update_parameters(model)


def own_average(model):
    """As timm and many others do it."""
    average = copy.deepcopy(model)

    @torch.no_grad()
    def update():
        for ours, theirs in zip(
            average.state_dict().values(), model.state_dict().values(), strict=True
        ):
            if ours.is_floating_point():
                ours.lerp_(theirs, 0.1)
            else:
                ours.copy_(theirs)

    return average, update


def snapshot(model):
    return copy.deepcopy(model), lambda: None


def loaded_snapshot(model):
    best = copy.deepcopy(model)
    return best, lambda: best.load_state_dict(model.state_dict())


def trained_alone(model):
    other = copy.deepcopy(model)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)

    def update():
        other(torch.ones(2, 32)).sum().backward()
        optimizer.step()

    return other, update


def with_its_own_pattern(model):
    other = copy.deepcopy(model)
    pattern = random_pattern(24, 32, blocksize=8, density=0.5, seed=5)

    def update():
        other[0].set_pattern_(pattern)
        other[0].set_pattern_(model[0].pattern, model[0].values)

    return other, update


COPIES = {
    torch_average: True,
    own_average: True,
    snapshot: False,
    loaded_snapshot: False,
    trained_alone: False,
    with_its_own_pattern: False,
}


@pytest.mark.parametrize("make", COPIES, ids=lambda make: make.__name__)
def test_averages_are_found_and_snapshots_are_not(make):
    model = nn.Sequential(Linear(32, 24, blocksize=8, density=0.5))
    twin, update = make(model)
    assert averages_of(model[0]) == []
    update()
    assert averages_of(model[0]) == [twin[0]] * COPIES[make]
    update()
    assert averages_of(model[0]) == []  # told of once


def test_a_copy_that_is_gone_is_forgotten():
    model = nn.Sequential(Linear(32, 24, blocksize=8, density=0.5))
    twin, update = own_average(model)
    update()
    del twin, update
    assert averages_of(model[0]) == []
