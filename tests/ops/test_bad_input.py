"""Bad calls: each raises a TypeError or ValueError that names the argument and what is allowed."""

import numpy as np
import pytest
import torch

from sparsetile.matrix import Pattern, random_pattern
from sparsetile.ops import backend, linear, linear_from_indices, sddmm, spmm
from support import without_type_checks

P = random_pattern(8, 12, blocksize=4, density=0.5, seed=0)  # 3 blocks
RAGGED = random_pattern(7, 11, blocksize=4, density=0.5, seed=0)


def ones(*shape, **kwargs):
    return torch.ones(shape, **kwargs)


def blocks(*shape, **kwargs):
    return torch.ones(shape or (3, 4, 4), **kwargs)


def indices(x=None, values=None, crow=P.crow_indices, col=P.col_indices, shape=(8, 12), bias=None):
    x = ones(2, 12) if x is None else x
    values = blocks() if values is None else values
    return linear_from_indices(x, values, crow, col, shape, bias)


F64, INT, META = torch.float64, torch.int64, torch.device("meta")

# id: (call, exception, argument named, what the message must say besides)
CASES = {
    "x is a list": (lambda: linear([[1.0] * 12], blocks(), P), TypeError, "x", "torch.Tensor"),
    "x is numpy": (lambda: linear(np.ones((2, 12)), blocks(), P), TypeError, "x", "ndarray"),
    "x is None": (lambda: linear(None, blocks(), P), TypeError, "x", "NoneType"),
    "x is integer": (
        lambda: linear(ones(2, 12, dtype=INT), blocks(), P),
        TypeError,
        "x",
        "float32",
    ),
    "x is bool": (lambda: linear(ones(2, 12) > 0, blocks(), P), TypeError, "x", "bool"),
    "x is complex": (lambda: linear(ones(2, 12) * 1j, blocks(), P), TypeError, "x", "complex64"),
    "x is sparse": (lambda: linear(ones(2, 12).to_sparse(), blocks(), P), TypeError, "x", "layout"),
    "x is meta": (lambda: linear(ones(2, 12, device=META), blocks(), P), ValueError, "x", "meta"),
    "x is 0-d": (lambda: linear(torch.tensor(1.0), blocks(), P), ValueError, "x", "[..., k]"),
    "x has a wrong size": (lambda: linear(ones(2, 8), blocks(), P), ValueError, "x", "12"),
    "x is transposed": (lambda: linear(ones(12, 2), blocks(), P), ValueError, "x", "12"),
    "x has another dtype": (
        lambda: linear(ones(2, 12, dtype=F64), blocks(), P),
        TypeError,
        "values",
        "float64",
    ),
    "values are a list": (lambda: linear(ones(2, 12), [1.0], P), TypeError, "values", "list"),
    "values are None": (lambda: linear(ones(2, 12), None, P), TypeError, "values", "NoneType"),
    "values are integer": (
        lambda: linear(ones(2, 12), blocks(3, 4, 4, dtype=INT), P),
        TypeError,
        "values",
        "int64",
    ),
    "values are float8": (
        lambda: linear(ones(2, 12), blocks().to(torch.float8_e4m3fn), P),
        TypeError,
        "values",
        "float8",
    ),
    "values miss a block": (
        lambda: linear(ones(2, 12), blocks(2, 4, 4), P),
        ValueError,
        "values",
        "[3, 4",
    ),
    "values have other blocks": (
        lambda: linear(ones(2, 12), blocks(3, 2, 2), P),
        ValueError,
        "values",
        "[3, 4, 4]",
    ),
    "values are dense": (
        lambda: linear(ones(2, 12), blocks(8, 12), P),
        ValueError,
        "values",
        "gather",
    ),
    "values are flat": (
        lambda: linear(ones(2, 12), blocks(48), P),
        ValueError,
        "values",
        "[3, 4, 4]",
    ),
    "values are meta": (
        lambda: linear(ones(2, 12), blocks(3, 4, 4, device=META), P),
        ValueError,
        "values",
        "meta",
    ),
    "pattern is a mask": (
        lambda: linear(ones(2, 12), blocks(), ones(8, 12) > 0),
        TypeError,
        "pattern",
        "pattern_of",
    ),
    "pattern is None": (
        lambda: linear(ones(2, 12), blocks(), None),
        TypeError,
        "pattern",
        "NoneType",
    ),
    "pattern is in the place of values": (
        lambda: linear(ones(2, 12), P, blocks()),
        TypeError,
        "pattern",
        "Pattern",
    ),
    "bias is a number": (lambda: linear(ones(2, 12), blocks(), P, 1.0), TypeError, "bias", "float"),
    "bias has a wrong size": (
        lambda: linear(ones(2, 12), blocks(), P, ones(12)),
        ValueError,
        "bias",
        "[8]",
    ),
    "bias is a matrix": (
        lambda: linear(ones(2, 12), blocks(), P, ones(1, 8)),
        ValueError,
        "bias",
        "[8]",
    ),
    "bias has another dtype": (
        lambda: linear(ones(2, 12), blocks(), P, ones(8, dtype=F64)),
        TypeError,
        "bias",
        "autocast",
    ),
    "bias has the dtype of half values": (
        lambda: linear(ones(2, 12), blocks().half(), P, ones(8).half()),
        TypeError,
        "bias",
        "float32 beside values of bfloat16 or float16",
    ),
    "values are wider than x": (
        lambda: linear(ones(2, 12).half(), blocks(), P),
        TypeError,
        "values",
        "float32 beside values",
    ),
    "values are half beside float64": (
        lambda: linear(ones(2, 12, dtype=F64), blocks().half(), P),
        TypeError,
        "values",
        "float64",
    ),
    "activation is unknown": (
        lambda: linear(ones(2, 12), blocks(), P, activation="tanh"),
        ValueError,
        "activation",
        "'gelu_tanh'",
    ),
    "activation is a function": (
        lambda: linear(ones(2, 12), blocks(), P, activation=torch.relu),
        ValueError,
        "activation",
        "apply any other function to the result",
    ),
    "out is numpy": (
        lambda: linear(ones(2, 12), blocks(), P, out=np.ones((2, 8))),
        TypeError,
        "out",
        "ndarray",
    ),
    "out has a wrong shape": (
        lambda: linear(ones(2, 12), blocks(), P, out=ones(2, 12)),
        ValueError,
        "out",
        "[2, 8]",
    ),
    "out has another dtype": (
        lambda: linear(ones(2, 12), blocks().half(), P, out=ones(2, 8).half()),
        TypeError,
        "out",
        "float32",
    ),
    "out repeats its memory": (
        lambda: linear(ones(2, 12), blocks(), P, out=ones(8).expand(2, 8)),
        ValueError,
        "out",
        "[0, 1]",
    ),
    "x does not fit a ragged edge": (
        lambda: linear(ones(2, 12), blocks(RAGGED.nnzb, 4, 4), RAGGED),
        ValueError,
        "x",
        "11",
    ),
    "spmm: arguments swapped": (
        lambda: spmm(ones(12, 2), P, blocks()),
        ValueError,
        "values",
        "[3, 4, 4]",
    ),
    "spmm: x is a vector": (lambda: spmm(blocks(), P, ones(12)), ValueError, "x", "unsqueeze(-1)"),
    "spmm: x is 0-d": (
        lambda: spmm(blocks(), P, torch.tensor(1.0)),
        ValueError,
        "x",
        "[..., k, n]",
    ),
    "spmm: x is transposed": (lambda: spmm(blocks(), P, ones(2, 12)), ValueError, "x", "12"),
    "spmm: x is half": (lambda: spmm(blocks(), P, ones(12, 2).half()), TypeError, "x", "float16"),
    "spmm: x is sparse": (
        lambda: spmm(blocks(), P, ones(12, 2).to_sparse_csr()),
        TypeError,
        "x",
        "csr",
    ),
    "spmm: pattern is a tuple": (
        lambda: spmm(blocks(), (P.crow_indices, P.col_indices), ones(12, 2)),
        TypeError,
        "pattern",
        "tuple",
    ),
    "spmm: values are wider than x": (
        lambda: spmm(blocks(), P, ones(12, 2).bfloat16()),
        TypeError,
        "values",
        "bfloat16",
    ),
    "spmm: out has a wrong shape": (
        lambda: spmm(blocks(), P, ones(12, 2), out=ones(2, 8)),
        ValueError,
        "out",
        "[8, 2]",
    ),
    "sddmm: dtypes are mixed": (
        lambda: sddmm(ones(8, 3), ones(3, 12).half(), P),
        TypeError,
        "b",
        "one dtype:",
    ),
    "sddmm: out has a wrong shape": (
        lambda: sddmm(ones(8, 3), ones(3, 12), P, out=ones(3, 16)),
        ValueError,
        "out",
        "[3, 4, 4]",
    ),
    "sddmm: a is a vector": (
        lambda: sddmm(ones(8), ones(3, 12), P),
        ValueError,
        "a",
        "[..., m, t]",
    ),
    "sddmm: a has wrong rows": (lambda: sddmm(ones(7, 3), ones(3, 12), P), ValueError, "a", "8"),
    "sddmm: b has wrong columns": (lambda: sddmm(ones(8, 3), ones(3, 8), P), ValueError, "b", "12"),
    "sddmm: inner sizes differ": (lambda: sddmm(ones(8, 3), ones(2, 12), P), ValueError, "b", "3"),
    "sddmm: batches differ": (
        lambda: sddmm(ones(2, 8, 3), ones(3, 3, 12), P),
        ValueError,
        "b",
        "broadcast",
    ),
    "sddmm: b is integer": (
        lambda: sddmm(ones(8, 3), ones(3, 12).int(), P),
        TypeError,
        "b",
        "int32",
    ),
    "sddmm: pattern is None": (
        lambda: sddmm(ones(8, 3), ones(3, 12), None),
        TypeError,
        "pattern",
        "",
    ),
    "indices: shape is a number": (lambda: indices(shape=8), TypeError, "shape", "(m, k)"),
    "indices: shape is float": (lambda: indices(shape=(8.0, 12)), TypeError, "shape", "integers"),
    "indices: shape is text": (lambda: indices(shape=(8, "12")), TypeError, "shape", "integers"),
    "indices: shape is negative": (lambda: indices(shape=(-8, 12)), ValueError, "shape", "≥ 0"),
    "indices: crow is a list": (
        lambda: indices(crow=[0, 1, 3]),
        TypeError,
        "crow_indices",
        "int32",
    ),
    "indices: crow is int64": (
        lambda: indices(crow=P.crow_indices.long()),
        TypeError,
        "crow_indices",
        ".int()",
    ),
    "indices: crow is short": (
        lambda: indices(crow=P.crow_indices[:2]),
        ValueError,
        "crow_indices",
        "[3]",
    ),
    "indices: col is long": (
        lambda: indices(col=torch.zeros(4, dtype=torch.int32)),
        ValueError,
        "col_indices",
        "[3]",
    ),
    "indices: col has steps": (
        lambda: indices(col=torch.zeros(6, dtype=torch.int32)[::2]),
        ValueError,
        "col_indices",
        "contiguous",
    ),
    "indices: col is elsewhere": (
        lambda: indices(col=P.col_indices.to(META)),
        ValueError,
        "col_indices",
        "meta",
    ),
    "indices: values are flat": (
        lambda: indices(values=blocks(48)),
        ValueError,
        "values",
        "[nnzb, r, c]",
    ),
    "indices: blocks are empty": (
        lambda: indices(values=blocks(3, 0, 4)),
        ValueError,
        "values",
        "≥ 1",
    ),
    "indices: x has a wrong size": (lambda: indices(x=ones(2, 8)), ValueError, "x", "12"),
    "indices: bias has a wrong size": (lambda: indices(bias=ones(12)), ValueError, "bias", "[8]"),
    "backend: unknown": (lambda: backend("cuda"), ValueError, "backend", "reference"),
}


@pytest.mark.parametrize("call, error, argument, says", CASES.values(), ids=CASES.keys())
def test_bad_input_is_named(call, error, argument, says):
    with without_type_checks(), pytest.raises(error) as raised:
        call()
    message = str(raised.value)
    assert argument in message.replace(":", " ").replace(",", " ").split()
    assert says in message


def test_pattern_elsewhere_is_named():
    meta = random_pattern(8, 12, blocksize=4, density=0.5, seed=0)
    meta.__dict__["col_indices"] = meta.col_indices.to(META)
    for call in (
        lambda: linear(ones(2, 12), blocks(), meta),
        lambda: sddmm(ones(8, 3), ones(3, 12), meta),
    ):
        with (
            without_type_checks(),
            pytest.raises(ValueError, match=r"pattern is on meta.*pattern.to"),
        ):
            call()


def test_table_is_long_enough():
    assert len(CASES) >= 40 and all(isinstance(pattern, Pattern) for pattern in (P, RAGGED))
