"""Models with sparse layers go to a folder and come back, bit by bit, without dense weights."""

import json

import pytest
import torch
from torch import nn

from sparsetile import nn as stnn
from sparsetile.models import from_pretrained, save_pretrained
from sparsetile.nn import BlockSparse, Embedding, TiedHead, sparsify_
from support_ops import most_bytes
from support_transformers import bert, gpt2, llama, t5, transformers

MODELS = {
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "llama, own head": lambda **options: llama(tie_word_embeddings=False, **options),
    "t5": t5,
}


def in_blocks(module, name):
    """Linear layers of the blocks, and the table of tokens."""
    if isinstance(module, nn.Embedding):
        return name.split(".")[-1] in ("word_embeddings", "wte", "embed_tokens", "shared")
    return any(f"{part}." in f".{name}" for part in (".layer", ".layers", ".block", ".h"))


def sparse(make, embeddings=True, **options):
    torch.manual_seed(0)
    model = make(**options)
    return sparsify_(
        model, density=0.5, blocksize=8, filter=in_blocks, embeddings=embeddings
    ).eval()


def tokens():
    return torch.randint(1, 64, (3, 10), generator=torch.Generator().manual_seed(1))


def logits(model):
    ids = tokens()
    with torch.no_grad():
        return model(input_ids=ids, labels=ids).logits


def assert_same(model, again):
    mine, theirs = model.state_dict(), again.state_dict()
    assert list(mine) == list(theirs)
    for name, tensor in mine.items():
        assert tensor.dtype == theirs[name].dtype and torch.equal(tensor, theirs[name]), name


@pytest.mark.parametrize("embeddings", [False, True])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_model_comes_back_bit_by_bit(make, embeddings, tmp_path):
    model = sparse(make, embeddings)
    before = torch.get_rng_state()
    again = from_pretrained(save_pretrained(model, tmp_path / "m"))
    assert torch.equal(torch.get_rng_state(), before)
    assert type(again) is type(model) and not again.training
    assert_same(model, again)
    assert torch.equal(logits(model), logits(again))
    kinds = [[type(m) for m in each.modules()] for each in (model, again)]
    assert kinds[0] == kinds[1]
    if embeddings and model.config.tie_word_embeddings:
        assert isinstance(again.get_output_embeddings(), TiedHead)
        assert again.get_output_embeddings().embedding is again.get_input_embeddings()
    shared = [{id(p) for p in each.parameters()} for each in (model, again)]
    assert len(shared[0]) == len(shared[1])
    again.train()(input_ids=tokens(), labels=tokens()).loss.backward()
    assert_same(again, from_pretrained(save_pretrained(again, tmp_path / "m")))


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_what_transformers_itself_saves_is_loaded(make, tmp_path):
    model = sparse(make)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    again = from_pretrained(tmp_path)
    assert_same(model, again)
    assert torch.equal(logits(model), logits(again))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_model_comes_back_in_another_dtype(dtype, tmp_path):
    model = sparse(gpt2)
    again = from_pretrained(save_pretrained(model, tmp_path / "m"), dtype=dtype)
    assert {p.dtype for p in again.parameters()} == {dtype} == {again.dtype}
    assert_same(model.to(dtype), again)
    assert torch.equal(logits(model), logits(again))
    # and in the dtype it has, without being told
    assert_same(again, from_pretrained(save_pretrained(again, tmp_path / "half")))


