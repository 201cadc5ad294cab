"""Small dynamic plans made by hand, and what products that run on tiles are compared with."""

import dataclasses
import math

import numpy as np
import torch

import sparsetile
from sparsetile import BSR
from sparsetile.machine import MachineSpec, Profile
from sparsetile.plan.dynamic import _encode
from sparsetile.plan.dynamic._cut import Pieces
from sparsetile.plan.dynamic._decode import decode, decode_values
from sparsetile.plan.dynamic._encode import encode
from sparsetile.plan.dynamic._encoded import Encoded
from sparsetile.plan.dynamic._plan import DynamicOptions, DynamicPlan
from sparsetile.plan.dynamic._run import run_dynamic

# Subgroups that a bucket has room for, far more than plans count on.
_SUBGROUPS = 24


def tiles_machine(tiles: int) -> MachineSpec:
    """A machine of a few tiles with much memory."""
    return MachineSpec(
        name=f"{tiles} tiles",
        tiles=tiles,
        memory_per_tile=1 << 24,
        clock_hz=1e9,
        exchange_bytes_per_cycle=4,
        memory_bytes_per_cycle=24,
        flops_float16=128,
        flops_mixed=64,
        flops_float32=32,
        workers=6,
        tiles_per_bus=2 - tiles % 2,
    )


def hand_plan(
    A: BSR,
    n: int,
    cut: tuple[int, int, int],
    tiles: int | None = None,
    amp: bool = False,
    exchange_buckets: bool = True,
    slack: int = 0,
    kernel: tuple[int, int] | None = None,
    **options: object,
) -> DynamicPlan:
    """A plan that has room for a matrix, with `slack` more blocks in each bucket."""
    (m, k), (r, c) = A.shape, kernel or A.blocksize
    x, y, z = cut
    settings = {"oversize": 0.0, "grad_w": True, **options}
    chosen = DynamicOptions(x=x, y=y, z=z, **settings)
    element = (r, c) == (1, 1)
    blocks = A.nnzb * (A.blocksize[0] // r) * (A.blocksize[1] // c)
    room = max(1, math.ceil(math.ceil(blocks / (x * y * z)) * (1 + chosen.oversize)) + slack)
    rows, columns = -(-(m // r) // x), -(-(k // c) // y)
    heads = _SUBGROUPS * (9 + 6 * 5 + 1 + 6 * 4)
    separate = element and not chosen.shared_buckets
    if element:
        methods = ("Forward", "GradA" if separate else "Transpose", "GradW")
    else:
        methods = ("ForwardAMPBlock", "TransposeAMPBlock", "GradWAMPBlock" if amp else "GradWBlock")
    return DynamicPlan(
        machine=tiles_machine(tiles or x * y * z),
        m=m,
        k=k,
        n=n,
        blocksize=A.blocksize,
        kernel_block=(r, c),
        max_blocks=blocks,
        dtype=str(A.dtype).removeprefix("torch."),
        options=chosen,
        x=x,
        y=y,
        z=z,
        x_size=rows * r,
        y_size=columns * c,
        z_size=-(-n // z),
        methods=methods,
        exchange_buckets=exchange_buckets,
        bucket_values=room * r * c,
        bucket_meta=heads + 3 * room,
        bucket_meta_grad_a=heads + 4 * room if separate else 0,
    )


def draw(
    m: int,
    k: int,
    block: tuple[int, int],
    density: float,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    heavy: tuple[slice, slice, float] | None = None,
) -> BSR:
    """A random matrix, with a region that is `heavy` times as dense if one is given."""
    generator = torch.Generator().manual_seed(seed)
    chance = torch.full((m // block[0], k // block[1]), density)
    if heavy:
        rows, columns, factor = heavy
        chance[rows, columns] *= factor
    mask = torch.rand(chance.shape, generator=generator) < chance
    mask = mask.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    pattern = sparsetile.pattern_of(mask, block)
    return BSR(torch.randn(pattern.nnzb, *block, generator=generator).to(dtype), pattern)


def moved(plan: DynamicPlan, A: BSR, seed: int) -> Encoded:
    """Encode, but leave each subgroup in any bucket with room for it."""
    rng = np.random.default_rng(seed)

    def spill(pieces: Pieces, plan: DynamicPlan) -> Pieces:
        return dataclasses.replace(
            pieces, bucket=rng.integers(0, plan.tiles, len(pieces.bucket), dtype=np.int64)
        )

    before = _encode.spill
    _encode.spill = spill
    try:
        return encode(plan, A)
    finally:
        _encode.spill = before


def dense_operands(plan: DynamicPlan, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """`x[k, n]` and `dy[m, n]`, normal."""
    generator = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, plan.dtype)
    x, dy = (torch.randn(rows, plan.n, generator=generator) for rows in (plan.k, plan.m))
    return x.to(dtype), dy.to(dtype)


def check_passes(
    plan: DynamicPlan,
    A: BSR,
    encoded: Encoded,
    passes: tuple[str, ...] = ("fwd", "grad_a", "grad_w"),
) -> dict[str, Profile]:
    """Run passes and compare each with dense float64 and with the reference back end."""
    x, dy = dense_operands(plan)
    W = A.to_dense().double()
    profiles = {}
    for pass_ in passes:
        if pass_ == "grad_w":
            values, profile = run_dynamic(plan, encoded, dy, x, pass_=pass_)
            got = decode_values(encoded, values.numpy())
            pattern = decode(encoded).pattern
            assert pattern == A.pattern
            wide = BSR.from_dense(dy.double() @ x.double().T, A.blocksize, pattern=pattern)
            most = BSR.from_dense(
                dy.double().abs() @ x.double().abs().T, A.blocksize, pattern=pattern
            )
            exact, size = wide.values, most.values
            with sparsetile.backend("reference"):
                ours = sparsetile.sddmm(dy, x.T, pattern)
        else:
            operand = x if pass_ == "fwd" else dy
            left = W if pass_ == "fwd" else W.T
            got, profile = run_dynamic(plan, encoded, operand, pass_=pass_)
            exact, size = left @ operand.double(), left.abs() @ operand.double().abs()
            with sparsetile.backend("reference"):
                ours = A @ operand if pass_ == "fwd" else A.T @ operand
        assert str(got.dtype) == f"torch.{plan.dtype}" and got.shape == exact.shape
        assert_close(plan, got, exact, size, profile)
        assert_close(plan, got, ours.double(), size, profile)
        profiles[pass_] = profile
    return profiles


def assert_close(
    plan: DynamicPlan, got: torch.Tensor, exact: torch.Tensor, size: torch.Tensor, profile: Profile
) -> None:
    """Compare; `size` is the sum of the products' magnitudes.

    float32 keeps 1e-5 of it. float16 results are rounded once, and twice against a reference that
    is rounded too; float16 partial sums are rounded every time that tiles compute on a bucket, and
    when they are sent to be added up.
    """
    if plan.dtype == "float32":
        bound = 1e-5 * size
    else:
        times = 2
        if plan.options.partials == "float16":
            times += 2 + sum(p.times for p in profile.phases if p.name.endswith(" compute"))
        bound = (times * 2**-11 + 1e-5) * size
    assert ((got.double() - exact).abs() <= bound + 1e-6).all()


def times(profile: Profile, name: str, kind: str = "compute") -> int:
    """How often a phase ran."""
    return sum(p.times for p in profile.phases if (p.name, p.kind) == (name, kind))
