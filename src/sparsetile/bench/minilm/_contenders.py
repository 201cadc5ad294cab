"""What is timed: the dense model in three ways, and the pruned ones."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from sparsetile.bench.minilm._onnx import onnx_bytes
from sparsetile.nn import freeze_

DENSE, BF16, ORT = "dense fp32", "dense bf16", "onnxruntime fp32"
#: Largest difference of states that passes, relative to the largest state.
_NEAR = {DENSE: 1e-3, BF16: 0.1, ORT: 1e-3}

Run = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Contender:
    """One model to time.

    Args:
        name: `DENSE`, `BF16`, `ORT`, or the pruned model's.
        run: From tokens `[n, tokens]` to the last states; None if it cannot be timed.
        why_not: Why it cannot.
    """

    name: str
    run: Run | None
    why_not: str = ""


def dense_contenders(model: nn.Module, tokens: Tensor) -> list[Contender]:
    """The dense model by torch in float32 and bfloat16 and by onnxruntime, each checked.

    Args:
        model: The dense model.
        tokens: To check with `[n, tokens]`.

    Returns:
        The contenders; one that is wrong or missing says why.
    """
    right = call_of(model)(tokens)
    made = [Contender(DENSE, call_of(model))]
    for name, make in ((BF16, _bf16), (ORT, _onnxruntime)):
        try:
            run = make(model)
            gap = float((run(tokens).float() - right).abs().max() / right.abs().max())
        except ImportError as error:
            made.append(Contender(name, None, f"{error.name or error} is not installed"))
        except Exception as error:  # a library may fail in any way: that is a result
            made.append(Contender(name, None, f"{type(error).__name__}: {error}"[:120]))
        else:
            good = gap <= _NEAR[name]
            made.append(Contender(name, run if good else None, "" if good else "wrong result"))
    return made


def sparse_contender(name: str, model: nn.Module) -> Contender:
    """A pruned model, made ready for inference."""
    return Contender(name, call_of(freeze_(model)))


def call_of(model: nn.Module) -> Run:
    """A model's last states, without gradients."""

    def run(tokens: Tensor) -> Tensor:
        with torch.inference_mode():
            states: Tensor = model(input_ids=tokens).last_hidden_state
            return states

    return run


def _bf16(model: nn.Module) -> Run:
    return call_of(copy.deepcopy(model).to(torch.bfloat16))


def _onnxruntime(model: nn.Module) -> Run:
    onnxruntime: Any = import_module("onnxruntime")
    options: Any = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # Its threads would spin on when it is another's turn.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session: Any = onnxruntime.InferenceSession(
        onnx_bytes(model), options, providers=["CPUExecutionProvider"]
    )

    def run(tokens: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {"input_ids": tokens.numpy()})[0])

    return run
