"""Linear layers as matrices `[out, in]`, whichever way they lay out their weight."""

from torch import Tensor, nn


def is_conv1d(module: nn.Module) -> bool:
    """Whether a module is transformers' `Conv1D`, known by name so that nothing is imported."""
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"


def is_linear(module: nn.Module) -> bool:
    """Whether a module is a dense linear layer with a weight of its own."""
    inside = isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear)
    plain = isinstance(module, nn.Linear) and not inside
    weight = module._parameters.get("weight")
    if weight is None or isinstance(weight, nn.parameter.UninitializedParameter):
        return False
    return (plain or is_conv1d(module)) and weight.ndim == 2


def matrix_of(module: nn.Module) -> Tensor:
    """The weight of a linear layer as a view `[out, in]`, without its graph.

    Examples:
        >>> matrix_of(nn.Linear(4, 8)).shape
        torch.Size([8, 4])
    """
    weight = module._parameters["weight"]
    assert weight is not None
    return weight.detach().t() if is_conv1d(module) else weight.detach()
