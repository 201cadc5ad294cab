"""Generation with a cache: the same tokens as the dense model of the same weights."""

import copy

import pytest
import torch

from sparsetile.models import from_pretrained, save_pretrained
from sparsetile.nn import BlockSparse, densify_, sparsify_
from support_transformers import gpt2, llama

WAYS = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "temperature": 1.3, "top_k": 12},
    "beams": {"do_sample": False, "num_beams": 3},
}


@pytest.fixture(scope="module", params=[gpt2, llama], ids=["gpt2", "llama"])
def models(request, tmp_path_factory):
    """A model from a folder, and the dense one with the same weights, in float64.

    So rounding, which differs between the two, does not decide between tokens.
    """
    torch.manual_seed(0)
    model = sparsify_(request.param(), density=0.5, blocksize=8, embeddings=True)
    folder = save_pretrained(model, tmp_path_factory.mktemp("m") / "m")
    model = from_pretrained(folder, dtype=torch.float64)
    dense = densify_(copy.deepcopy(model))
    assert any(isinstance(m, BlockSparse) for m in model.modules())
    assert not any(isinstance(m, BlockSparse) for m in dense.modules())
    return model, dense


def prompts(batch):
    """Prompts of several lengths, padded on the left."""
    ids = torch.randint(1, 64, (batch, 6), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids)
    for row in range(1, batch):
        mask[row, : 2 * row - 1] = 0
    return ids * mask, mask


def written(model, batch, **options):
    ids, mask = prompts(batch)
    torch.manual_seed(7)
    with torch.inference_mode():
        return model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=10,
            min_new_tokens=10,
            pad_token_id=0,
            **options,
        )


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_tokens_are_those_of_the_dense_model(way, batch, models):
    model, dense = models
    got = written(model, batch, **way)
    assert got.shape == (batch, 16)
    assert torch.equal(got, written(dense, batch, **way))
    assert torch.equal(got, written(model, batch, use_cache=False, **way))


def test_padding_on_the_left_changes_nothing(models):
    model, _ = models
    ids, mask = prompts(3)
    together = written(model, 3, do_sample=False)
    for row in range(3):
        alone = ids[row][mask[row].bool()][None]
        got = model.generate(
            alone,
            attention_mask=torch.ones_like(alone),
            max_new_tokens=10,
            min_new_tokens=10,
            pad_token_id=0,
            do_sample=False,
        )
        assert torch.equal(got[0, -10:], together[row, -10:])
