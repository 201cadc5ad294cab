"""What can be seen of a run: counted against what a plain reading of its tensors gives."""

import math

import pytest
import torch
from torch import nn

from sparsetile.matrix import Pattern, random_pattern
from sparsetile.nn import Embedding, Linear, TiedHead, sparsify_
from sparsetile.train import (
    GMP,
    SET,
    DynSparse,
    FlopCount,
    FlopMeter,
    RigL,
    Static,
    bytes_of,
    count_flops,
    watch,
)
from support import without_type_checks


def net(density=0.25, blocksize=4, bias=True):
    model = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 24, bias=bias))
    return sparsify_(model, density=density, blocksize=blocksize)


def run(model, optimizer, steps, width=24):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, width)).square().sum().backward()
        optimizer.step()


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def test_snapshot_tells_what_the_trainer_knows():
    model = net()
    optimizer = adam(model)
    trainer = DynSparse(total_steps=20, every=3).attach(model, optimizer)
    run(model, optimizer, 10)
    seen, last = watch(trainer), trainer.history[-1]
    assert (seen.step, seen.updates) == (10, 3)
    assert (seen.moved, seen.dropped) == (last.total, sum(last.dropped.values()))
    assert seen.wasted == sum(last.wasted.values())
    assert seen.wasted_share == last.wasted_share
    assert seen.coverage == trainer.coverage().mean > seen.density
    assert seen.blocks == sum(layer.nnzb for layer in trainer.layers.values())
    assert {name: layer.density for name, layer in seen.layers.items()} == {"0": 0.25, "2": 0.25}


def test_empty_rows_and_columns_are_those_of_the_dense_weight():
    # Ragged: 10 rows in blocks of 4, 7 columns in blocks of 3.
    layer = Linear(7, 10, pattern=Pattern((10, 7), (4, 3), [0, 1, 1, 2], [0, 2]))
    optimizer = torch.optim.SGD(layer.parameters())
    trainer = Static().attach(layer, optimizer)
    with torch.no_grad():
        layer.values.fill_(1)
        layer.values[0, 1] = 0  # row 1
        layer.values[0, :, 2] = 0  # column 2
    dense = layer.weight.to_dense()
    (seen,) = watch(trainer).layers.values()
    assert (seen.empty_block_rows, seen.empty_block_columns) == (1, 1)
    assert seen.empty_rows == int((dense == 0).all(dim=1).sum()) == 5
    assert seen.empty_columns == int((dense == 0).all(dim=0).sum()) == 4


def test_watching_changes_nothing():
    def weights(looks):
        torch.manual_seed(0)
        model = net()
        optimizer = adam(model)
        trainer = SET(total_steps=12, every=3).attach(model, optimizer)
        for _ in range(12):
            run(model, optimizer, 1)
            if looks:
                watch(trainer)
        return list(model.parameters())

    assert all(torch.equal(a, b) for a, b in zip(weights(True), weights(False), strict=True))


def test_bytes_are_those_of_every_tensor():
    model = nn.Sequential(net(), nn.Linear(24, 5))
    optimizer = adam(model)
    run(model, optimizer, 1)
    memory = bytes_of(model, optimizer)
    sparse = [p for layer in model[0] for p in layer.parameters()]
    weights = sum(p.nbytes for p in sparse)
    assert memory.sparse.weights == memory.sparse.gradients == weights
    assert memory.sparse.optimizer == 2 * weights + 4 * len(sparse)  # moments, step counts
    assert memory.sparse.indices == sum(b.nbytes for b in model.buffers())
    assert memory.rest.weights == memory.rest.gradients == 4 * (24 * 5 + 5)
    assert memory.rest.indices == 0


def test_dense_twin_takes_what_the_dense_model_takes():
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 24))
    sparse = net()
    found = []
    for model in (dense, sparse):
        optimizer = adam(model)
        run(model, optimizer, 1)
        found.append(bytes_of(model, optimizer, layers=lambda m, n: not isinstance(m, nn.ReLU)))
    assert found[0].sparse == found[0].dense == found[1].dense
    assert found[1].share < 0.35


