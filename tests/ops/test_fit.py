"""The raw operators refuse operands that do not fit, before a kernel reads past their end."""

import pytest
import torch

from sparsetile.matrix import random_pattern
from sparsetile.ops import linear, sddmm, spmm

P = random_pattern(8, 12, blocksize=4, density=0.5, seed=0)  # 3 blocks
F64, INT = torch.float64, torch.int32
META = torch.device("meta")
STEPS = torch.zeros(6, dtype=INT)[::2]

GOOD = {
    "linear": {
        "x": torch.ones(2, 12),
        "values": torch.ones(3, 4, 4),
        "crow": P.crow_indices,
        "col": P.col_indices,
        "bias": torch.ones(8),
        "m": 8,
        "k": 12,
        "transpose": False,
    },
    "spmm": {
        "values": torch.ones(3, 4, 4),
        "crow": P.crow_indices,
        "col": P.col_indices,
        "x": torch.ones(12, 2),
        "m": 8,
        "k": 12,
        "transpose": False,
    },
    "sddmm": {
        "a": torch.ones(8, 5),
        "b": torch.ones(5, 12),
        "crow": P.crow_indices,
        "col": P.col_indices,
        "r": 4,
        "c": 4,
        "reduce": False,
    },
}
INDICES = [
    ({"crow": P.crow_indices.long()}, TypeError, "crow is int64"),
    ({"crow": P.crow_indices[:2]}, ValueError, "crow has shape"),
    ({"crow": P.crow_indices[None]}, ValueError, "crow has shape"),
    ({"crow": STEPS}, ValueError, "crow has strides"),
    ({"crow": P.crow_indices.to(META)}, ValueError, "crow is on meta"),
    ({"col": P.col_indices.long()}, TypeError, "col is int64"),
    ({"col": P.col_indices[:, None]}, ValueError, "col has shape"),
    ({"col": STEPS}, ValueError, "col has strides"),
    ({"col": P.col_indices.to(META)}, ValueError, "col is on meta"),
]
PRODUCTS = [
    ({"values": torch.ones(2, 4, 4)}, ValueError, "values has shape"),
    ({"values": torch.ones(4, 4, 4)}, ValueError, "values has shape"),
    ({"values": torch.ones(3, 16)}, ValueError, "values has shape"),
    ({"values": torch.ones(3, 0, 4)}, ValueError, "values has shape"),
    ({"values": torch.ones(3, 4, 4, dtype=F64)}, TypeError, "values is float64"),
    ({"values": torch.ones(3, 4, 4, device=META)}, ValueError, "values is on meta"),
    ({"m": 12}, ValueError, "crow has shape"),
    ({"k": 16}, ValueError, "x has shape"),
    ({"k": -12}, ValueError, "x has shape"),
    ({"transpose": True}, ValueError, "x has shape"),
]
BAD = {
    "linear": [
        *INDICES,
        *PRODUCTS,
        ({"values": torch.ones(2, 3, 4, 4)}, ValueError, "values has shape"),
        ({"x": torch.ones(2, 12).half()}, TypeError, "values is float32; it must be float16 here"),
        (
            {"values": torch.ones(3, 4, 4).half(), "bias": torch.ones(8).half()},
            TypeError,
            "bias is float16; it must be float32 here",
        ),
        ({"activation": "tanh"}, ValueError, "activation is 'tanh'"),
        ({"x": torch.ones(2, 8)}, ValueError, "x has shape"),
        ({"x": torch.tensor(1.0)}, ValueError, "x has shape"),
        ({"x": torch.ones(2, 8), "transpose": True}, ValueError, "bias has shape"),
        ({"bias": torch.ones(4)}, ValueError, "bias has shape"),
        ({"bias": torch.ones(1, 8)}, ValueError, "bias has shape"),
        ({"bias": torch.ones(8, dtype=F64)}, TypeError, "bias is float64"),
        ({"bias": torch.ones(8, device=META)}, ValueError, "bias is on meta"),
        (
            {"x": torch.ones(2, 8), "bias": None, "k": -1, "transpose": True},
            ValueError,
            "m or k is negative",
        ),
    ],
    "spmm": [
        *INDICES,
        *PRODUCTS,
        ({"x": torch.ones(8, 2)}, ValueError, "x has shape"),
        ({"x": torch.ones(12)}, ValueError, "x has shape"),
        ({"values": torch.ones(5, 3, 4, 4)}, ValueError, "values has shape"),
    ],
    "sddmm": [
        *INDICES,
        ({"a": torch.ones(8)}, ValueError, "a has shape"),
        ({"a": torch.ones(16, 5)}, ValueError, "crow has shape"),
        ({"b": torch.ones(4, 12)}, ValueError, "b has shape"),
        ({"b": torch.ones(12)}, ValueError, "b has shape"),
        ({"b": torch.ones(2, 5, 12)}, ValueError, "b has shape"),
        ({"b": torch.ones(5, 12, dtype=F64)}, TypeError, "b is float64"),
        ({"b": torch.ones(5, 12, device=META)}, ValueError, "b is on meta"),
        ({"r": 0}, ValueError, "0×4"),
        ({"r": 2}, ValueError, "crow has shape"),
    ],
}
CASES = [(op, *case) for op, cases in BAD.items() for case in cases]


@pytest.mark.parametrize("op, changed, error, says", CASES)
def test_operator_names_the_operand_that_does_not_fit(op, changed, error, says):
    with pytest.raises(error, match=f"{op}.*{says}"):
        getattr(torch.ops.sparsetile, op)(**GOOD[op] | changed)


@pytest.mark.parametrize("op, changed, error, says", CASES)
def test_shapes_are_checked_without_data_too(op, changed, error, says):
    """Under a fake mode, as compilers trace, where every tensor says which device it stands for."""
    mode = torch._subclasses.FakeTensorMode()
    arguments = {
        name: mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
        for name, value in (GOOD[op] | changed).items()
    }
    with mode, pytest.raises(Exception, match=says):  # torch wraps what fake kernels raise
        getattr(torch.ops.sparsetile, op)(**arguments)


def test_operators_compute_what_fits():
    given = {op: getattr(torch.ops.sparsetile, op)(**GOOD[op]) for op in GOOD}
    x, values, bias = (GOOD["linear"][name] for name in ("x", "values", "bias"))
    assert torch.equal(given["linear"], linear(x, values, P, bias))
    assert torch.equal(given["spmm"], spmm(values, P, GOOD["spmm"]["x"]))
    assert torch.equal(given["sddmm"], sddmm(GOOD["sddmm"]["a"], GOOD["sddmm"]["b"], P))
