"""Dynamic plans made by hand for tests, and vertices that read the words one by one."""

import math
from dataclasses import replace

import numpy as np
import torch

from sparsetile import BSR
from sparsetile.machine import MachineSpec
from sparsetile.plan.dynamic._plan import DynamicOptions, DynamicPlan


def machine(tiles, workers=6):
    """A machine of so many tiles."""
    return MachineSpec(
        name="test",
        tiles=tiles,
        memory_per_tile=2**20,
        clock_hz=1e9,
        exchange_bytes_per_cycle=4,
        memory_bytes_per_cycle=16,
        flops_float16=64,
        flops_mixed=32,
        flops_float32=16,
        workers=workers,
    )


def up(number, grain):
    return -(-number // grain) * grain


def make_plan(
    shape,
    n,
    blocksize,
    density,
    cut,
    *,
    kernel=None,
    dtype="float32",
    workers=6,
    changes=None,
    **options,
):
    """Cut as asked for, with buckets of the sizes that poplibs' planner gives them."""
    (m, k), (x, y, z), options = shape, cut, DynamicOptions(**options)
    kernel = kernel or blocksize
    (r, c), area = kernel, kernel[0] * kernel[1]
    blocks = math.ceil(m * k / (blocksize[0] * blocksize[1]) * density)
    blocks *= blocksize[0] * blocksize[1] // area
    x_size, y_size = up(up(m, x) // x, r), up(up(k, y) // y, c)
    grain = 1 if area > 1 else 4 if dtype == "float16" else 2
    more = 1 + options.oversize
    capacity = round(-(-blocks // (x * y * z)) * more)
    values = up(capacity * area, 2) if area == 1 else capacity * area
    rows = math.ceil(x_size // r * (1 - (1 - density) ** (y_size // c)))
    each = -(-math.ceil(x_size // r * (y_size // c) * density) // max(1, rows))
    if area > 1:
        fixed = 2 * (7 + options.grad_w * workers * 4)
    else:
        fixed = 2 * (9 + workers * (5 + options.grad_w * 5))
    meta = up(fixed + math.ceil(rows * (2 + each) * more), 4)
    own = area == 1 and not options.shared_buckets
    grad_a = up(2 * (9 + workers * 5) + math.ceil(rows * (2 + 2 * each) * more), 4) if own else 0
    plan = DynamicPlan(
        machine=machine(x * y * z, workers),
        m=m,
        k=k,
        n=n,
        blocksize=blocksize,
        kernel_block=kernel,
        max_blocks=blocks,
        dtype=dtype,
        options=options,
        x=x,
        y=y,
        z=z,
        x_size=x_size,
        y_size=y_size,
        z_size=up(up(n, z) // z, grain),
        methods=("Forward", "Transpose", "GradW"),
        exchange_buckets=True,
        bucket_values=values,
        bucket_meta=meta,
        bucket_meta_grad_a=grad_a,
    )
    return replace(plan, **(changes or {}))


def draw(plan, density, seed=0):
    """A random matrix in the plan's blocks and dtype."""
    A = BSR.random(plan.m, plan.k, blocksize=plan.blocksize, density=density, seed=seed)
    return A.to(getattr(torch, plan.dtype))


def same(A, B):
    """Whether two matrices store the same blocks with the same values."""
    return A.pattern == B.pattern and torch.equal(A.values, B.values)


class PlainVertex:
    """Multiplies with the words of one bucket as a tile's vertex would: word by word."""

    def __init__(self, encoded, bucket, which="fwd"):
        self.plan, self.which = encoded.plan, which
        meta = encoded.meta_buckets if which == "fwd" else encoded.meta_buckets_grad_a
        self.meta = meta[bucket].tolist()
        self.values = encoded.value_buckets[bucket]
        self.scale = 4 if self.plan.dtype == "float32" else 2
        self.block = self.plan.kernel_block != (1, 1)

    def subgroups(self):
        """Where each subgroup begins, its first value, and the corner of its part of W."""
        at = value = 0
        while self.meta[at]:
            number = self.meta[at] - 1
            ix, iy = number // self.plan.y, number % self.plan.y
            assert self.meta[at + 1 : at + 3] == [ix, iy]
            yield at, value, ix * self.plan.x_size, iy * self.plan.y_size
            value += self.meta[at + 3]
            at += self.meta[at + 4]

    def rows(self, at, count):
        """Row and, for each non-zero, column (and value to gather) of so many rows."""
        for _ in range(count):
            row, size = self.meta[at], self.meta[at + 1] + self.block
            at += 2
            step = 2 if self.which == "grad_a" else 1
            words = self.meta[at : at + step * size]
            yield row, words[step - 1 :: step], words[::step]
            at += step * size

    def elements(self, S):
        """W·S, or Wᵀ·S with words of its own: each worker does its rows and columns of S."""
        out = np.zeros((self.plan.m if self.which == "fwd" else self.plan.k, S.shape[1]))
        for at, value, x, y in self.subgroups():
            if self.which == "grad_a":
                x, y = y, x
            num_z, workers = self.meta[at + 5], self.meta[at + 8]
            assert 1 <= workers <= self.plan.machine.workers
            first, done = at + self.meta[at + 7], 0
            for w in range(workers):
                entry = at + 9 + 5 * w
                offset, z_size, z, rows, away = self.meta[entry : entry + 5]
                assert entry + away >= first
                position = value + offset
                for row, columns, gathered in self.rows(entry + away, rows + 1):
                    for i, column in enumerate(columns):
                        local = column // (self.scale * num_z)
                        from_ = position if self.which == "fwd" else value + gathered[i]
                        number = float(self.values[from_])
                        out[x + row, z : z + z_size] += number * S[y + local, z : z + z_size]
                        position += 1
                        done += len(range(*slice(z, z + z_size).indices(num_z)))
            assert done == self.meta[at + 3] * num_z
        return out

    def blocks(self, S):
        """W·S in blocks."""
        out, (r, c) = np.zeros((self.plan.m, S.shape[1])), self.plan.kernel_block
        for at, value, x, y in self.subgroups():
            first = at + 7 + 4 * self.meta[at + 6]
            for row, columns, _ in self.rows(first, self.meta[at + 5] + 1):
                for column in columns:
                    W = self.values[value : value + r * c].reshape(r, c).astype(np.float64)
                    out[x + row : x + row + r] += W @ S[y + column : y + column + c]
                    value += r * c
        return out

    def weight_gradient(self, S, Q):
        """Q·Sᵀ at the non-zeros, laid out as the values: each worker does its share."""
        out, (r, c) = np.zeros(len(self.values)), self.plan.kernel_block
        for at, value, x, y in self.subgroups():
            if self.block:
                first, workers, scale = at + 7, self.meta[at + 6], 1
            else:
                counted = at + 9 + 5 * self.meta[at + 8]
                first, workers = counted + 1, self.meta[counted]
                scale = self.scale * self.meta[at + 5]
            assert 1 <= workers <= self.plan.machine.workers
            for w in range(workers):
                entry = first + 4 * w
                offset, away, skipped, total = self.meta[entry : entry + 4]
                row_at = entry + away
                place = value + offset * r * c
                while total:
                    row, size = self.meta[row_at], self.meta[row_at + 1] + self.block
                    for column in self.meta[row_at + 2 + skipped : row_at + 2 + size][:total]:
                        i, j = x + row, y + column // scale
                        got = Q[i : i + r] @ S[j : j + c].T
                        assert not out[place : place + r * c].any()
                        out[place : place + r * c] = got.reshape(-1)
                        place, total = place + r * c, total - 1
                    row_at, skipped = row_at + 2 + size, 0
        return out
