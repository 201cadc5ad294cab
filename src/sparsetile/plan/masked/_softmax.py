"""Softmax over stored blocks, and its gradient, executed on tiles."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float32, Shaped
from torch import Tensor

from sparsetile.machine import (
    Codelet,
    Compute,
    Copy,
    Exchange,
    MachineSpec,
    Memory,
    Profile,
    Program,
    Variable,
    even_counts,
    run,
)
from sparsetile.matrix import Pattern
from sparsetile.plan.masked._check import check_tensor
from sparsetile.plan.masked._plan import kept
from sparsetile.plan.masked._softmax_plan import (
    Pieces,
    SoftmaxPlan,
    piece_size,
    pieces_of,
    plan_softmax,
    softmax_cycles,
)

_Values = Float32[np.ndarray, "pieces height c"]


def masked_softmax(
    machine: MachineSpec | str,
    values: Shaped[Tensor, "nnzb r c"],
    patterns: Pattern | Sequence[Pattern],
    *,
    sub_block: str = "none",
    in_place: bool = False,
) -> tuple[Shaped[Tensor, "nnzb r c"], Profile]:
    """Execute the softmax of every row over what is stored of it.

    The largest value of a row is subtracted before exponentials are taken, so large values do not
    overflow. A row of which every stored value is masked, or minus infinity, becomes zeros.

    Args:
        machine: A machine, the name of a preset, or a TOML file that describes one.
        values: Stored blocks, float16 or float32, one group after the other.
        patterns: Which blocks these are; one pattern, or one for each group.
        sub_block: What counts as not stored within diagonal blocks; it becomes zero. As in
            `plan_softmax`.
        in_place: Whether the result is written over `values`, on the tiles as well.

    Returns:
        The probabilities, and what they took.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If arguments do not fit each other.
        OutOfTileMemory: If it does not fit.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import causal_pattern
        >>> pattern = causal_pattern(16, 16, blocksize=8)
        >>> p, _ = masked_softmax(
        ...     preset("bow-ipu"), torch.zeros(3, 8, 8), pattern, sub_block="zero_upper"
        ... )
        >>> p[0, 1, :3].tolist()
        [0.5, 0.5, 0.0]
    """
    plan = plan_softmax(
        machine, patterns, dtype=_dtype(values), sub_block=sub_block, in_place=in_place
    )
    return _run(plan, {"values": values}, values)


def masked_softmax_grad(
    machine: MachineSpec | str,
    probabilities: Shaped[Tensor, "nnzb r c"],
    gradient: Shaped[Tensor, "nnzb r c"],
    patterns: Pattern | Sequence[Pattern],
    *,
    in_place: bool = False,
) -> tuple[Shaped[Tensor, "nnzb r c"], Profile]:
    """Execute the gradient of `masked_softmax`.

    What was masked in the forward pass has probability zero, so it needs no mask here.

    Args:
        machine: A machine, the name of a preset, or a TOML file that describes one.
        probabilities: What `masked_softmax` returned.
        gradient: Of a loss by the probabilities, in the same dtype.
        patterns: As in `masked_softmax`.
        in_place: Whether the result is written over `gradient`, on the tiles as well.

    Returns:
        The gradient of the loss by the values, and what it took.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If arguments do not fit each other.
        OutOfTileMemory: If it does not fit.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import causal_pattern
        >>> half, given = torch.full((1, 8, 8), 0.125), torch.ones(1, 8, 8)
        >>> pattern = causal_pattern(8, 8, blocksize=8)
        >>> dx, _ = masked_softmax_grad(preset("bow-ipu"), half, given, pattern)
        >>> dx.abs().max().item()
        0.0
    """
    dtype = _dtype(probabilities)
    plan = plan_softmax(machine, patterns, dtype=dtype, in_place=in_place, gradient=True)
    return _run(plan, {"probabilities": probabilities, "gradient": gradient}, gradient)


@lru_cache(maxsize=8)
def softmax_program(plan: SoftmaxPlan) -> Program:
    """Lower a softmax to supersteps: rows are gathered, computed, and returned.

    Args:
        plan: From `plan_softmax`.

    Returns:
        The program. Inputs are the values, or probabilities and gradient, as flat arrays, block by
        block; the output is the last of them if the plan is in place.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import causal_pattern
        >>> plan = plan_softmax(preset("bow-ipu"), causal_pattern(64, 64, blocksize=16))
        >>> [step.name for step in softmax_program(plan).steps]
        ['Gather rows', 'Softmax', 'Return rows']
    """
    pieces, size, tiles = pieces_of(plan), piece_size(plan), plan.machine.tiles
    (r, c), dtype = plan.blocksize, np.dtype(plan.dtype)
    counts = even_counts(plan.blocks * r * c, tiles, r * c)
    names = ("probabilities", "gradient") if plan.gradient else ("values",)
    # Whoever does not give them away reads them again later.
    homes = tuple(Variable(name, dtype, counts, persistent=not plan.in_place) for name in names)
    result = homes[-1] if plan.in_place else Variable("result", dtype, counts)
    held = np.bincount(pieces.tile, minlength=tiles) * size
    rows = tuple(Variable(f"rows of {name}", dtype, held) for name in names)

    there = pieces.block * (r * c) + pieces.first * c
    here = np.arange(len(there)) * size
    length = np.full(len(there), size)
    gather = tuple(
        Copy(home, row, there, here, length) for home, row in zip(homes, rows, strict=True)
    )
    codelet = Codelet(
        plan.name, _Rows(plan, pieces, rows), softmax_cycles(plan, pieces), rows, rows[-1:]
    )
    steps = (
        Exchange("Gather rows", gather),
        Compute(plan.name, (codelet,)),
        Exchange("Return rows", (Copy(rows[-1], result, here, there, length),)),
    )
    return Program(f"masked {plan.name.lower()}", plan.machine, steps, homes, (result,))


class _Rows:
    """What all tiles compute on their rows; the result takes the place of the last variable."""

    def __init__(self, plan: SoftmaxPlan, pieces: Pieces, rows: tuple[Variable, ...]) -> None:
        self.shape = (-1, plan.height, plan.blocksize[1])
        self.unit = pieces.unit
        self.begin = np.flatnonzero(np.diff(pieces.unit, prepend=-1))
        self.rows = rows
        masked = pieces.diagonal if plan.sub_block != "none" else np.zeros(len(self.unit), bool)
        self.diagonal = np.flatnonzero(masked)
        self.keep = kept(pieces.row[masked], pieces.column[masked], self.shape[1:], plan.sub_block)

    def __call__(self, memory: Memory) -> None:
        if not len(self.unit):
            return
        given = [memory[row].reshape(self.shape).astype(np.float32) for row in self.rows]
        with np.errstate(over="ignore", invalid="ignore"):  # infinities are what they are
            result = self.softmax(*given) if len(given) == 1 else self.gradient(*given)
            memory[self.rows[-1]][:] = result.reshape(-1)

    def softmax(self, x: _Values) -> _Values:
        x[self.diagonal] = np.where(self.keep, x[self.diagonal], -np.inf)
        top = np.maximum.reduceat(x.max(axis=2), self.begin)[self.unit]
        # A row whose values are all masked has no largest one.
        x -= np.where(top == -np.inf, 0, top)[:, :, None]
        np.exp(x, out=x)
        total = np.add.reduceat(x.sum(axis=2), self.begin)[self.unit]
        x /= np.where(total == 0, 1, total)[:, :, None]
        return x

    def gradient(self, y: _Values, dy: _Values) -> _Values:
        dy -= np.add.reduceat((y * dy).sum(axis=2), self.begin)[self.unit][:, :, None]
        dy *= y
        return dy


def _run(
    plan: SoftmaxPlan, given: dict[str, Shaped[Tensor, "nnzb r c"]], last: Tensor
) -> tuple[Shaped[Tensor, "nnzb r c"], Profile]:
    shape = (plan.blocks, *plan.blocksize)
    for name, tensor in given.items():
        check_tensor(name, tensor, shape, plan.dtype)
    program = softmax_program(plan)
    flat: list[npt.NDArray[np.generic]] = [
        tensor.numpy(force=True).reshape(-1) for tensor in given.values()
    ]
    done = run(program, dict(zip(program.inputs, flat, strict=True)))
    result = torch.from_numpy(done.values[program.outputs[0]].reshape(shape))
    if plan.in_place:
        with torch.no_grad():
            result = last.copy_(result)
    return result, done.profile


def _dtype(values: Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")
