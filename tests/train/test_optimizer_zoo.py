"""Rarer optimizers: state moves with its blocks, and a resumed run is the same run."""

import copy

import pytest
import torch
from torch import nn

from sparsetile.nn import Linear
from sparsetile.train import SET, DynSparse

TOTAL = 9


class Lion(torch.optim.Optimizer):
    """Steps by the sign of a smoothed gradient (Chen et al., 2023)."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99)):
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            fast, slow = group["betas"]
            for p in group["params"]:
                average = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.sub_(average.lerp(p.grad, 1 - fast).sign(), alpha=group["lr"])
                average.lerp_(p.grad, 1 - slow)


def hf_adafactor(params, **options):
    from transformers.optimization import Adafactor

    return Adafactor(params, **options)


fixed = dict(scale_parameter=False, relative_step=False, lr=1e-2)
ZOO = {
    "lion": lambda p: Lion(p, lr=1e-2),
    "radam": lambda p: torch.optim.RAdam(p, lr=1e-2),
    "radam_foreach": lambda p: torch.optim.RAdam(p, lr=1e-2, foreach=True),
    "adamax": lambda p: torch.optim.Adamax(p, lr=1e-2),
    "asgd": lambda p: torch.optim.ASGD(p, lr=1e-1, t0=2),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
    "rprop": lambda p: torch.optim.Rprop(p, lr=1e-2),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-2),
    "adagrad_fused": lambda p: torch.optim.Adagrad(p, lr=1e-2, fused=True),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-2),
    "hf_adafactor": lambda p: hf_adafactor(p),
    "hf_adafactor_fixed": lambda p: hf_adafactor(p, **fixed),
    "hf_adafactor_momentum": lambda p: hf_adafactor(p, beta1=0.9, **fixed),
    "amsgrad_foreach": lambda p: torch.optim.AdamW(p, lr=1e-2, amsgrad=True, foreach=True),
    "sgd_fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
}  # fmt: skip
# Sums over rows and columns have other shapes in blocks of one row, and of unequal sides.
CASES = [(name, 4) for name in ZOO]
CASES += [(name, b) for name in ("lion", "adafactor", "hf_adafactor") for b in (1, (2, 8))]


def start(name, method, blocksize=4, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(
        Linear(32, 24, blocksize=blocksize, density=0.3),
        nn.Tanh(),
        Linear(24, 32, blocksize=blocksize, density=0.3),
    )
    optimizer = ZOO[name](model.parameters())
    return model, optimizer, method.attach(model, optimizer)


def train(model, optimizer, first, last):
    for step in range(first, last):
        x = torch.randn(16, 32, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()


def per_block(layer, optimizer):
    """Values and state by name, those that hold something for each block."""
    state = {"values": layer.values.detach(), **optimizer.state[layer.values]}
    return {
        key: tensor
        for key, tensor in state.items()
        if isinstance(tensor, torch.Tensor) and tensor.shape[:1] == (layer.nnzb,)
    }


def positions(layer):
    pattern = layer.pattern
    return pattern.row_indices.long() * pattern.grid[1] + pattern.col_indices


@pytest.mark.parametrize(("name", "blocksize"), CASES, ids=str)
def test_survivors_keep_all_their_state_and_new_blocks_have_none(name, blocksize):
    model, optimizer, trainer = start(name, SET(total_steps=TOTAL, every=4), blocksize)
    train(model, optimizer, 0, 3)
    # What the fourth step gives without an update.
    twin = copy.deepcopy(model)
    shadow = ZOO[name](twin.parameters())
    shadow.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(twin, shadow, 3, 4)
    train(model, optimizer, 3, 4)
    assert trainer.history[0].total > 0
    for layer, before in zip(model[::2], twin[::2], strict=True):
        at, old = positions(layer), positions(before)
        place = torch.searchsorted(old, at).clamp(max=len(old) - 1)
        kept = old[place] == at
        assert not kept.all()
        now, then = per_block(layer, optimizer), per_block(before, shadow)
        assert now.keys() == then.keys() and len(now) > 1
        for key, tensor in now.items():
            assert torch.equal(tensor[kept], then[key][place[kept]]), key
            assert not tensor[~kept].any(), key


# One of each kind of state.
@pytest.mark.parametrize(
    "name", ["lion", "radam_foreach", "asgd", "rprop", "adafactor", "hf_adafactor_momentum"]
)
def test_a_resumed_run_is_bit_identical(name):
    method = DynSparse(total_steps=TOTAL, every=2)
    model, optimizer, trainer = start(name, method)
    train(model, optimizer, 0, 4)  # up to an update, and including it
    saved = copy.deepcopy([model.state_dict(), optimizer.state_dict()])
    train(model, optimizer, 4, TOTAL)
    again, its_optimizer, its_trainer = start(name, method, seed=1)
    again.load_state_dict(saved[0])
    its_optimizer.load_state_dict(saved[1])
    train(again, its_optimizer, 4, TOTAL)
    assert its_trainer.history == trainer.history
    for key, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], tensor), key


def test_muon_is_for_matrices_and_says_so():
    with pytest.raises(ValueError, match="only supports 2D parameters"):
        torch.optim.Muon(Linear(32, 32, bias=False, density=0.5).parameters())


class Shampoo(torch.optim.SGD):
    """Keeps a matrix for a whole parameter, as second-order methods do."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["preconditioner"] = torch.eye(p.shape[-1])
        return super().step(closure)


def test_state_of_a_whole_parameter_is_an_error_that_names_it():
    layer = Linear(32, 32, blocksize=4, density=0.3)
    optimizer = Shampoo(layer.parameters(), lr=0.1)
    DynSparse(total_steps=TOTAL, every=4).attach(layer, optimizer)
    with pytest.raises(ValueError, match=r"Shampoo keeps state 'preconditioner' of shape \[4, 4\]"):
        layer(torch.randn(2, 32)).sum().backward()
        optimizer.step()
