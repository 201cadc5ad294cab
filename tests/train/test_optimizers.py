import copy

import pytest
import torch
from torch import nn

from sparsetile.nn import Linear
from sparsetile.train import DynSparse, Static
from sparsetile.train._moments import per_block_state
from sparsetile.train._positions import positions

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-2),
    "nesterov_fused": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, foreach=False),
    "adam_foreach": lambda p: torch.optim.Adam(p, lr=1e-2, foreach=True),
    "adam_fused": lambda p: torch.optim.Adam(p, lr=1e-2, fused=True),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=False),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-2),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-2),
    "rprop": lambda p: torch.optim.Rprop(p, lr=1e-2),
}


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(16, 32)).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_new_blocks_have_zero_state_and_survivors_keep_theirs(name):
    layer = Linear(32, 32, blocksize=4, density=0.3)
    optimizer = OPTIMIZERS[name](layer.parameters())
    trainer = DynSparse(total_steps=10, every=3).attach(layer, optimizer)
    step(layer, optimizer)
    step(layer, optimizer)
    # What the third step gives without an update: the same step on a copy.
    old = positions(layer).tolist()
    twin = Linear(32, 32, pattern=layer.pattern)
    twin.load_state_dict(layer.state_dict())
    shadow = OPTIMIZERS[name](twin.parameters())
    shadow.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    generator = torch.get_rng_state()
    step(twin, shadow)
    torch.set_rng_state(generator)
    step(layer, optimizer)

    assert len(trainer.history) == 1
    place = {position: i for i, position in enumerate(old)}
    ours = [layer.values, *dict(per_block_state(optimizer, layer.values, "layer")).values()]
    theirs = [twin.values, *dict(per_block_state(shadow, twin.values, "layer")).values()]
    assert len(ours) == len(theirs)
    for mine, expected in zip(ours, theirs, strict=True):
        for position, block in zip(positions(layer).tolist(), mine, strict=True):
            if position in place:
                assert torch.equal(block, expected[place[position]])
            else:
                assert not block.any()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_with_every_optimizer(name):
    layer = Linear(32, 32, blocksize=4, density=0.3)
    optimizer = OPTIMIZERS[name](layer.parameters())
    DynSparse(total_steps=8, every=2).attach(layer, optimizer)
    for _ in range(8):
        step(layer, optimizer)
    assert layer.values.isfinite().all()


class Odd(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["row_sums"] = torch.zeros(p.shape[0], 3)
        return super().step(closure)


def test_state_of_another_shape_is_an_error_at_the_first_step():
    layer = Linear(32, 32, blocksize=4, density=0.3)
    optimizer = Odd(layer.parameters(), lr=0.1)
    DynSparse(total_steps=100, every=50).attach(layer, optimizer)
    with pytest.raises(ValueError, match=r"Odd keeps state 'row_sums' of shape \[19, 3\]"):
        step(layer, optimizer)


class Listed(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["history"] = [torch.zeros_like(p)]
        return super().step(closure)


def test_state_that_is_no_tensor_is_an_error_at_the_first_step():
    layer = Linear(32, 32, blocksize=4, density=0.3)
    optimizer = Listed(layer.parameters(), lr=0.1)
    DynSparse(total_steps=100, every=50).attach(layer, optimizer)
    with pytest.raises(ValueError, match="Listed keeps state 'history' of type list for layer ''"):
        step(layer, optimizer)


def test_static_takes_state_of_any_shape():
    layer = Linear(32, 32, blocksize=4, density=0.3)
    optimizer = Odd(layer.parameters(), lr=0.1)
    Static().attach(layer, optimizer)
    step(layer, optimizer)


def test_static_takes_an_optimizer_that_keeps_one_history():
    layer = Linear(32, 32, blocksize=4, density=0.3)
    trainer = Static().attach(layer, torch.optim.LBFGS(layer.parameters()))
    assert list(trainer.layers) == [""]


@pytest.mark.parametrize("name", ["momentum", "adam", "adamw_fused", "rmsprop"])
def test_sparse_training_equals_masked_dense_training_step_by_step(name):
    torch.manual_seed(3)
    sparse = nn.Sequential(
        Linear(32, 48, blocksize=8, density=0.4, dtype=torch.float64),
        nn.Tanh(),
        Linear(48, 32, blocksize=8, density=0.4, dtype=torch.float64),
    )
    dense = nn.Sequential(sparse[0].to_linear(), nn.Tanh(), sparse[2].to_linear())
    masks = {i: sparse[i].pattern.to_mask() for i in (0, 2)}
    optimizers = [OPTIMIZERS[name](model.parameters()) for model in (sparse, dense)]
    Static().attach(sparse, optimizers[0])
    for _ in range(20):
        x = torch.randn(16, 32, dtype=torch.float64)
        losses = []
        for model, optimizer in zip((sparse, dense), optimizers, strict=True):
            optimizer.zero_grad()
            loss = (model(x) - x).square().mean()
            loss.backward()
            for i, mask in masks.items() if model is dense else ():
                model[i].weight.grad *= mask
            optimizer.step()
            losses.append(loss.detach())
        torch.testing.assert_close(losses[0], losses[1], rtol=1e-10, atol=0)
    for i in masks:
        # 20 steps of rounding in float64.
        torch.testing.assert_close(
            sparse[i].to_linear().weight, dense[i].weight, rtol=1e-9, atol=1e-12
        )
