"""The plan of a product with few columns."""

import struct
from dataclasses import replace
from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor

from sparsetile.ops.cpu._call import Call
from sparsetile.ops.cpu._decode import LAYOUT, DecodeKernel
from sparsetile.ops.cpu._decode_mask import LANES, mask_of
from sparsetile.ops.cpu._index import Index
from sparsetile.ops.cpu._isa import host, second_cache
from sparsetile.ops.cpu._jit import load
from sparsetile.ops.cpu._number import BF16, Numbers
from sparsetile.ops.cpu._scratch import scratch
from sparsetile.ops.cpu._threads import run, thread_count

MOST_COLUMNS = 15
_MOST_PREPARED = 64
# The addresses of a call lie side by side: one write sets them all.
_ADDRESSES = struct.Struct("5q")
_FIRST = 8 * LAYOUT.slots("x")[0]
assert [8 * slot - _FIRST for slot in LAYOUT.slots("x", "y", "own", "values", "bias")] == [
    *range(0, _ADDRESSES.size, 8)
]
_AHEAD = 8192  # bytes of values asked for ahead where they do not fit the second cache
# Density of single numbers from which on a bit for each pays: spread as pairs, spread as they are
# loaded, or afterwards.
_DENSE_PAIRS, _DENSE, _DENSE_AFTER = 0.17, 0.22, 0.3
_SMALL = 256  # bytes of blocks whose indices are worth shortening


class _Prepared(NamedTuple):
    """A compiled kernel and its argument array, with all that does not change between calls."""

    worker: int
    template: Call
    own_bytes: int  # of all threads


class DecodePlan:
    """What multiplying few columns by one matrix needs that depends on its pattern alone.

    Args:
        index: The blocks of the matrix as multiplied.
        block: Rows and columns of a block.
        shape: Rows and columns of the matrix.
        numbers: The formats of the operands.
    """

    def __init__(
        self, index: Index, block: tuple[int, int], shape: tuple[int, int], numbers: Numbers
    ) -> None:
        self.index, self.block, self.numbers = index, block, numbers
        self.m, self.k = shape
        self._stored = index.nnzb * block[0] * block[1]
        self._no_bias = torch.zeros(self.m, dtype=torch.float32)  # zeros of any format
        short = block[0] * block[1] * numbers.values.size < _SMALL and self.k // block[1] < 2**16
        self._col = index.col.to(torch.int16) if short else index.col
        self._mask: Tensor | None = None
        self._lock = Lock()
        self._prepared: dict[tuple[int, int, int, str, int], _Prepared] = {}

    def multiply(
        self, values: Tensor, x: Tensor, y: Tensor, bias: Tensor | None, activation: str = ""
    ) -> None:
        """Compute y[n, m] = activation(x[n, k] · Wᵀ + bias); lines of x and y are contiguous."""
        columns = x.size(0)
        threads = thread_count(self._stored * columns)
        key = (columns, x.stride(0), y.stride(0), activation, threads)
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self._prepare(*key)
        worker, template, own_bytes = prepared
        call = type(template).from_buffer_copy(template)
        bias = self._no_bias if bias is None else bias.contiguous()
        own = scratch("decode", own_bytes)
        addresses = (x.data_ptr(), y.data_ptr(), own, values.data_ptr(), bias.data_ptr())
        _ADDRESSES.pack_into(call, _FIRST, *addresses)
        run(worker, call, threads)

    def _prepare(
        self, columns: int, x_step: int, y_step: int, activation: str, threads: int
    ) -> _Prepared:
        isa, numbers, col = host(), self.numbers, self._col
        expands = isa.has_amx  # those processors spread 16-bit numbers as they load them
        walk, size = "blocks", self.block[0] * self.block[1]
        if size < 16:  # few pairs fill no vector
            numbers = replace(numbers, pairs=False)
        if self.block == (1, 1) and columns <= 2 and isa.lanes == LANES:
            walk, mask = "gather", self._mask_of(expands)
            if mask is not None:
                walk, col = "mask", mask
                numbers = replace(numbers, pairs=expands and self._both_bf16)
        far = self._stored * self.numbers.values.size > second_cache() // 2
        kernel = DecodeKernel(
            most_lanes=isa.lanes,
            registers=isa.registers,
            block=self.block,
            columns=columns,
            numbers=numbers,
            activation=activation,
            index_bits=8 * self._col.element_size(),
            ahead=_AHEAD if far else 0,
            walk=walk,
            expands=expands,
        )
        tasks = 4 * threads if threads > 1 else 1
        own_bytes = kernel.own_bytes(self.k)
        template = LAYOUT.new(
            tasks=tasks,
            m=self.m,
            k=self.k,
            x_stride=x_step * numbers.x.size,
            y_stride=y_step * numbers.y.size,
            own_bytes=own_bytes,
            crow=self.index.crow.data_ptr(),
            col=col.data_ptr(),
            bounds=self.index.bounds(tasks).data_ptr(),
        )
        prepared = _Prepared(load(kernel, ["run"])["run"], template, own_bytes * threads)
        if len(self._prepared) >= _MOST_PREPARED:
            self._prepared.clear()
        self._prepared[columns, x_step, y_step, activation, threads] = prepared
        return prepared

    @property
    def _both_bf16(self) -> bool:
        return self.numbers.x is BF16 and self.numbers.values is BF16

    def _mask_of(self, expands: bool) -> Tensor | None:
        """Return a bit for each number, where so many are stored that this is the faster way."""
        dense = _DENSE_PAIRS if self._both_bf16 else _DENSE
        if self.numbers.values.size == 2 and not expands:
            dense = _DENSE_AFTER
        if self._stored < dense * self.m * self.k:
            return None
        with self._lock:  # the address is kept: a second mask must not take the first one's place
            if self._mask is None:
                self._mask = mask_of(self.index, self.k)
            return self._mask