class Plain(nn.Module):
    """Several kinds of layers, two weights that are one, and a buffer."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(24, 20, padding_idx=3)
        self.rnn = nn.LSTM(20, 12, bidirectional=True, batch_first=True)
        self.norm = nn.BatchNorm1d(24)
        self.up, self.down = nn.Linear(24, 36), nn.Linear(36, 24)
        self.one, self.other = nn.Linear(24, 24), nn.Linear(24, 24, bias=False)
        self.other.weight = self.one.weight

    def forward(self, ids):
        x, _ = self.rnn(self.table(ids))
        x = self.norm(x.flatten(0, 1))
        return self.other(self.one(self.down(self.up(x).relu())))


def plain():
    torch.manual_seed(0)
    chosen = ("table", "rnn", "up", "down")
    return sparsify_(
        Plain(),
        density=0.4,
        blocksize=(5, 8),
        filter=lambda module, name: name in chosen,
        embeddings=True,
    )


@pytest.mark.parametrize("place", ["cpu", "meta", "sparse"])
def test_a_plain_module_is_filled(place, tmp_path):
    model = plain()
    ids = tokens() % 24
    model(ids)  # running means
    model.eval()
    model.up.set_forward_(torch.arange(model.up.nnzb) % 2 == 0)
    save_pretrained(model, tmp_path / "m")
    skeleton = plain() if place == "sparse" else Plain().to(place)
    again = from_pretrained(tmp_path / "m", model=skeleton)
    assert again is skeleton
    assert_same(model, again)
    assert torch.equal(model(ids), again(ids))
    assert again.other.weight is again.one.weight
    assert again.up.weight.nnzb == model.up.weight.nnzb < again.up.nnzb


def test_a_module_that_is_one_layer(tmp_path):
    layer = stnn.Linear(20, 12, density=0.5, blocksize=8)
    again = from_pretrained(save_pretrained(layer, tmp_path / "m"), model=nn.Linear(20, 12))
    assert isinstance(again, stnn.Linear)
    assert_same(layer, again)


def test_layers_without_blocks_and_with_blocks_larger_than_themselves(tmp_path):
    empty = stnn.Linear(6, 5, pattern=stnn.Linear(6, 5, density=1.0, blocksize=2).pattern)
    empty.set_pattern_(type(empty.pattern)((5, 6), 2, [0, 0, 0, 0], []))
    model = nn.Sequential(stnn.Linear(4, 6, density=1.0, blocksize=16), empty)
    folder = save_pretrained(model, tmp_path / "m")
    assert_same(
        model, from_pretrained(folder, model=nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 5)))
    )


def test_files_are_as_large_as_what_is_stored(tmp_path):
    model = sparse(bert)
    folder = save_pretrained(model, tmp_path / "m")
    stored = sum(
        t.nbytes for t in {id(t): t for t in model.state_dict(keep_vars=True).values()}.values()
    )
    held = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    names = len(model.state_dict())
    assert stored <= held <= stored + 500 * names


def test_large_models_get_several_files(tmp_path):
    model = sparse(gpt2)
    folder = save_pretrained(model, tmp_path / "m", most_bytes=10_000)
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    assert len(files) > 3 and files[0] == f"sparsetile-00001-of-{len(files):05}.safetensors"
    assert_same(model, from_pretrained(folder))
    # files that are no longer there are not left over
    save_pretrained(model, folder)
    assert [path.name for path in folder.glob("*.safetensors")] == ["sparsetile.safetensors"]


def test_loading_builds_no_dense_weight(tmp_path):
    config = transformers.LlamaConfig(
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=1,
        num_attention_heads=4,
        vocab_size=4096,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    density, names = {}, {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            shape = tuple(module.weight.shape)
            density[name] = stnn.Linear(*shape[::-1], density=0.02, blocksize=16).pattern
            names[name] = module
    for name, module in names.items():
        parent, _, leaf = name.rpartition(".")
        twin = stnn.empty_twin(module, {"": density[name]})
        some = torch.randn(density[name].nnzb, 16, 16)
        twin.to_empty(device="cpu").set_pattern_(density[name], some)
        setattr(model.get_submodule(parent), leaf, twin)
    for name, module in model.named_modules():
        if "norm" in name:
            module.weight = nn.Parameter(torch.ones(512))
        for buffer in [*module._non_persistent_buffers_set]:
            module._buffers[buffer] = torch.ones(4)
    folder = save_pretrained(model, tmp_path / "m")
    least = 512 * 512 * 4  # of the dense weights
    assert max(p.nbytes for p in model.parameters()) < least
    assert most_bytes(lambda: from_pretrained(folder)) < least


def test_a_compiled_model_is_saved_as_itself(tmp_path):
    model = nn.Sequential(stnn.Linear(16, 16, density=0.5, blocksize=8))
    folder = save_pretrained(torch.compile(model, backend="eager"), tmp_path / "m")
    assert_same(model, from_pretrained(folder, model=nn.Sequential(nn.Linear(16, 16))))


def test_configs_and_tokenizer_come_along_and_other_files_stay(tmp_path):
    class Tokenizer:
        def save_pretrained(self, folder):
            with open(f"{folder}/tokenizer.json", "w") as file:
                file.write("{}")

    folder = tmp_path / "m"
    (folder / "more").mkdir(parents=True)
    (folder / "README.md").write_text("mine")
    (folder / "more" / "a.txt").write_text("deep")
    model = sparse(gpt2)
    model.generation_config.max_length = 17
    save_pretrained(model, folder, tokenizer=Tokenizer())
    assert (folder / "README.md").read_text() == "mine"
    assert (folder / "more" / "a.txt").read_text() == "deep"
    assert (folder / "tokenizer.json").read_text() == "{}"
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["GPT2LMHeadModel"]
    assert from_pretrained(folder).generation_config.max_length == 17
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_transformers_alone_refuses_it(tmp_path):
    folder = save_pretrained(sparse(gpt2), tmp_path / "m")
    with pytest.raises(OSError, match="safetensors"):
        transformers.AutoModelForCausalLM.from_pretrained(folder)


def test_layers_are_sparse_and_hold_what_the_product_needs(tmp_path):
    again = from_pretrained(save_pretrained(sparse(bert), tmp_path / "m"))
    layers = [m for m in again.modules() if isinstance(m, BlockSparse)]
    assert len(layers) == 13 and sum(isinstance(m, Embedding) for m in layers) == 1
    assert all(layer.pattern.nnzb == layer.nnzb for layer in layers)


def test_narrow_values_beside_wide_biases_come_back_so(tmp_path):
    model = stnn.freeze_(sparse(bert), dtype=torch.bfloat16)
    again = from_pretrained(save_pretrained(model, tmp_path / "m"))
    assert_same(model, again)
    assert {t.dtype for t in again.parameters()} == {torch.float32, torch.bfloat16}
    assert torch.equal(logits(model), logits(stnn.freeze_(again)))
