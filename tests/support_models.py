"""Checkpoints as other libraries write them, byte by byte from what is known of their formats."""

import json

import torch
from safetensors.torch import save_file
from torch import nn


def sparse_weight(m, k, *, block=1, density=0.3, seed=0, dtype=torch.float32):
    """A weight full of zeros, and which blocks of it are kept."""
    generator = torch.Generator().manual_seed(seed)
    blocks = torch.rand(-(-m // block), -(-k // block), generator=generator) < density
    blocks[0, 0] = True
    mask = blocks.repeat_interleave(block, 0)[:m].repeat_interleave(block, 1)[:, :k]
    weight = torch.randn(m, k, generator=generator).to(dtype)
    weight[weight == 0] = 1
    return torch.where(mask, weight, torch.zeros((), dtype=dtype)), mask


def bits_of(mask):
    """Eight columns a byte, the first in the lowest bit, as compressed-tensors packs them."""
    m, k = mask.shape
    padded = torch.zeros(m, -(-k // 8) * 8, dtype=torch.uint8)
    padded[:, :k] = mask
    return (padded.view(m, -1, 8) << torch.arange(8)).sum(dim=2).to(torch.uint8)


def bitmask_parts(name, weight):
    mask = weight != 0
    each = mask.sum(dim=1)
    return {
        f"{name}.shape": torch.tensor(weight.shape),
        f"{name}.compressed": weight[mask],
        f"{name}.bitmask": bits_of(mask),
        f"{name}.row_offsets": each.cumsum(0) - each,
    }


def bitmask24_parts(name, weight, mask):
    return {
        f"{name}.shape": torch.tensor(weight.shape).view(2, 1),
        f"{name}.compressed": weight[mask].view(weight.shape[0], -1),
        f"{name}.bitmask": bits_of(mask),
    }


def two_of_four(m, k, seed=0):
    """A mask of exactly two in each four, and a weight with a kept zero."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(m, k // 4, 4, generator=generator).argsort(dim=2)
    mask = (order < 2).flatten(1)
    weight = torch.where(mask, torch.randn(m, k, generator=generator), torch.zeros(()))
    weight[0, int(mask[0].nonzero()[0])] = 0
    return weight, mask


def block_sparse_parts(name, weight, side=32):
    """pytorch_block_sparse: blocks under each other, each transposed."""
    m, k = weight.shape
    grid = weight.view(m // side, side, k // side, side).transpose(1, 2)
    mask = (grid != 0).any(dim=3).any(dim=2)
    at = mask.nonzero()
    count = len(at)
    starts = torch.nn.functional.pad(mask.sum(dim=1).cumsum(0), (1, 0)).int()
    return {
        f"{name}.data": grid[mask].transpose(1, 2).reshape(count * side, side).clone(),
        f"{name}.block_mask": mask,
        f"{name}.cols_a": torch.stack([at[:, 1], torch.arange(count)], dim=1).int(),
        f"{name}.row_start_ends_a": starts,
        f"{name}.rows_b": torch.zeros(count, 2, dtype=torch.int32),
        f"{name}.col_start_ends_b": torch.zeros(k // side + 1, dtype=torch.int32),
        f"{name}.blocks": at.flip(-1).flatten().int(),
    }


def bsr_parts(weight, side):
    """Offsets, columns and blocks, as torch's own BSR has them."""
    t = weight.to_sparse_bsr((side, side))
    return t.crow_indices(), t.col_indices(), t.values()


def torchao_parts(name, weight, side, dot="."):
    crow, col, values = bsr_parts(weight, side)
    return {
        f"{name}{dot}bsr_crow_indices": crow,
        f"{name}{dot}bsr_col_indices": col,
        f"{name}{dot}bsr_values": values,
    }


def stk_parts(name, weight, side):
    crow, col, values = bsr_parts(weight, side)
    rows = torch.arange(len(crow) - 1).repeat_interleave(crow.diff())
    return {
        f"{name}.data": values.half(),
        f"{name}.row_indices": rows.short(),
        f"{name}.column_indices": col.short(),
        f"{name}.offsets": crow.int(),
    }


def write(path, tensors, **metadata):
    """Write tensors by suffix."""
    if path.suffix == ".safetensors":
        save_file({k: v.contiguous() for k, v in tensors.items()}, path, metadata or None)
    else:
        torch.save(tensors, path)
    return path


def write_shards(folder, tensors, suffix=".safetensors"):
    """Two shards with an index, as Hugging Face lays them out."""
    names = list(tensors)
    stem = "model" if suffix == ".safetensors" else "pytorch_model"
    places = {}
    for i, some in enumerate((names[::2], names[1::2])):
        shard = f"{stem}-0000{i + 1}-of-00002{suffix}"
        write(folder / shard, {name: tensors[name] for name in some})
        places |= dict.fromkeys(some, shard)
    index = folder / f"{stem}{suffix}.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return index


def mlp(k=16, h=32, m=8, bias=True):
    return nn.Sequential(nn.Linear(k, h, bias=bias), nn.GELU(), nn.Linear(h, m, bias=bias))


class OneLinear(nn.Module):
    """A model of a single linear layer, `up`."""

    def __init__(self, k, m):
        super().__init__()
        self.up = nn.Linear(k, m, bias=False)

    def forward(self, x):
        return self.up(x)
