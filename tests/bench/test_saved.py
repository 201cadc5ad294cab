import json

import pytest
import torch

from sparsetile.bench._complete import complete, pick_lines
from sparsetile.bench._errors import CommandError
from sparsetile.bench._model import ModelSize, build, config_of, make_sparse
from sparsetile.bench._saved import load, save
from sparsetile.bench._text import Text
from sparsetile.bench._tokens import tokenize

TEXT = Text("rhyme", "one for the master, two for the dame,\n" * 300, "")


@pytest.fixture(scope="module")
def corpus():
    return tokenize(TEXT, 280)


def model_of(corpus, objective):
    size = ModelSize(layers=1, width=16, heads=2, sequence=16, vocabulary=corpus.vocabulary)
    config = config_of(objective, size)
    # Another seed than the one that `load` builds its model with.
    return make_sparse(build(config, seed=7), density=0.5, blocksize=4, seed=7), config


@pytest.mark.parametrize("objective", ["clm", "mlm"])
def test_model_read_back_gives_the_same_numbers(corpus, tmp_path, objective):
    model, config = model_of(corpus, objective)
    save(tmp_path, model.eval(), config, corpus.tokenizer, density=0.5, blocksize=4)
    again, tokenizer = load(tmp_path)
    tokens = torch.randint(corpus.vocabulary, (2, 16))
    assert torch.equal(model(input_ids=tokens).logits, again(input_ids=tokens).logits)
    assert tokenizer.get_vocab() == corpus.tokenizer.get_vocab()


def test_saved_folder_holds_readable_files_only(corpus, tmp_path):
    model, config = model_of(corpus, "clm")
    written = save(tmp_path, model, config, corpus.tokenizer, density=0.5, blocksize=4)
    assert sorted(written) == sorted(tmp_path.iterdir())
    assert json.loads((tmp_path / "sparse.json").read_text()) == {"density": 0.5, "blocksize": 4}


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_folder_that_lacks_a_file_is_refused_by_name(corpus, tmp_path, name):
    model, config = model_of(corpus, "clm")
    save(tmp_path, model, config, corpus.tokenizer, density=0.5, blocksize=4)
    (tmp_path / name).unlink()
    with pytest.raises(CommandError, match=f"lacks {name}"):
        load(tmp_path)


@pytest.mark.parametrize("objective", ["clm", "mlm"])
def test_lines_are_completed_with_words_of_the_tokenizer(corpus, objective):
    model, _ = model_of(corpus, objective)
    lines = ["one for the master, two for the dame,"] * 5
    done = complete(model.eval(), corpus.tokenizer, lines, objective, 16)
    assert len(done) == 5
    assert all("<|" not in one.made and "\n" not in one.made for one in done)


def test_causal_completion_shows_beginning_and_truth(corpus):
    model, _ = model_of(corpus, "clm")
    (done,) = complete(model.eval(), corpus.tokenizer, ["one for the master"], "clm", 16)
    assert done.given + done.truth == "one for the master"
    assert done.given and done.truth


def test_masked_completion_marks_what_is_hidden(corpus):
    model, _ = model_of(corpus, "mlm")
    (done,) = complete(
        model.eval(), corpus.tokenizer, ["one for the master, two for the dame,"], "mlm", 16
    )
    assert done.given.count("▢") == len(done.truth.split(" · "))


def test_lines_are_spread_over_the_text():
    text = "".join(f"this is the line of number {i:04d} here\n" for i in range(1000))
    lines = pick_lines(text)
    assert len(lines) == 5
    assert lines == sorted(lines)
    assert lines[0] > "this is the line of number 0050"


def test_text_of_short_lines_gives_short_lines():
    assert pick_lines("a\nb\n\nc\n") == ["a", "b", "c"]
