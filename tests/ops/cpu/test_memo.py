"""What is remembered of tensors is forgotten when they change or die."""

import pytest
import torch

import sparsetile as st
from sparsetile.ops.cpu._memo import TensorMemo


def test_made_once_while_the_tensor_stays():
    memo, made = TensorMemo(most=8), []
    t = torch.zeros(4)
    for _ in range(3):
        memo.get((t,), "x", lambda: made.append(1))
    memo.get((t.detach(),), "x", lambda: made.append(1))
    assert len(made) == 1


def test_made_again_after_a_change_in_place():
    memo = TensorMemo(most=8)
    t = torch.zeros(4)
    assert memo.get((t,), "x", lambda: t.sum().item()) == 0
    t.add_(1)
    assert memo.get((t,), "x", lambda: t.sum().item()) == 4


def test_a_new_tensor_at_an_old_address_is_another():
    memo, addresses = TensorMemo(most=8), set()
    for number in range(50):
        t = torch.full((1000,), float(number))
        addresses.add(t.data_ptr())
        assert memo.get((t,), "x", lambda t=t: t[0].item()) == number
        del t
    assert len(addresses) < 50  # the allocator did hand out an address twice


def test_inference_tensors_are_not_remembered():
    memo = TensorMemo(most=8)
    with torch.inference_mode():
        t = torch.zeros(4)
        assert memo.get((t,), "x", lambda: t.sum().item()) == 0
        t.add_(1)
        assert memo.get((t,), "x", lambda: t.sum().item()) == 4


def test_the_memory_is_bounded():
    memo = TensorMemo(most=3)
    alive = [torch.zeros(1) for _ in range(10)]
    for t in alive:
        memo.get((t,), "x", object)
    assert len(memo._kept) == 3


def test_a_change_in_place_replaces_what_was_made():
    memo = TensorMemo(most=100)
    t = torch.zeros(4)
    for _ in range(5):
        t.add_(1)
        memo.get((t,), "x", object)
    assert len(memo._kept) == 1


def test_what_was_made_of_dead_tensors_goes_with_the_next():
    memo = TensorMemo(most=100)
    for _ in range(5):
        memo.get((torch.zeros(4),), "x", object)
    assert len(memo._kept) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_arranged_values_follow_writes_that_count_no_version(dtype):
    layer = st.nn.Linear(96, 80, blocksize=1, density=0.3, bias=False).to(dtype)
    x, dy = torch.randn(40, 96).to(dtype).requires_grad_(), torch.randn(40, 80).to(dtype)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True)

    def check():
        dense = layer.weight.to_dense().detach()
        (dx,) = torch.autograd.grad(layer(x), x, dy)
        torch.testing.assert_close(layer(x), x @ dense.T, rtol=2e-2, atol=2e-2)
        torch.testing.assert_close(dx, dy @ dense, rtol=2e-2, atol=2e-2)

    for _ in range(3):
        optimizer.zero_grad()
        layer(x).square().mean().backward()
        optimizer.step()  # the fused kind counts no version
        check()
    layer.requires_grad_(False)
    for write in (torch.Tensor.neg_, lambda values: values.mul_(0.5)):
        for _ in range(3):
            check()
        write(layer.values.data)
