"""Layers that use a part of what they store: which function, which gradients, and bookkeeping."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from sparsetile.matrix import random_pattern
from sparsetile.nn import Linear, densify_, sparsify_
from sparsetile.ops import backend
from support import without_type_checks


def layer(used=slice(0, None, 2), **kwargs):
    """A layer of 6 blocks that uses every other one."""
    made = Linear(20, 12, blocksize=4, density=0.4, **kwargs)
    mask = torch.zeros(made.nnzb, dtype=torch.bool)
    mask[used] = True
    return made.set_forward_(mask)


def dense_weight(sparse):
    """The weight of the product, written out."""
    whole = Linear(20, 12, pattern=sparse.pattern, dtype=sparse.values.dtype)
    whole.values.data = sparse.values.data * sparse.used[:, None, None]
    return whole.weight.to_dense().detach()


@pytest.mark.parametrize("used", [slice(0, None, 2), slice(0, 0), slice(None)], ids=str)
def test_product_uses_the_set_and_all_blocks_have_gradients(used):
    sparse, x = layer(used), torch.randn(5, 20, requires_grad=True)
    weight = dense_weight(sparse)
    y = sparse(x)
    torch.testing.assert_close(y, x @ weight.T + sparse.bias)
    y.sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(5, 12) @ weight)
    assert (sparse.values.grad != 0).all()


def test_what_is_stored_and_what_is_used_are_told_apart():
    sparse = layer()
    assert (sparse.nnzb, sparse.pattern.nnzb, sparse.weight.nnzb) == (6, 6, 3)
    assert sparse.used.tolist() == [True, False] * 3
    assert sparse.density == 0.4
    assert repr(sparse).endswith("density=0.40, nnzb=6, forward_nnzb=3)")
    assert "forward" not in repr(sparse.set_forward_(None)) and sparse.used is None


def test_weight_and_dense_twins_are_of_the_function_computed():
    sparse, x = layer(), torch.randn(5, 20)
    want, weight = sparse(x), dense_weight(sparse)
    assert torch.equal(sparse.weight.to_dense(), weight)
    assert torch.equal(sparse.to_linear().weight, weight)
    model = nn.Sequential(sparse)
    torch.testing.assert_close(densify_(model)(x), want)
    sparse.weight.to_dense().sum().backward()
    used = (sparse.values.grad != 0).flatten(1).any(1)
    assert torch.equal(used, sparse.used)


def test_only_the_used_blocks_can_be_kept():
    sparse, x = layer(), torch.randn(5, 20)
    want = sparse(x)
    sparse.set_pattern_(sparse.weight.pattern)
    assert sparse.nnzb == 3 and sparse.forward_blocks is None
    torch.testing.assert_close(sparse(x), want)


def test_another_set_of_the_same_size_is_written_in_place():
    sparse = layer()
    before = [sparse.forward_blocks, sparse._forward_crow, sparse._forward_col]
    sparse.set_forward_(~sparse.used)
    after = [sparse.forward_blocks, sparse._forward_crow, sparse._forward_col]
    assert all(a is b for a, b in zip(before, after, strict=True))
    assert torch.equal(sparse.weight.to_dense(), dense_weight(sparse))


def test_set_pattern_uses_all_blocks_again():
    sparse = layer().set_pattern_(random_pattern(12, 20, blocksize=4, density=0.6, seed=1))
    assert sparse.forward_blocks is None
    assert torch.equal(sparse.to_linear().weight, sparse.weight.to_dense())


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda sparse: pickle.loads(pickle.dumps(sparse)),
    "double and back": lambda sparse: copy.deepcopy(sparse).double().float(),
    "type": lambda sparse: copy.deepcopy(sparse).type(torch.float64).type(torch.float32),
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES.keys())
def test_copies_use_the_same_blocks(copied):
    sparse, x = layer(), torch.randn(5, 20)
    other = copied(sparse)
    assert other.forward_blocks.dtype == torch.int32
    torch.testing.assert_close(other(x), sparse(x))
    other.set_forward_(None)
    assert len(sparse.forward_blocks) == 3


def test_state_names_the_set_only_where_there_is_one():
    assert "forward_blocks" in layer().state_dict()
    names = layer().set_forward_(None).state_dict().keys()
    assert set(names) == {"values", "crow_indices", "col_indices", "bias"}


def plain():
    return Linear(20, 12, blocksize=4, density=0.2)


def saved(sparse):
    """A layer's state as it comes from a file."""
    file = io.BytesIO()
    torch.save(sparse.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("other", [plain, layer, lambda: layer(slice(0, 1))])
def test_checkpoint_brings_its_set(other, assign):
    sparse, other, x = layer(), other(), torch.randn(5, 20)
    other.load_state_dict(saved(sparse), assign=assign)
    assert torch.equal(other.forward_blocks, sparse.forward_blocks)
    assert torch.equal(other(x), sparse(x))
    assert torch.equal(other.weight.to_dense(), sparse.weight.to_dense())


def test_checkpoint_without_a_set_uses_all_blocks():
    sparse, other, x = plain(), layer(), torch.randn(5, 20)
    other.load_state_dict(saved(sparse))
    assert other.forward_blocks is None and torch.equal(other(x), sparse(x))
    dense = nn.Linear(20, 12)
    with pytest.warns(UserWarning, match="is dense"):
        other = layer()
        other.load_state_dict(dense.state_dict())
    assert other.forward_blocks is None


def test_layer_on_the_meta_device_takes_a_checkpoint():
    sparse, x = layer(), torch.randn(5, 20)
    assigned, emptied = (Linear(20, 12, pattern=sparse.pattern, device="meta") for _ in range(2))
    assigned.load_state_dict(saved(sparse), assign=True)
    emptied.to_empty(device="cpu").load_state_dict(saved(sparse))
    assert torch.equal(assigned(x), sparse(x)) and torch.equal(emptied(x), sparse(x))


def test_emptied_layers_follow_no_rubbish():
    other = copy.deepcopy(layer()).to("meta").to_empty(device="cpu")
    with backend("cpu"), pytest.raises(ValueError, match="crow_indices must rise"):
        other(torch.ones(2, 20))


def test_compiled_layer_follows_the_set_without_compiling_again():
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    sparse, x = layer(), torch.randn(5, 20)
    compiled = torch.compile(sparse, fullgraph=True, backend=counter)
    with without_type_checks():
        for _ in range(3):
            y = compiled(x)
            y.sum().backward()
            torch.testing.assert_close(y, x @ dense_weight(sparse).T + sparse.bias)
            sparse.set_forward_(~sparse.used)
    assert counter.frame_count == 1
    torch._dynamo.reset()


def test_trains_as_a_masked_dense_layer_does():
    sparse = layer(dtype=torch.float64)
    mask = sparse.used
    dense = sparse.to_linear()
    ours = torch.optim.SGD(sparse.parameters(), lr=0.1)
    theirs = torch.optim.SGD(dense.parameters(), lr=0.1)
    used = dense.weight.detach() != 0
    for _ in range(5):
        x = torch.randn(8, 20, dtype=torch.float64)
        for module, optimizer in ((sparse, ours), (dense, theirs)):
            optimizer.zero_grad()
            module(x).square().sum().mul(0.01).backward()
            if module is dense:
                dense.weight.grad *= used
            optimizer.step()
    torch.testing.assert_close(sparse.to_linear().weight, dense.weight)
    assert mask.sum() == 3


def test_models_carry_sets_through_surgery_and_state():
    model = sparsify_(nn.Sequential(nn.Linear(32, 32), nn.ReLU()), density=0.5, blocksize=8)
    model[0].set_forward_(torch.arange(8) < 4)
    other = sparsify_(nn.Sequential(nn.Linear(32, 32), nn.ReLU()), density=0.5, blocksize=8)
    other.load_state_dict(model.state_dict())
    x = torch.randn(4, 32)
    assert torch.equal(model(x), other(x))


BAD_SETS = {
    "list": ([0, 1], TypeError, "used must be a bool tensor.*got list"),
    "indices": (torch.tensor([0, 1]), TypeError, "got torch.int64"),
    "short": (torch.ones(3, dtype=torch.bool), ValueError, r"shape \[6\].*got \[3\]"),
    "matrix": (torch.ones(6, 1, dtype=torch.bool), ValueError, r"shape \[6\].*got \[6, 1\]"),
    "meta": (torch.ones(6, dtype=torch.bool, device="meta"), ValueError, "meta device"),
}


@pytest.mark.parametrize("used, error, words", BAD_SETS.values(), ids=BAD_SETS.keys())
def test_bad_sets_are_refused(used, error, words):
    sparse = layer()
    before = sparse.forward_blocks.clone()
    with without_type_checks(), pytest.raises(error, match=words):
        sparse.set_forward_(used)
    assert torch.equal(sparse.forward_blocks, before)


BAD_ENTRIES = {
    "text": ("all", "forward_blocks must be a tensor"),
    "float": (torch.tensor([0.0]), "forward_blocks must be int32, got torch.float32"),
    "matrix": (torch.tensor([[0]]), "must list some of the 6 stored blocks"),
    "twice": (torch.tensor([1, 1]), "ascending"),
    "descending": (torch.tensor([2, 1]), "ascending"),
    "negative": (torch.tensor([-1]), "must list some of the 6 stored blocks"),
    "beyond": (torch.tensor([6]), "must list some of the 6 stored blocks"),
}


@pytest.mark.parametrize("entry, words", BAD_ENTRIES.values(), ids=BAD_ENTRIES.keys())
def test_bad_checkpoints_are_refused_whole(entry, words):
    sparse, state = layer(), dict(layer().state_dict(), forward_blocks=entry)
    before = {name: value.clone() for name, value in sparse.state_dict().items()}
    with pytest.raises(RuntimeError, match=words):
        sparse.load_state_dict(state)
    for name, value in sparse.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_set_without_its_values_is_refused():
    with pytest.raises(RuntimeError, match="save and load it together with values"):
        layer().load_state_dict({"forward_blocks": torch.tensor([0])}, strict=False)


def test_some_blocks_are_drawn_anew_as_first_values_are():
    sparse = Linear(22, 10, blocksize=4, density=0.6)
    before, blocks = sparse.values.detach().clone(), torch.tensor([1, 4])
    sparse.redraw_(blocks, torch.Generator().manual_seed(0))
    changed = (sparse.values != before).flatten(1).any(1)
    assert changed.nonzero()[:, 0].tolist() == [1, 4]
    rows, (crow, col) = sparse.pattern.row_indices, (sparse.crow_indices, sparse.col_indices)
    for block in blocks.tolist():
        row, column = int(rows[block]), int(col[block])
        stored = col[crow[row] : crow[row + 1]]
        fan = sum(min(4, 22 - 4 * int(c)) for c in stored)
        new = sparse.values[block]
        assert 0.5 * fan**-0.5 < new.abs().max() <= fan**-0.5
        assert not new[10 - 4 * row :].any() and not new[:, 22 - 4 * column :].any()
    again = copy.deepcopy(sparse).redraw_(blocks, torch.Generator().manual_seed(0))
    assert torch.equal(again.values, sparse.values)
