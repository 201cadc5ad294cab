"""Rows of a block-sparse table: against a dense table, in values and in every derivative."""

import pytest
import torch
from torch.nn import functional as F

from sparsetile.matrix import random_pattern
from sparsetile.ops import embedding, embedding_from_indices, embedding_grad
from support import SHAPES, some_pattern, without_type_checks
from support_ops import blocks_of, dense_of, dense_twin, most_bytes, values_for

OPS = torch.ops.sparsetile
TABLES = [kind for kind in SHAPES if kind != "no_rows"]
PATTERN = random_pattern(23, 37, blocksize=(5, 3), density=0.4, seed=0)
INDICES = PATTERN.crow_indices, PATTERN.col_indices


def some_rows(m, *shape):
    return torch.randint(m, shape)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", TABLES)
def test_rows_and_gradient_are_those_of_the_dense_table(kind, dtype):
    pattern = some_pattern(kind)
    values = values_for(pattern, dtype).requires_grad_()
    rows = some_rows(pattern.shape[0], 4, 7)  # some come several times
    y = embedding(rows, values, pattern)
    table = dense_of(dense_twin(values, pattern), pattern).requires_grad_()
    want = F.embedding(rows, table)
    assert y.dtype == dtype
    assert y.is_contiguous()
    assert torch.equal(y.double(), want)
    dy = torch.randn(*y.shape).to(dtype)
    y.backward(dy)
    want.backward(dy.double())
    grad = blocks_of(table.grad, pattern)
    eps = torch.finfo(torch.float32 if dtype != torch.float64 else dtype).eps
    tolerance = 50 * eps + torch.finfo(dtype).eps
    torch.testing.assert_close(values.grad.double(), grad, rtol=tolerance, atol=tolerance)


# torch's forward mode still imports what torch itself deprecates.
@pytest.mark.filterwarnings("ignore:`torch.jit.:DeprecationWarning")
@pytest.mark.parametrize("padding", [None, 3])
def test_all_derivatives(padding):
    values = values_for(PATTERN, torch.float64, padding=0.0).requires_grad_()
    rows = torch.tensor([[3, 3, 22], [0, 17, 3]])

    def look_up(v):
        return embedding(rows, v, PATTERN, padding_idx=padding)

    if padding is None:
        torch.autograd.gradcheck(look_up, (values,), check_forward_ad=True, fast_mode=True)
    torch.autograd.gradgradcheck(lambda v: look_up(v * v), (values,), fast_mode=True)
    dy = torch.randn(2, 3, 37, dtype=torch.float64)
    (got,) = torch.autograd.grad(look_up(values), values, dy)
    table = dense_of(values.detach(), PATTERN).requires_grad_()
    (want,) = torch.autograd.grad(F.embedding(rows, table, padding), table, dy)
    torch.testing.assert_close(got, blocks_of(want, PATTERN))
    _, tangent = torch.func.jvp(look_up, (values.detach(),), (torch.ones_like(values),))
    assert bool((tangent[rows == 3] == 0).all()) == (padding == 3)


def test_vmap_over_rows_and_over_tables():
    rows, values = some_rows(23, 4, 6), torch.randn(4, PATTERN.nnzb, 5, 3)
    one = torch.func.vmap(lambda i: embedding_from_indices(i, values[0], *INDICES, (23, 37)))(rows)
    assert torch.equal(one, embedding(rows, values[0], PATTERN))

    def loss(v, i):
        return embedding_from_indices(i, v, *INDICES, (23, 37)).square().sum()

    grads = torch.func.vmap(torch.func.grad(loss))(values, rows)
    each = [torch.func.grad(loss)(v, i) for v, i in zip(values, rows, strict=True)]
    torch.testing.assert_close(grads, torch.stack(each))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_no_row_and_one_row(shape):
    values = values_for(PATTERN, padding=0.0).requires_grad_()
    y = embedding(torch.zeros(shape, dtype=torch.int32), values, PATTERN)
    assert y.shape == (*shape, 37)
    y.sum().backward()
    assert torch.isfinite(values.grad).all()


