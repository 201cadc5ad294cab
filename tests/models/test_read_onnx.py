"""Initialisers of ONNX files, dense and sparse, as the package onnx writes them."""

import sys

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from sparsetile.matrix import BSR
from sparsetile.models import load_into, read_checkpoint
from support_models import mlp, sparse_weight

WEIGHT, _ = sparse_weight(8, 12)


def sparse_tensor(name, weight, *, flat=True, index=np.int64):
    """The values, and where they are, ascending."""
    mask = weight != 0
    at = mask.flatten().nonzero()[:, 0] if flat else mask.nonzero()
    values = numpy_helper.from_array(weight[mask].numpy(), name)
    indices = numpy_helper.from_array(at.numpy().astype(index), f"{name}_at")
    return helper.make_sparse_tensor(values, indices, list(weight.shape))


def write(path, *, dense=(), sparse=(), nodes=(), **kwargs):
    tensors = [numpy_helper.from_array(value.numpy(), name) for name, value in dense]
    nodes = nodes or [helper.make_node("Identity", ["x"], ["y"])]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    graph.sparse_initializer.extend(sparse)
    onnx.save(helper.make_model(graph), path, **kwargs)
    return path


@pytest.mark.parametrize("index", [np.int64, np.int32, np.int8])
@pytest.mark.parametrize("flat", [True, False], ids=["flat", "pairs"])
def test_sparse_initialiser_is_read(tmp_path, flat, index):
    sparse = sparse_tensor("up.weight", WEIGHT, flat=flat, index=index)
    checkpoint = read_checkpoint(write(tmp_path / "a.onnx", sparse=[sparse]))
    found = checkpoint["up.weight"]
    assert isinstance(found, BSR) and torch.equal(found.to_dense(), WEIGHT)
    assert checkpoint.formats == ("ONNX sparse_initializer",)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64])
def test_dense_initialiser_is_read(tmp_path, dtype):
    weight = WEIGHT.to(dtype)
    found = read_checkpoint(write(tmp_path / "a.onnx", dense=[("w", weight)]))["w"]
    assert found.dtype == dtype and torch.equal(found, weight)


def test_weights_right_of_the_activations_are_turned(tmp_path):
    up, down = torch.randn(32, 16), torch.randn(8, 32)
    down[:, 4:] = 0
    nodes = [
        helper.make_node("MatMul", ["x", "0.weight"], ["h"]),
        helper.make_node("Gemm", ["h", "2.weight"], ["y"], transB=1),
    ]
    dense, sparse = [("0.weight", up.t().contiguous())], [sparse_tensor("2.weight", down)]
    path = write(tmp_path / "a.onnx", dense=dense, sparse=sparse, nodes=nodes)
    model = load_into(mlp(bias=False), path).model
    assert torch.equal(model[0].weight, up)
    assert torch.equal(model[2].weight.to_dense(), down)


def test_sparse_weight_right_of_the_activations_is_turned(tmp_path):
    up, _ = sparse_weight(32, 16)
    nodes = [helper.make_node("MatMul", ["x", "0.weight"], ["y"])]
    sparse = [sparse_tensor("0.weight", up.t().contiguous())]
    path = write(tmp_path / "a.onnx", sparse=sparse, nodes=nodes)
    model = load_into(mlp(bias=False), path, strict=False).model
    assert torch.equal(model[0].weight.to_dense(), up)


def test_external_data_is_read_beside_the_file(tmp_path):
    kwargs = {"save_as_external_data": True, "location": "w.data", "size_threshold": 0}
    path = write(tmp_path / "a.onnx", dense=[("w", WEIGHT)], **kwargs)
    checkpoint = read_checkpoint(path)
    assert (tmp_path / "w.data").exists()
    assert torch.equal(checkpoint["w"], WEIGHT) and torch.equal(checkpoint["w"], WEIGHT)


@pytest.mark.parametrize("place", ["../secret", "/etc/passwd"])
def test_external_data_elsewhere_is_refused(tmp_path, place):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(384))
    kwargs = {"save_as_external_data": True, "location": "w.data", "size_threshold": 0}
    path = write(folder / "a.onnx", dense=[("w", WEIGHT)], **kwargs)
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = place
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=r"a\.onnx, key 'w'"):
        read_checkpoint(path)["w"]


def test_indices_outside_and_counts_that_differ_are_refused(tmp_path):
    outside = sparse_tensor("w", WEIGHT)
    outside.dims[0] = 2
    with pytest.raises(ValueError, match=r"key 'w'.*for a matrix 2×12"):
        read_checkpoint(write(tmp_path / "a.onnx", sparse=[outside]))["w"]
    fewer = sparse_tensor("w", WEIGHT)
    fewer.indices.CopyFrom(numpy_helper.from_array(np.zeros(1, np.int64), "at"))
    with pytest.raises(ValueError, match=r"key 'w'"):
        read_checkpoint(write(tmp_path / "b.onnx", sparse=[fewer]))["w"]


@pytest.mark.parametrize("dims", [[2**40, 2**20], [2**62, 2], [-1, 4]])
def test_sizes_that_are_merely_claimed_are_refused(tmp_path, dims):
    sparse = sparse_tensor("w", WEIGHT)
    del sparse.dims[:]
    sparse.dims.extend(dims)
    with pytest.raises(ValueError, match=r"key 'w'"):
        read_checkpoint(write(tmp_path / "a.onnx", sparse=[sparse]))["w"]
    model = onnx.load(write(tmp_path / "b.onnx", dense=[("w", WEIGHT)]))
    del model.graph.initializer[0].dims[:]
    model.graph.initializer[0].dims.extend(dims)
    (tmp_path / "b.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=r"key 'w'"):
        read_checkpoint(tmp_path / "b.onnx")["w"]


def test_quantised_and_unknown_numbers_are_refused(tmp_path):
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["y"])]
    dense = [("w", torch.ones(2, 2, dtype=torch.int8)), ("s", torch.ones(()))]
    with pytest.raises(ValueError, match=r"key 'w'.*DequantizeLinear.*before it was quantised"):
        read_checkpoint(write(tmp_path / "a.onnx", dense=dense, nodes=nodes))
    model = onnx.load(write(tmp_path / "b.onnx", dense=[("w", WEIGHT)]))
    model.graph.initializer[0].data_type = TensorProto.STRING
    (tmp_path / "b.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=r"key 'w'.*STRING.*float32"):
        read_checkpoint(tmp_path / "b.onnx")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_truncated_file_is_refused(tmp_path, share):
    path = write(tmp_path / "a.onnx", dense=[("w", WEIGHT)])
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"a\.onnx"):
        read_checkpoint(path)["w"]


def test_what_to_install_is_said(tmp_path, monkeypatch):
    path = write(tmp_path / "a.onnx", dense=[("w", WEIGHT)])
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'sparsetile\[import-onnx\]'"):
        read_checkpoint(path)
