"""What the tests of pruning share: correlated inputs, layers of them, and plain references."""

import torch
from torch import nn

from sparsetile.prune import Inputs, Layer


def correlated(n, k, seed=0, dtype=torch.float64):
    """Inputs whose features depend on each other, with a spectrum that falls."""
    generator = torch.Generator().manual_seed(seed)
    # One mixture for all seeds of one width.
    mixture = torch.randn(k, k, generator=torch.Generator().manual_seed(k), dtype=torch.float64)
    scales = torch.logspace(0.5, -1.5, k, dtype=torch.float64)
    latent = torch.randn(n, k, generator=generator, dtype=torch.float64) * scales
    noise = torch.randn(n, k, generator=generator, dtype=torch.float64)
    return (latent @ torch.linalg.qr(mixture)[0] + 0.1 * noise).to(dtype)


def layer_of(weight, blocksize, density, x=None, **options):
    """A layer as methods see it."""
    block = (blocksize, blocksize) if isinstance(blocksize, int) else blocksize
    layer = Layer(name="up", weight=weight, blocksize=block, count=0)
    count = max(round(density * layer.live.numel()), 1)
    inputs = None if x is None else Inputs.of(x)
    return Layer(name="up", weight=weight, blocksize=block, count=count, inputs=inputs, **options)


def mask_of(blocks, layer):
    """Kept elements."""
    (m, k), (r, c) = layer.weight.shape, layer.blocksize
    return blocks.repeat_interleave(r, 0)[:m].repeat_interleave(c, 1)[:, :k]


def dense_net(dtype=torch.float32, seed=0):
    """A small dense model."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(36, 64), nn.Tanh(), nn.Linear(64, 18)).to(dtype)
