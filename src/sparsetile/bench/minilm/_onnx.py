"""The dense model as an ONNX graph, for onnxruntime: BERT's encoder without a mask."""

from typing import Any

import numpy as np
from torch import nn

OPSET = 20  # the first with Gelu as one node


def onnx_bytes(model: nn.Module) -> bytes:
    """Write a BERT encoder as ONNX: from tokens `[n, tokens]` to the last states.

    Every token counts, as when models are timed. Node for node what BERT computes; runtimes fuse
    it as they do others.

    Args:
        model: `BertModel` of transformers, in float32.

    Returns:
        The file's bytes.

    Raises:
        ImportError: If the package onnx is not installed.
    """
    from onnx import TensorProto, helper

    graph = _Graph(model)
    last = graph.encoder()
    tokens = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["n", "tokens"])
    states = helper.make_tensor_value_info(
        last, TensorProto.FLOAT, ["n", "tokens", graph.config.hidden_size]
    )
    made = helper.make_graph(graph.nodes, "bert", [tokens], [states], graph.weights)
    # An older version of the format than the package's newest: runtimes lag behind it.
    whole = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    return bytes(whole.SerializeToString())


class _Graph:
    """Nodes and weights, as they are added."""

    def __init__(self, model: Any) -> None:
        self.config = model.config
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}

    def encoder(self) -> str:
        """All of it; the name of the last states."""
        shape = self._add("Shape", "input_ids")
        length = self._add("Slice", shape, self._ints([1]), self._ints([2]))
        rows = "embeddings.position_embeddings.weight"
        places = self._add("Slice", self._weight(rows), self._ints([0]), length, self._ints([0]))
        words = self._add("Gather", self._weight("embeddings.word_embeddings.weight"), "input_ids")
        kind = self._constant(self._state["embeddings.token_type_embeddings.weight"][0])
        x = self._add("Add", self._add("Add", words, places), kind)
        x = self._norm(x, "embeddings.LayerNorm")
        for at in range(self.config.num_hidden_layers):
            x = self._layer(x, f"encoder.layer.{at}.")
        return x

    def _layer(self, x: str, name: str) -> str:
        q, k, v = (
            self._heads(self._linear(x, f"{name}attention.self.{part}"), part == "key")
            for part in ("query", "key", "value")
        )
        size = self.config.hidden_size // self.config.num_attention_heads
        scores = self._add("Div", self._add("MatMul", q, k), self._constant(np.float32(size**0.5)))
        mixed = self._add("MatMul", self._add("Softmax", scores, axis=-1), v)
        mixed = self._add("Transpose", mixed, perm=[0, 2, 1, 3])
        mixed = self._add("Reshape", mixed, self._ints([0, 0, self.config.hidden_size]))
        out = self._linear(mixed, f"{name}attention.output.dense")
        x = self._norm(self._add("Add", out, x), f"{name}attention.output.LayerNorm")
        up = self._add("Gelu", self._linear(x, f"{name}intermediate.dense"))
        down = self._linear(up, f"{name}output.dense")
        return self._norm(self._add("Add", down, x), f"{name}output.LayerNorm")

    def _heads(self, x: str, key: bool) -> str:
        heads = self.config.num_attention_heads
        size = self.config.hidden_size // heads
        apart = self._add("Reshape", x, self._ints([0, 0, heads, size]))
        return self._add("Transpose", apart, perm=[0, 2, 3, 1] if key else [0, 2, 1, 3])

    def _linear(self, x: str, name: str) -> str:
        weight = self._constant(np.ascontiguousarray(self._state[f"{name}.weight"].T))
        return self._add("Add", self._add("MatMul", x, weight), self._weight(f"{name}.bias"))

    def _norm(self, x: str, name: str) -> str:
        scale, bias = self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        epsilon = self.config.layer_norm_eps
        return self._add("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)

    def _add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def _weight(self, name: str) -> str:
        return self._constant(self._state[name])

    def _ints(self, values: list[int]) -> str:
        return self._constant(np.array(values, np.int64))

    def _constant(self, values: Any) -> str:
        from onnx import numpy_helper

        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name
