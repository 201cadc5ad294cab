"""Prunes the weights of a model layer by layer, before any of them is replaced."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sparsetile.matrix import Pattern, gather_blocks
from sparsetile.nn import Budget, Candidate
from sparsetile.prune._calibration import Feed
from sparsetile.prune._check import message
from sparsetile.prune._inputs import Inputs
from sparsetile.prune._layer import Kept, Layer, OneShot
from sparsetile.prune._nm import NM
from sparsetile.prune._reconstruct import LeastSquares
from sparsetile.prune._report import PrunedLayer
from sparsetile.prune._shares import Share, counts_of

Progress = Callable[[int, int, str], object]


@dataclass(frozen=True, eq=False, kw_only=True)
class Settings:
    """How to prune, of checked arguments of `prune_`.

    Examples:
        >>> from sparsetile.prune import Magnitude
        >>> Settings(method=Magnitude(), feed=None).steps
        1
    """

    method: OneShot
    feed: Feed | None
    reconstruct: LeastSquares | None = None
    sequential: bool = False
    steps: int = 1
    memory_limit: int = 1 << 30
    output_errors: bool = True
    progress: Progress | None = None

    @property
    def gram(self) -> bool:
        """Whether Gram matrices of the inputs are needed."""
        wanted = self.output_errors and self.feed is not None
        return self.method.needs == "gram" or self.reconstruct is not None or wanted

    @property
    def label(self) -> str:
        """What prunes, for reports."""
        name = type(self.method).__name__
        return name if self.reconstruct is None else f"{name} + least squares"


class Run:
    """Answers `sparsify_` as a budget does, with the patterns that a method chooses.

    Attributes:
        values: New values of the kept blocks, by layer.
        rows: What the report says, by layer.

    Examples:
        >>> from sparsetile.nn import Uniform, sparsify_
        >>> from sparsetile.prune import Magnitude
        >>> model = nn.Sequential(nn.Linear(64, 64))
        >>> run = Run(model, Uniform(0.25), Settings(method=Magnitude(), feed=None))
        >>> model = sparsify_(model, density=run, blocksize=16)
        >>> run.values["0"].shape, run.rows["0"].blocks
        (torch.Size([4, 16, 16]), 4)
    """

    def __init__(self, model: nn.Module, budget: Budget, settings: Settings) -> None:
        self._model, self._budget, self._settings = model, budget, settings
        self.values: dict[str, Tensor] = {}
        self.rows: dict[str, PrunedLayer] = {}
        self._patterns: dict[str, Pattern] = {}
        self._live: dict[str, Tensor] = {}
        self._now: dict[str, Tensor] = {}
        self._original: dict[str, Tensor] = {}
        self._done = 0

    @torch.no_grad()
    def share(self, layers: Sequence[Candidate]) -> list[Pattern | None]:
        """Prune the weights, as a budget of `sparsify_` is asked to.

        Args:
            layers: The weights to become sparse.

        Returns:
            Which blocks each stores; None where it stays dense.

        Raises:
            ValueError: If the budget, the data or the weights do not allow it.
        """
        _refuse_bare(self._model, layers)
        shares = counts_of(self._budget, layers)
        chosen = {
            layer.name: (layer, share)
            for layer, share in zip(layers, shares, strict=True)
            if share is not None
        }
        for layer, _ in chosen.values():
            _check_finite(layer)
        total = len(chosen) * self._settings.steps
        try:
            for step in range(1, self._settings.steps + 1):
                self._step(chosen, step, total)
        finally:
            for name, original in self._original.items():
                chosen[name][0].weight.copy_(original)
        return [self._patterns.get(layer.name) for layer in layers]

    def _step(self, chosen: dict[str, tuple[Candidate, Share]], step: int, total: int) -> None:
        """Prune every layer once."""
        settings = self._settings
        last = step == settings.steps
        for group in self._groups({name: layer for name, (layer, _) in chosen.items()}):
            inputs = self._collect(group, total)
            for name in group:
                layer, share = chosen[name]
                self._prune(layer, share, inputs.get(name), step)
                if settings.sequential:
                    self._write(layer)
                self._done += 1
                self._tell(total, name)
        if not last and not settings.sequential:
            for layer, _ in chosen.values():
                self._write(layer)

    def _prune(self, layer: Candidate, share: Share, inputs: Inputs | None, step: int) -> None:
        """Prune one layer and note the outcome."""
        begin, settings = time.perf_counter(), self._settings
        original = _wide(self._original.get(layer.name, layer.weight))
        given = share.block_mask().to(original.device) if isinstance(share, Pattern) else None
        final = share.nnzb if isinstance(share, Pattern) else share
        left = (1 - step / settings.steps) ** 3
        asked = Layer(
            name=layer.name,
            weight=_wide(self._now[layer.name]) if layer.name in self._now else original,
            blocksize=layer.blocksize,
            count=final + round((layer.positions - final) * left),
            live=self._live.get(layer.name, _every(layer)),
            nm=self._budget if isinstance(self._budget, NM) else None,
            given=given,
            inputs=inputs,
        )
        kept = settings.method.prune(asked)
        self._check_kept(asked, kept)
        weight = kept.weight
        if settings.reconstruct is not None:
            dense = Layer(
                name=layer.name, weight=original, blocksize=layer.blocksize, count=0, inputs=inputs
            )
            weight = settings.reconstruct.solve(dense, kept.blocks)
        pattern = _pattern(kept.blocks, layer)
        weight = _masked(weight, pattern).to(layer.weight.dtype)
        if not bool(weight.isfinite().all()):
            raise ValueError(
                f"pruning layer {layer.name!r} by {settings.label} gave values beyond "
                f"{layer.weight.dtype}; allowed: finite ones; raise damping, or convert the model "
                "to a wider type"
            )
        error = None
        if inputs is not None and inputs.gram is not None and settings.output_errors:
            error = inputs.error(original, _wide(weight))
        self._patterns[layer.name], self._live[layer.name] = pattern, kept.blocks
        self._now[layer.name] = weight
        if step == settings.steps:
            self.values[layer.name] = gather_blocks(weight, pattern)
            if not settings.sequential:
                del self._now[layer.name]  # nobody reads it any more
        before = self.rows[layer.name].seconds if layer.name in self.rows else 0.0
        self.rows[layer.name] = PrunedLayer(
            name=layer.name,
            shape=layer.shape,
            blocksize=layer.blocksize,
            method=settings.label,
            asked=final / max(layer.positions, 1),
            density=pattern.density,
            blocks=pattern.nnzb,
            positions=layer.positions,
            output_error=error,
            seconds=before + time.perf_counter() - begin,
        )

    def _groups(self, layers: dict[str, Candidate]) -> list[list[str]]:
        """Layers whose inputs are collected in one pass."""
        settings = self._settings
        if settings.feed is None:
            return [list(layers)]
        orders = [list(layers)]
        if settings.sequential:
            orders = settings.feed.order(self._model, self._modules(list(layers)))
        groups: list[list[str]] = []
        for order in orders:
            room = 0
            for name in order:
                k = layers[name].shape[1]
                room -= 8 * k * (k if settings.gram else 1)
                if name == order[0] or room < 0:
                    groups.append([])
                    room = settings.memory_limit - 8 * k * (k if settings.gram else 1)
                groups[-1].append(name)
        return groups

    def _collect(self, group: list[str], total: int) -> dict[str, Inputs]:
        """What calibration says of the inputs of some layers; nothing without data or need."""
        settings = self._settings
        if settings.feed is None or not (settings.gram or settings.method.needs == "norms"):
            return {}
        modules = self._modules(group)
        if not modules:
            return {}
        self._tell(total, "calibration")
        return settings.feed.collect(self._model, modules, gram=settings.gram)

    def _modules(self, names: list[str]) -> dict[str, nn.Module]:
        """The dense layers of these names."""
        modules = dict(self._model.named_modules())
        for name in names:
            if name not in modules:
                raise ValueError(
                    message(
                        "calibration",
                        got=f"layer {name!r} inside a recurrent module",
                        allowed="linear layers, whose inputs can be watched",
                        fix="leave it out with filter=…, or prune by magnitude without calibration",
                    )
                )
        return {name: modules[name] for name in names}

    def _write(self, layer: Candidate) -> None:
        """Let the model compute with the pruned weight until the run is over."""
        self._original.setdefault(layer.name, layer.weight.clone())
        layer.weight.copy_(self._now[layer.name])

    def _tell(self, total: int, name: str) -> None:
        if self._settings.progress is not None:
            self._settings.progress(self._done, total, name)

    def _check_kept(self, asked: Layer, kept: Kept) -> None:
        """Hold a method, a user's own too, to what was asked."""
        count = int(kept.blocks.sum())
        wanted = asked.count if asked.given is None else int(asked.given.sum())
        if tuple(kept.blocks.shape) != asked.grid or count != wanted:
            raise ValueError(
                message(
                    f"method {self._settings.label} for layer {asked.name!r}",
                    got=f"{count} blocks of a grid {tuple(kept.blocks.shape)}",
                    allowed=f"{wanted} blocks of the grid {asked.grid}",
                    fix="return Kept(blocks, weight) with layer.count true blocks",
                )
            )


