"""Initialisers of an ONNX file, dense and sparse; needs the package `onnx`."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparsetile.matrix import BSR
from sparsetile.models._read_stored import Stored, check_rows, key_of
from sparsetile.models._say import refusal

_AGAIN = "the file is damaged or cut off: get it again"


def stored_onnx(path: Path) -> Stored:
    """Read the weights of a graph.

    Args:
        path: The file; external data lies beside it.

    Returns:
        Its initialisers; those that MatMul multiplies with are `[in, out]` and so noted.

    Raises:
        ImportError: If `onnx` is not installed.
        ValueError: If it is damaged, or its weights are quantised.
    """
    try:
        import onnx
    except ImportError:
        raise ImportError(
            f"{path.name}: reading ONNX needs the package onnx, which is not installed; "
            "pip install 'sparsetile[import-onnx]'"
        ) from None
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # of protobuf, whatever is damaged
        got = f"what protobuf refuses: {str(error)[:200]}"
        raise refusal(path.name, got=got, allowed="an ONNX model", fix=_AGAIN) from None
    graph = model.graph
    if not graph.node and not graph.initializer and not graph.sparse_initializer:
        got = "no graph"
        raise refusal(path.name, got=got, allowed="an ONNX model with weights", fix=_AGAIN)
    dense = {tensor.name: tensor for tensor in graph.initializer}
    sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
    _refuse_quantised(path, graph, dense)
    shapes = {name: tuple(tensor.dims) for name, tensor in (dense | sparse).items()}
    dtypes = {}
    for name in shapes:
        values = dense[name] if name in dense else sparse[name].values
        dtypes[name] = _dtype(path, name, values.data_type)
    for name in sparse:
        check_rows(path, name, shapes[name])

    def read(name: str) -> Tensor | BSR:
        try:
            if name in dense:
                return _dense(path, dense[name], shapes[name], dtypes[name])
            return _sparse(path, sparse[name], shapes[name], dtypes[name])
        except ValueError:
            raise
        except Exception as error:  # of onnx's checker, numpy or the file system
            got, allowed = f"{str(error)[:200]}", "as many numbers as its dims say"
            raise refusal(key_of(path, name), got=got, allowed=allowed, fix=_AGAIN) from None

    special = dict.fromkeys(sparse, "ONNX sparse_initializer")
    flipped = frozenset(_transposed(graph) & set(shapes))
    return Stored(path, "onnx", shapes, dtypes, read, special=special, transposed=flipped)


def _dense(path: Path, tensor: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return _numbers(path, tensor).to(dtype).reshape(shape)


def _sparse(path: Path, tensor: Any, shape: tuple[int, ...], dtype: torch.dtype) -> BSR:
    """Flat positions or pairs, both row by row."""
    m, k = shape
    values = _numbers(path, tensor.values).to(dtype).flatten()
    at = _numbers(path, tensor.indices).long()
    if at.ndim == 2 and at.shape[1:] == (2,):
        rows, cols = at[:, 0], at[:, 1]
    elif at.ndim == 1:
        rows, cols = (at.div(k, rounding_mode="floor"), at % k) if k else (at, at)
    else:
        rows = cols = at.flatten()[:0]
    inside = bool(((rows >= 0) & (rows < m) & (cols >= 0) & (cols < k)).all())
    if len(rows) != len(values) or not inside:
        raise refusal(
            key_of(path, tensor.values.name),
            got=f"{len(values)} values at {list(at.shape)} indices for a matrix {m}×{k}",
            allowed="one index inside the matrix for each value, flat or as (row, column)",
            fix=_AGAIN,
        )
    coo = torch.sparse_coo_tensor(torch.stack([rows, cols]), values, (m, k), check_invariants=True)
    return BSR.from_torch(coo)


def _numbers(path: Path, tensor: Any) -> Tensor:
    """Read a tensor; onnx itself refuses external data outside the model's folder."""
    import onnx

    size = 1
    for dim in tensor.dims:
        size *= dim
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    if external:
        onnx.external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    if size < 0 or size > 8 * max(tensor.ByteSize(), 1):
        raise ValueError(
            f"{key_of(path, tensor.name)}: got dims {list(tensor.dims)} for {tensor.ByteSize()} "
            f"bytes; allowed: as many numbers as its dims say; {_AGAIN}"
        )
    array = onnx.numpy_helper.to_array(tensor)
    if array.dtype.name == "bfloat16":
        array = array.astype("float32")
    return torch.from_numpy(array.copy())


def _dtype(path: Path, name: str, number: int) -> torch.dtype:
    import onnx

    kinds = onnx.TensorProto
    known: dict[int, torch.dtype] = {
        kinds.FLOAT: torch.float32,
        kinds.DOUBLE: torch.float64,
        kinds.FLOAT16: torch.float16,
        kinds.BFLOAT16: torch.bfloat16,
        kinds.INT64: torch.int64,
        kinds.INT32: torch.int32,
        kinds.INT16: torch.int16,
        kinds.INT8: torch.int8,
        kinds.UINT8: torch.uint8,
        kinds.BOOL: torch.bool,
    }
    if number not in known:
        label = kinds.DataType.Name(number) if number in kinds.DataType.values() else str(number)
        raise refusal(
            key_of(path, name),
            got=f"numbers of type {label}",
            allowed="float, double, float16, bfloat16, integers to 64 bits, bool",
            fix="export the model again in float32",
        )
    return known[number]


def _refuse_quantised(path: Path, graph: Any, dense: dict[str, Any]) -> None:
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input and node.input[0] in dense:
            raise refusal(
                key_of(path, node.input[0]),
                got="a quantised weight (DequantizeLinear)",
                allowed="weights in floating point",
                fix="take the file of the model before it was quantised",
            )


def _transposed(graph: Any) -> set[str]:
    """Weights that stand right of the activations, as `[in, out]`."""
    names = set()
    for node in graph.node:
        if node.op_type == "MatMul" and len(node.input) == 2:
            names.add(node.input[1])
        if node.op_type == "Gemm" and len(node.input) > 1:
            flags = {item.name: item.i for item in node.attribute}
            if not flags.get("transB", 0):
                names.add(node.input[1])
    return names
