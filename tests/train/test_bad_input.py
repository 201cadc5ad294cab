"""Bad calls of the trainers: each is refused by name, with what is allowed."""

import math

import jaxtyping
import pytest
import torch
from torch import nn

from sparsetile.nn import Linear
from sparsetile.train import (
    GMP,
    ITOP,
    MEST,
    SET,
    SNFS,
    ByGradient,
    ByMomentum,
    Constant,
    Cosine,
    DynSparse,
    Evenly,
    Every,
    Method,
    RigL,
    Room,
    Static,
    block_l1,
    sparse_lr,
    uniform,
)


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


def two_optimizers():
    net = layer()
    first = sgd(net)
    method().attach(net, first)
    method().attach(net, sgd(net))
    return first


def lbfgs():
    net = nn.Sequential(nn.Linear(16, 16), layer())
    method().attach(net, torch.optim.LBFGS(net.parameters()))


def foreign_state():
    net = layer()
    optimizer = sgd(net)
    optimizer.state[nn.Parameter(torch.zeros(3))]["history"] = torch.zeros(3)
    method().attach(net, optimizer)


def composed(**choices):
    whole = dict(drop=block_l1, grow=uniform, clock=Every(2, 10), amount=Constant(0.3))
    return Method(**{**whole, **choices})


def grown(taken, count):
    return uniform(Room(layer(), taken), count)


def snfs_without_momentum():
    net = layer()
    optimizer = sgd(net)
    SNFS(total_steps=9, every=1).attach(net, optimizer)
    net(torch.ones(3, 16)).sum().backward()
    optimizer.step()


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
    "every_0": (lambda: Every(0, 10), "steps must be 1 or more, got 0"),
    "every_negative": (lambda: Every(-3, 10), "steps must be 1 or more, got -3"),
    "every_total": (lambda: Every(3, 0), "total_steps must be 1 or more"),
    "evenly_0": (lambda: Evenly(0, 10), "pieces must be 1 or more"),
    "cosine_2": (lambda: Cosine(2.0, 10), "ratio must be between 0 and 1, got 2.0"),
    "cosine_total": (lambda: Cosine(0.5, 0), "total_steps must be 1 or more"),
    "constant_nan": (lambda: Constant(math.nan), "ratio must be between 0 and 1, got nan"),
    "constant_negative": (lambda: Constant(-1), "ratio must be between 0 and 1"),
    "method_drop": (lambda: composed(drop=None), "drop must be a function.*got None"),
    "method_grow": (lambda: composed(grow="uniform"), "grow must be a function"),
    "method_clock": (lambda: composed(clock=Every), r"clock must be an object with due\(step\)"),
    "method_amount": (lambda: composed(amount=0.3), "amount must be an object with count"),
    "method_seed": (lambda: composed(seed=-1), "seed must be 0 to"),
    "block_l1_none": (lambda: block_l1(None), "layer must be a sparse layer.*got NoneType"),
    "uniform_none": (lambda: uniform(None, 1), "room must be a sparsetile.train.Room"),
    "uniform_taken": (lambda: grown([0], 1), "room.taken must be a vector of int64"),
    "uniform_count": (lambda: grown(torch.arange(12), 5), "count must be 0 to 4, got 5"),
    "by_gradient_unheard": (
        lambda: ByGradient()(Room(layer(), torch.tensor([0])), 1),
        "growing by gradient needs a step with a backward pass",
    ),
    "by_momentum_unheard": (
        lambda: ByMomentum()(Room(layer(), torch.tensor([0])), 1),
        "growing by momentum needs steps with a backward pass",
    ),
    "by_gradient_norm": (lambda: ByGradient("l3"), "norm must be one of 'l1', 'l2', 'max'"),
    "candidates_zero": (lambda: ByGradient(candidates=0), "candidates must be above 0 and finite"),
    "candidates_text": (lambda: ByMomentum(candidates="all"), "candidates must be a number"),
    "smoothing_one": (lambda: ByMomentum(1.0), "smoothing must be at least 0 and below 1"),
    "rows_sum": (
        lambda: uniform(Room(layer(), torch.tensor([0])), 2, torch.tensor([1, 0, 0, 0])),
        "rows must add up to count=2, got 1",
    ),
    "rows_full": (
        lambda: uniform(Room(layer(), torch.arange(4)), 1, torch.tensor([1, 0, 0, 0])),
        "rows asks for 1 blocks in block row 0, where 0 positions are free",
    ),
    "set_every": (lambda: SET(total_steps=9, every=0), "every must be 1 or more"),
    "rigl_stop": (lambda: RigL(total_steps=9, stop=0.01), "stop=0.01 is not one step of"),
    "rigl_stop_two": (lambda: RigL(total_steps=9, stop=2), "stop must be between 0 and 1"),
    "itop_grow": (lambda: ITOP(total_steps=9, grow="up"), 'grow must be "random" or "gradient"'),
    "mest_soft": (
        lambda: MEST(total_steps=9, every=3, ratios=(0.1,), soft=True),
        "soft=True needs a last ratio of 0",
    ),
    "mest_soft_rare": (
        lambda: MEST(total_steps=900, every=300, soft=True),
        "the last one comes after step 600, too early: give a smaller every",
    ),
    "mest_none": (lambda: MEST(total_steps=9, every=3, ratios=()), "ratios must have one share"),
    "mest_weight": (
        lambda: MEST(total_steps=9, every=3, gradient_weight=-1),
        "weight must be between 0 and 1",
    ),
    "gmp_density": (lambda: GMP(density=1.5, total_steps=9), "final must be between 0 and 1"),
    "gmp_order": (
        lambda: GMP(density=0.5, total_steps=9, start=0.9, stop=0.5),
        "stop must come after start",
    ),
    "gmp_scope": (
        lambda: GMP(density=0.5, total_steps=9, scope="all"),
        'scope must be "layer" or "global"',
    ),
    "snfs_no_momentum": (snfs_without_momentum, "needs an optimizer that keeps one"),
    "callback": (lambda: attached().add_callback(print), r"callback must have a method on_step"),
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
    "twice": (twice, r"layer '' is attached.*DynSparse; detach\(\)"),
    "two_optimizers": (two_optimizers, r"layer '' is attached.*DynSparse; detach\(\)"),
    "lbfgs": (lbfgs, "optimizer must keep its state by parameter, got LBFGS"),
    "foreign_state": (foreign_state, "optimizer must keep its state by parameter, got SGD"),
    "shared_values": (shared_values, "share their values but not their indices"),
    "state_no_mapping": (lambda: attached().load_state_dict([1]), "state must be what state_dict"),
    "state_empty": (lambda: attached().load_state_dict({}), "state lacks at_start, born, ever"),
    "state_lacks_history": (lambda: loaded(history=None), "state lacks history"),
    "state_version": (lambda: loaded(version=1), "state must be of version 3, got 1"),
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