def _refuse_bare(model: nn.Module, layers: Sequence[Candidate]) -> None:
    if any(layer.name == "" for layer in layers) or isinstance(model, nn.RNNBase):
        raise ValueError(
            message(
                "model",
                got=f"a bare {type(model).__name__}, which cannot be replaced in place",
                allowed="a module that contains the layers to prune",
                fix="pass torch.nn.Sequential(layer)",
            )
        )


def _check_finite(layer: Candidate) -> None:
    if not bool(layer.weight.isfinite().all()):
        row, column = (~layer.weight.isfinite()).nonzero()[0].tolist()
        raise ValueError(
            message(
                f"layer {layer.name!r}",
                got=f"NaN or infinity in its weight at ({row}, {column})",
                allowed="finite weights",
                fix="repair the checkpoint, or leave the layer out with filter=…",
            )
        )


def _wide(weight: Tensor) -> Tensor:
    return weight.to(torch.promote_types(weight.dtype, torch.float32))


def _every(layer: Candidate) -> Bool[Tensor, "mb kb"]:
    return torch.ones(layer.grid, dtype=torch.bool, device=layer.weight.device)


def _pattern(blocks: Bool[Tensor, "mb kb"], layer: Candidate) -> Pattern:
    crow = torch.zeros(len(blocks) + 1, dtype=torch.int64, device=blocks.device)
    crow[1:] = blocks.sum(dim=1).cumsum(0)
    return Pattern(layer.shape, layer.blocksize, crow, blocks.nonzero()[:, 1])


def _masked(weight: Float[Tensor, "m k"], pattern: Pattern) -> Float[Tensor, "m k"]:
    return weight * pattern.to_mask().to(weight.dtype)