def test_bytes_of_a_trainer_are_those_of_its_model():
    model = nn.Sequential(net(), nn.Linear(24, 5))
    optimizer = adam(model)
    trainer = Static().attach(model, optimizer)
    run(model, optimizer, 1)
    assert watch(trainer).memory == bytes_of(model, optimizer)


def test_shared_parameter_counts_once():
    table = Embedding(40, 16, density=0.5, blocksize=4)
    model = nn.ModuleDict({"table": table, "head": TiedHead(table)})
    assert bytes_of(model).sparse.weights == table.values.nbytes


def test_tied_table_multiplies_in_the_head_only():
    table = Embedding(40, 16, density=0.5, blocksize=4)
    model = nn.ModuleDict({"table": table, "head": TiedHead(table)})
    assert count_flops(model, sequence=3) == FlopCount(head=3 * 3 * 2 * 320)


def test_forward_set_saves_two_of_three_products():
    layer = Linear(16, 16, density=1.0, blocksize=4)
    layer.set_forward_(torch.arange(16) < 4)
    assert count_flops(layer).sparse == 2 * (2 * 64 + 256)


def test_meter_adds_up_the_steps_of_a_model_that_shrinks():
    model = net(density=1.0)
    optimizer = adam(model)
    trainer = GMP(total_steps=12, every=2, density=0.25).attach(model, optimizer)
    meter = trainer.add_callback(FlopMeter(model, batch=8))
    every = []
    for _ in range(12):
        every.append(count_flops(model, batch=8).total)
        run(model, optimizer, 1)
    assert meter.spent.total == sum(every)
    assert every[0] > every[-1]


@pytest.mark.parametrize(("candidates", "values"), [(None, 32 * 24), (1.0, 32 * 6)])
def test_meter_counts_growing_by_gradient(candidates, values):
    model = Linear(24, 32, density=0.25, blocksize=4)
    optimizer = adam(model)
    trainer = RigL(total_steps=100, every=3, candidates=candidates).attach(model, optimizer)
    meter = trainer.add_callback(FlopMeter(model, batch=8))
    run(model, optimizer, 7)
    assert len(trainer.history) == 2
    assert meter.spent.growth == 2 * 2 * 8 * values


def test_meter_goes_on_from_its_state():
    model = net()
    optimizer = adam(model)
    trainer = Static().attach(model, optimizer)
    meter = trainer.add_callback(FlopMeter(model))
    run(model, optimizer, 3)
    other = FlopMeter(model)
    other.load_state_dict(meter.state_dict())
    trainer.add_callback(other)
    run(model, optimizer, 2)
    assert other.spent == meter.spent == FlopCount(sparse=5 * count_flops(model).sparse)


def test_patterns_set_by_hand_are_seen():
    layer = Linear(16, 16, density=0.25, blocksize=4)
    trainer = Static().attach(layer, torch.optim.SGD(layer.parameters()))
    layer.set_pattern_(random_pattern(16, 16, blocksize=4, density=0.5, seed=1))
    assert watch(trainer).density == 0.5


BAD = {
    "watch": (lambda: watch(nn.Linear(2, 2)), "trainer must be what attach"),
    "bytes_model": (lambda: bytes_of(3), "model must be a torch.nn.Module, got int"),
    "bytes_optimizer": (lambda: bytes_of(nn.Linear(2, 2), 3), "optimizer must be a torch optim"),
    "bytes_layers": (lambda: bytes_of(nn.Linear(2, 2), layers="0"), "layers must be a function"),
    "meter_model": (lambda: FlopMeter(None), "model must be a torch.nn.Module"),
    "meter_batch": (lambda: FlopMeter(nn.Linear(2, 2), batch=0), "batch must be 1 or more"),
    "meter_nan": (lambda: FlopMeter(nn.Linear(2, 2), sequence=math.nan), "sequence must be an int"),
    "meter_state": (
        lambda: FlopMeter(nn.Linear(2, 2)).load_state_dict({"step": 1}),
        "state lacks sparse, dense",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_call_of_watching_is_refused(case):
    call, message = BAD[case]
    with without_type_checks(), pytest.raises((TypeError, ValueError), match=message):
        call()
