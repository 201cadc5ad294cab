"""What the tests of training share: a small model, its data, and a run of it."""

import io

import torch
from torch import nn

from sparsetile.nn import sparsify_
from sparsetile.train import GMP, ITOP, MEST, SET, SNFS, DynSparse, RigL, SRigL, Static

STEPS = 20
# Every published method, with updates after steps 4, 8, … or so.
METHODS = {
    "static": lambda: Static(),
    "dynsparse": lambda: DynSparse(total_steps=STEPS, every=4, seed=3),
    "set": lambda: SET(total_steps=STEPS, every=4, seed=3),
    "rigl": lambda: RigL(total_steps=STEPS, every=4, seed=3),
    "rigl_candidates": lambda: RigL(total_steps=STEPS, every=4, candidates=1.0, seed=3),
    "itop": lambda: ITOP(total_steps=STEPS, every=4, seed=3),
    "itop_gradient": lambda: ITOP(total_steps=STEPS, every=4, grow="gradient", seed=3),
    "mest": lambda: MEST(total_steps=STEPS, every=4, ratios=(0.2, 0.1, 0.0), seed=3),
    "mest_soft": lambda: MEST(total_steps=STEPS, every=4, ratios=(0.2, 0.1, 0.0), soft=True),
    "snfs": lambda: SNFS(total_steps=STEPS, every=4, seed=3),
    "snfs_apart": lambda: SNFS(total_steps=STEPS, every=4, redistribute=False, seed=3),
    "gmp": lambda: GMP(density=0.1, total_steps=STEPS, every=4),
    "gmp_global": lambda: GMP(density=0.1, total_steps=STEPS, every=4, scope="global"),
    "srigl": lambda: SRigL(total_steps=STEPS, every=4, seed=3),
}
# Those whose layers keep their number of blocks in every update.
KEEPING = [n for n in METHODS if n not in ("mest_soft", "snfs", "gmp", "gmp_global")]
# Those whose layers together do.
CONSERVING = [*KEEPING, "snfs"]


def make(seed=0, blocksize=4, dtype=torch.float32, density=0.25):
    """Two sparse layers and an optimizer."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(36, 64), nn.Tanh(), nn.Linear(64, 18)).to(dtype)
    sparsify_(model, density=density, blocksize=blocksize)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def batch(step, dtype=torch.float32):
    """The inputs of one step."""
    generator = torch.Generator().manual_seed(step)
    return torch.randn(32, 36, generator=generator, dtype=dtype)


def run(model, optimizer, steps):
    """Train on the batches of these steps."""
    dtype = next(model.parameters()).dtype
    for step in steps:
        optimizer.zero_grad()
        x = batch(step, dtype)
        (model(x) - x[:, :18]).square().mean().backward()
        optimizer.step()


def roundtrip(state):
    """A state as it comes back from a file."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)
