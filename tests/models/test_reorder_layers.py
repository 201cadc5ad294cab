"""Hidden features change their order where the graph allows it, and the function stays."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sparsetile.models import from_dense
from sparsetile.models._from_dense_pairs import Pair, found_pairs
from support_models import sparse_weight


@torch.no_grad()
def scattered_(up, down, block=16, density=0.2, seed=0, conv=False):
    """Blocks of non-zeros whose hidden features are in a random order."""
    order = torch.randperm(up.weight.shape[conv], generator=torch.Generator().manual_seed(seed))
    h, k = up.weight.shape[::-1] if conv else up.weight.shape
    m = down.weight.shape[1] if conv else down.weight.shape[0]
    first = sparse_weight(h, k, block=block, density=density, seed=seed)[0][order]
    last = sparse_weight(m, h, block=block, density=density, seed=seed + 1)[0][:, order]
    up.weight.copy_(first.t() if conv else first)
    down.weight.copy_(last.t() if conv else last)


class Branch(nn.Module):
    """Two linear layers with elementwise steps between them, for torch.fx to follow."""

    def __init__(self, residual=False):
        super().__init__()
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)
        self.residual = residual

    def forward(self, x):
        h = F.gelu(self.up(x)) * 0.5
        y = self.down(F.dropout(h, 0.1, self.training))
        return y + h[..., :64] if self.residual else y


def sequential():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 64))


@pytest.mark.parametrize("make", [sequential, Branch])
def test_reordering_gathers_blocks_and_keeps_the_function(make):
    dense = make().eval().double()  # so that only a wrong order shows
    up, down = (m for m in dense.modules() if isinstance(m, nn.Linear))
    scattered_(up, down)
    x = torch.randn(7, 64, dtype=torch.float64)
    plain, before = from_dense(dense)
    model, after = from_dense(dense, reorder=True)
    torch.testing.assert_close(model(x), dense(x))
    torch.testing.assert_close(plain(x), dense(x))
    for old, new in zip(before.layers, after.layers, strict=True):
        assert new.reordered and not old.reordered
        assert (old.blocksize or 1) == 1 and new.blocksize >= 4
        assert new.bytes_after < old.bytes_after and new.zeros == old.zeros
    assert "after reordering" in str(after)


def test_chains_are_reordered_one_hidden_layer_after_the_other():
    layers = [nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 96), nn.GELU(), nn.Linear(96, 32)]
    dense = nn.Sequential(*layers)
    scattered_(layers[0], layers[2])
    pairs = found_pairs(dense)
    assert pairs == [Pair(("0",), "2"), Pair(("2",), "4")]
    model, report = from_dense(dense, reorder=True)
    x = torch.randn(3, 64)
    torch.testing.assert_close(model(x), dense(x))
    assert report["0"].reordered


FIXED = {
    "normalised": lambda: nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.Linear(128, 64)),
    "a weight for each feature": lambda: nn.Sequential(
        nn.Linear(64, 128), nn.PReLU(128), nn.Linear(128, 64)
    ),
    "softmax": lambda: nn.Sequential(nn.Linear(64, 128), nn.Softmax(-1), nn.Linear(128, 64)),
    "seen by another branch": lambda: Branch(residual=True),
}


@pytest.mark.parametrize("case", FIXED)
def test_where_the_graph_forbids_it_the_order_stays_and_the_report_says_so(case):
    dense = FIXED[case]().eval()
    up, down = (m for m in dense.modules() if isinstance(m, nn.Linear))
    scattered_(up, down)
    assert found_pairs(dense) == []
    model, report = from_dense(dense, reorder=True)
    assert not any(layer.reordered for layer in report.layers)
    assert "not reordered" in str(report) and report.layers[0].name in report.notes[0]
    x = torch.randn(3, 64)
    torch.testing.assert_close(model(x), dense(x))


def test_hooks_and_layers_used_twice_forbid_it():
    watched = sequential()
    watched[1].register_forward_hook(lambda *_: None)
    assert found_pairs(watched) == []
    twice = nn.ModuleList([sequential(), nn.Identity()])
    twice[1] = twice[0][0]
    assert found_pairs(twice) == []


def transformers_models():
    import transformers as t

    bert = t.BertConfig(
        vocab_size=30, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=16,
    )  # fmt: skip
    gpt2 = t.GPT2Config(vocab_size=30, n_embd=32, n_layer=1, n_head=2, n_positions=16)
    llama = t.LlamaConfig(
        vocab_size=30, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2,
    )  # fmt: skip
    return {
        "bert": (t.BertModel(bert), "intermediate.dense", "output.dense"),
        "gpt2": (t.GPT2Model(gpt2), "mlp.c_fc", "mlp.c_proj"),
        "llama": (t.LlamaModel(llama), "mlp.up_proj", "mlp.down_proj"),
    }


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_hidden_features_of_known_models_are_reordered(name):
    model, up_end, down_end = transformers_models()[name]
    model.eval()
    pairs = found_pairs(model)
    assert len(pairs) == (2 if name == "bert" else 1)
    pair = pairs[0]
    assert any(producer.endswith(up_end) for producer in pair.producers)
    assert pair.consumer.endswith(down_end) and "attention" not in pair.consumer
    with torch.no_grad():
        for producer in pair.producers:
            up, down = model.get_submodule(producer), model.get_submodule(pair.consumer)
            scattered_(up, down, block=8, density=0.2, conv=name == "gpt2")
    ids = torch.arange(12)[None]
    sparse, report = from_dense(model, reorder=True)
    assert report[pair.consumer].reordered and report[pair.producers[0]].reordered
    torch.testing.assert_close(
        sparse(ids).last_hidden_state, model(ids).last_hidden_state, atol=1e-5, rtol=1e-4
    )