CASES = {
    "embedding": (
        OPS.embedding.default,
        lambda v: (some_rows(23, 2, 5), v, *INDICES, 23, 37, 4),
    ),
    "embedding_grad": (
        OPS.embedding_grad.default,
        lambda v: (some_rows(23, 2, 5), torch.randn(2, 5, 37, requires_grad=True), *INDICES, 5, 3),
    ),
}


@pytest.mark.parametrize("op, make", CASES.values(), ids=CASES.keys())
def test_operators_pass_opcheck(op, make):
    args = make(values_for(PATTERN, padding=0.0).requires_grad_())
    assert set(torch.library.opcheck(op, args).values()) == {"SUCCESS"}


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
def test_lookups_compile_whole_forward_and_backward(dynamic):
    values, rows = values_for(PATTERN, padding=0.0).requires_grad_(), some_rows(23, 2, 9)

    def look_up(i, v):
        return embedding(i, v, PATTERN, padding_idx=2)

    torch._dynamo.reset()
    with without_type_checks():
        compiled = torch.compile(look_up, fullgraph=True, backend="aot_eager", dynamic=dynamic)
        y, want = compiled(rows, values), look_up(rows, values)
        assert torch.equal(y, want)
        (got,) = torch.autograd.grad(y.sin().sum(), values)
    torch._dynamo.reset()
    assert torch.equal(got, torch.autograd.grad(want.sin().sum(), values)[0])


def test_autocast_leaves_rows_as_torch_does():
    values = values_for(PATTERN, padding=0.0)
    with torch.autocast("cpu", torch.bfloat16):
        assert embedding(some_rows(23, 4), values, PATTERN).dtype == torch.float32


def test_nothing_of_the_tables_size_is_made():
    pattern = random_pattern(4096, 256, blocksize=16, density=0.02, seed=0)
    values, rows = values_for(pattern).requires_grad_(), some_rows(4096, 32)
    table = 4096 * 256 * 4
    assert most_bytes(lambda: embedding(rows, values, pattern).sum().backward()) < table // 8


def test_the_gradient_can_be_taken_at_other_blocks():
    rows, dy = some_rows(23, 2, 9), torch.randn(2, 9, 37)
    other = random_pattern(23, 37, blocksize=(4, 7), density=0.5, seed=3)
    table = torch.zeros(23, 37, requires_grad=True)
    F.embedding(rows, table).backward(dy)
    torch.testing.assert_close(embedding_grad(rows, dy, other), blocks_of(table.grad, other))


BAD = {
    "gradient's shape": (
        lambda v: embedding_grad(torch.tensor([1]), torch.ones(1, 36), PATTERN),
        ValueError,
        r"dy has shape \[1, 36\], but it must be \[1, 37\]",
    ),
    "gradient's row": (
        lambda v: embedding_grad(torch.tensor([23]), torch.ones(1, 37), PATTERN),
        IndexError,
        "row 23",
    ),
    "float rows": (
        lambda v: embedding(torch.ones(3), v, PATTERN),
        TypeError,
        "indices is torch.fl",
    ),
    "a list": (lambda v: embedding([1], v, PATTERN), TypeError, "indices must be a torch.Tensor"),
    "too large": (
        lambda v: embedding(torch.tensor([23]), v, PATTERN),
        IndexError,
        "row 23.*0 to 22",
    ),
    "negative": (
        lambda v: embedding(torch.tensor([-1]), v, PATTERN),
        IndexError,
        "row -1 was asked",
    ),
    "values": (
        lambda v: embedding(torch.tensor([1]), v[1:], PATTERN),
        ValueError,
        "values has shape",
    ),
    "no pattern": (lambda v: embedding(torch.tensor([1]), v, None), TypeError, "pattern must be"),
    "padding": (
        lambda v: embedding(torch.tensor([1]), v, PATTERN, padding_idx=23),
        ValueError,
        "padding_idx is 23, but the table has 23 rows",
    ),
    "device": (
        lambda v: embedding(torch.ones(3, dtype=torch.long, device="meta"), v, PATTERN),
        ValueError,
        "indices is on meta",
    ),
}


@pytest.mark.parametrize("call, error, message", BAD.values(), ids=BAD.keys())
def test_bad_lookups_are_refused_in_words(call, error, message):
    with without_type_checks(), pytest.raises(error, match=message):
        call(values_for(PATTERN))
