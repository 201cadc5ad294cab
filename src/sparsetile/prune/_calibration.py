"""Runs calibration data through a model and sums up what each layer is given."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sparsetile.prune._check import message
from sparsetile.prune._inputs import Inputs, product

Calibration = Iterable[Any] | Callable[[nn.Module], object]

_ROWS = 1 << 16  # input vectors that are multiplied at once

_ALLOWED = (
    "an iterable of batches (each a tensor, a tuple of arguments or a dict of keyword arguments), "
    "or a function that runs the model it is given"
)


class Feed:
    """Calibration data that can be run through a model again and again.

    Args:
        calibration: Batches, or a function of the model that runs it. A single tensor or mapping is
            one batch. What can be read only once (a generator) is kept in memory.

    Raises:
        TypeError: If it is neither.

    Examples:
        >>> model = nn.Sequential(nn.Linear(4, 2))
        >>> feed = Feed([torch.ones(3, 4), torch.ones(5, 4)])
        >>> feed.collect(model, {"0": model[0]}, gram=False)["0"].rows
        8
    """

    def __init__(self, calibration: Any) -> None:
        if isinstance(calibration, Tensor | Mapping):
            calibration = [calibration]
        self._run: Callable[[nn.Module], object] | None = None
        self._batches: Iterable[Any] = ()
        if isinstance(calibration, Iterable) and not isinstance(calibration, str | bytes):
            once = isinstance(calibration, Iterator)
            self._batches = list(calibration) if once else calibration
        elif callable(calibration) and not isinstance(calibration, type):
            self._run = calibration
        else:
            fix = "tokenize text first" if isinstance(calibration, str) else "pass one of these"
            raise TypeError(
                message("calibration", got=f"{calibration!r:.60}", allowed=_ALLOWED, fix=fix)
            )

    def collect(
        self, model: nn.Module, layers: Mapping[str, nn.Module], *, gram: bool
    ) -> dict[str, Inputs]:
        """Sum up the inputs of some layers, in one pass, with the model in evaluation mode.

        Args:
            model: The model to run.
            layers: Dense linear layers of it, by name.
            gram: Whether to collect Gram matrices.

        Returns:
            The sums of each layer.

        Raises:
            TypeError: If a batch is of another kind.
            ValueError: If there is no batch, an input holds NaN or infinity, or a layer is not
                reached.
        """
        ears = _Ears(layers, gram)
        with _evaluating(model), torch.no_grad(), ears.listening(model, layers):
            self._through(model, ears)
        ears.forget()
        for name, inputs in ears.sums.items():
            if not inputs.rows:
                raise ValueError(
                    message(
                        "calibration",
                        got=f"data that never reach layer {name!r}",
                        allowed="data that run through every layer to be pruned",
                        fix="leave the layer out with filter=…, or give data that use it",
                    )
                )
        return ears.sums

    def order(self, model: nn.Module, layers: Mapping[str, nn.Module]) -> list[list[str]]:
        """Find in what order layers run, and which are given the same tensor.

        Args:
            model: The model to run, on the first batch.
            layers: Layers of it, by name.

        Returns:
            Names in groups; those of a group share their input. What did not run comes last.

        Examples:
            >>> model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
            >>> Feed(torch.ones(1, 4)).order(model, {"1": model[1], "0": model[0]})
            [['0'], ['1']]
        """
        groups: list[list[str]] = []
        last: list[Tensor] = []

        def note(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                if any(name in group for group in groups):
                    return
                x = _first(args, kwargs)
                if last and x is last[0]:
                    groups[-1].append(name)
                else:
                    groups.append([name])
                last[:] = [x]

            return hook

        hooks = [
            layer.register_forward_pre_hook(note(name), with_kwargs=True)
            for name, layer in layers.items()
        ]
        try:
            with _evaluating(model), torch.no_grad():
                self._through(model, None)
        finally:
            for hook in hooks:
                hook.remove()
        seen = {name for group in groups for name in group}
        return groups + [[name] for name in layers if name not in seen]

    def _through(self, model: nn.Module, ears: "_Ears | None") -> None:
        """Run the model on all batches, or on the first where nobody listens."""
        if self._run is not None:
            self._run(model)
            return
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        count = 0
        for batch in self._batches:
            if ears is not None:
                ears.batch = count
            _call(model, batch, device, count)
            count += 1
            if ears is None:
                break
        if not count:
            raise ValueError(
                message(
                    "calibration",
                    got="no batch",
                    allowed="one batch or more",
                    fix="give data like the model's own; 128 sequences are usual",
                )
            )


class _Ears:
    """Hooks that sum up what layers are given."""

    def __init__(self, layers: Mapping[str, nn.Module], gram: bool) -> None:
        self.batch: int | None = None
        self.sums: dict[str, Inputs] = {}
        self._gram = gram
        self._mask: Tensor | None = None
        # The last input and its sums: layers side by side (query, key, value) share them.
        self._last: tuple[Tensor, int, tuple[int, Tensor, Tensor | None]] | None = None
        for name, layer in layers.items():
            weight = layer._parameters["weight"]
            assert weight is not None
            k = weight.shape[1] if isinstance(layer, nn.Linear) else weight.shape[0]
            self.sums[name] = Inputs.nothing(k, gram, weight.device)

    def listening(self, model: nn.Module, layers: Mapping[str, nn.Module]) -> "_Hooks":
        """Hooks in place for as long as a `with` lasts."""
        hooks = [model.register_forward_pre_hook(self._begin, with_kwargs=True)]
        hooks += [
            layer.register_forward_pre_hook(self._ear(name), with_kwargs=True)
            for name, layer in layers.items()
        ]
        return _Hooks(hooks)

    def forget(self) -> None:
        """Let go of the last input."""
        self._last = self._mask = None

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        mask = kwargs.get("attention_mask")
        self._mask = mask if isinstance(mask, Tensor) and mask.ndim == 2 else None
        self._last = None

    def _ear(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            x = _first(args, kwargs)
            version = -1 if x.is_inference() else x._version
            if self._last is None or self._last[0] is not x or self._last[1] != version:
                self._last = x, version, self._summed(name, x)
            self.sums[name].add(*self._last[2])

        return hook

    def _summed(self, name: str, x: Tensor) -> tuple[int, Tensor, Tensor | None]:
        rows = x.detach().reshape(-1, x.shape[-1])
        if self._mask is not None and x.ndim == 3 and x.shape[:2] == self._mask.shape:
            rows = rows[self._mask.reshape(-1).to(x.device) != 0]
        squares = torch.zeros(x.shape[-1], dtype=torch.float64, device=x.device)
        gram: Tensor | None = None
        for part in rows.split(_ROWS) if len(rows) else ():
            squares += part.double().square().sum(0)
            if self._gram:
                one = product(part)
                gram = one if gram is None else gram + one
        if not bool(squares.isfinite().all()) or (gram is not None and not gram.isfinite().all()):
            where = "" if self.batch is None else f" in batch {self.batch}"
            feature = int((~squares.isfinite()).int().argmax())
            raise ValueError(
                message(
                    "calibration",
                    got=f"NaN or infinity in the input of layer {name!r}{where}, feature {feature}",
                    allowed="finite activations",
                    fix="look for NaN in the data and the weights before that layer; run the model "
                    "in float32 or bfloat16 if float16 overflows",
                )
            )
        return len(rows), squares, gram


class _Hooks:
    """Removes hooks at the end of a `with`."""

    def __init__(self, hooks: list[Any]) -> None:
        self._hooks = hooks

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()


class _evaluating:  # noqa: N801  read as a verb
    """Puts a model in evaluation mode for as long as a `with` lasts."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def __enter__(self) -> None:
        self._modes = [(module, module.training) for module in self._model.modules()]
        self._model.eval()

    def __exit__(self, *_: object) -> None:
        for module, mode in self._modes:
            module.training = mode


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The input of a linear layer, however it was passed."""
    x: Tensor = args[0] if args else next(iter(kwargs.values()))
    return x


def _call(model: nn.Module, batch: Any, device: torch.device, number: int) -> None:
    """Run a model on one batch."""
    if isinstance(batch, Tensor):
        model(batch.to(device))
    elif isinstance(batch, Mapping):
        model(**{name: _moved(value, device) for name, value in batch.items()})
    elif isinstance(batch, tuple | list) and not any(isinstance(x, str) for x in batch):
        model(*(_moved(value, device) for value in batch))
    else:
        fix = (
            "tokenize text first" if isinstance(batch, str | tuple | list) else "pass one of these"
        )
        raise TypeError(
            message(
                f"batch {number} of calibration",
                got=f"{type(batch).__name__} {batch!r:.40}",
                allowed=_ALLOWED,
                fix=fix,
            )
        )


def _moved(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value
