"""Bad calls of the trainers: each is refused by name, with what is allowed."""

import math

import jaxtyping
import pytest
import torch
from torch import nn

from sparsetile.nn import Linear
from sparsetile.train import DynSparse, Static, sparse_lr


@pytest.fixture(autouse=True)
def _no_type_checker():
    # What a user meets are the library's own messages.
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def layer(**kwargs):
    return Linear(16, 16, blocksize=4, density=0.5, **kwargs)


def sgd(module):
    return torch.optim.SGD(module.parameters(), lr=0.1)


def method():
    return DynSparse(total_steps=10, every=2)


def attached():
    net = layer()
    return Static().attach(net, sgd(net))


def twice():
    net = layer()
    optimizer = sgd(net)
    method().attach(net, optimizer)
    method().attach(net, optimizer)


def shared_values():
    net = nn.Sequential(layer(), layer())
    net[1].values = net[0].values
    method().attach(net, sgd(net))


def loaded(**changes):
    state = {**attached().state_dict(), **changes}
    attached().load_state_dict({name: value for name, value in state.items() if value is not None})


BAD = {
    "total_steps_zero": (lambda: DynSparse(total_steps=0), "total_steps must be 1 or more"),
    "total_steps_float": (lambda: DynSparse(total_steps=1e3), "total_steps must be an int"),
    "total_steps_bool": (lambda: DynSparse(total_steps=True), "total_steps must be an int"),
    "too_short": (lambda: DynSparse(total_steps=50), "updates=80 does not fit.*at most 50"),
    "updates_zero": (lambda: DynSparse(total_steps=50, updates=0), "updates must be 1 or more"),
    "updates_text": (lambda: DynSparse(total_steps=50, updates="5"), "updates must be an int"),
    "every_zero": (lambda: DynSparse(total_steps=50, every=0), "every must be 1 or more"),
    "both": (lambda: DynSparse(total_steps=50, updates=5, every=5), "updates or every, not both"),
    "ratio_nan": (
        lambda: DynSparse(total_steps=100, prune_ratio=math.nan),
        "prune_ratio must be between 0 and 1",
    ),
    "ratio_above_one": (
        lambda: DynSparse(total_steps=100, prune_ratio=1.1),
        "prune_ratio must be between 0 and 1",
    ),
    "ratio_text": (lambda: DynSparse(total_steps=100, prune_ratio="1"), "prune_ratio must be a"),
    "seed_negative": (lambda: DynSparse(total_steps=100, seed=-1), "seed must be 0 to"),
    "seed_float": (lambda: DynSparse(total_steps=100, seed=0.5), "seed must be an int"),
    "no_model": (lambda: method().attach([layer()], sgd(layer())), "model must be a torch.nn.Mod"),
    "no_optimizer": (lambda: method().attach(layer(), 0.1), "optimizer must be a torch optimizer"),
    "dense_model": (
        lambda: method().attach(nn.Linear(4, 4), sgd(nn.Linear(4, 4))),
        r"no trained sparse layer; call sparsify_",
    ),
    "frozen_model": (
        lambda: method().attach(layer().requires_grad_(False), sgd(layer())),
        "no trained sparse layer",
    ),
    "other_optimizer": (
        lambda: method().attach(layer(), sgd(layer())),
        "optimizer does not hold the values of layer ''; build the optimizer after",
    ),
    "meta_model": (
        lambda: method().attach(layer(device="meta"), sgd(layer())),
        "meta device",
    ),
    "twice": (twice, "attached to this optimizer already"),
    "shared_values": (shared_values, "share their values but not their indices"),
    "state_no_mapping": (lambda: attached().load_state_dict([1]), "state must be what state_dict"),
    "state_empty": (lambda: attached().load_state_dict({}), "state lacks ever, generator"),
    "state_lacks_history": (lambda: loaded(history=None), "state lacks history"),
    "state_version": (lambda: loaded(version=2), "state must be of version 1, got 2"),
    "state_other_layers": (
        lambda: loaded(ever={"other": torch.zeros(16, dtype=torch.bool)}),
        "other sparse layers",
    ),
    "state_other_size": (
        lambda: loaded(ever={"": torch.zeros(15, dtype=torch.bool)}),
        "other sparse layers",
    ),
    "lr_negative": (lambda: sparse_lr(-1.0, 0.5), "dense_lr must be finite and 0 or more"),
    "lr_nan": (lambda: sparse_lr(math.nan, 0.5), "dense_lr must be finite and 0 or more"),
    "lr_text": (lambda: sparse_lr("1", 0.5), "dense_lr must be a number"),
    "sparsity_above_one": (lambda: sparse_lr(1.0, 90), "sparsity must be between 0 and 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_call_is_refused_with_its_argument_named(case):
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError), match=message):
        call()
