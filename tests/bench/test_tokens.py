import pytest
import torch

from sparsetile.bench._errors import CommandError
from sparsetile.bench._text import Text
from sparsetile.bench._tokens import Batches, tokenize

RHYME = Text("rhyme", "one for the master, two for the dame,\n" * 300, "one for the dame — ö\n")


def batches(tokens, objective="clm", *, batch=4, seed=0):
    return Batches(
        tokens, objective, sequence=8, batch=batch, mask_token=999, vocabulary=900, seed=seed
    )


def test_tokens_decode_to_the_text():
    corpus = tokenize(RHYME, 280)
    assert corpus.tokenizer.decode(corpus.train.tolist()) == RHYME.train
    assert corpus.tokenizer.decode(corpus.held_out.tolist()) == RHYME.held_out


def test_tokenizer_is_the_same_each_time():
    first, second = tokenize(RHYME, 280), tokenize(RHYME, 280)
    assert torch.equal(first.train, second.train)


def test_vocabulary_is_at_most_what_was_asked():
    assert tokenize(RHYME, 280).vocabulary <= 280


def test_two_objects_give_the_same_batches_in_any_order():
    first, second = batches(torch.arange(500)), batches(torch.arange(500))
    forward = [first[i][0] for i in range(40)]
    for i in reversed(range(40)):
        assert torch.equal(second[i][0], forward[i])


def test_one_pass_shows_every_row_once():
    tokens = torch.arange(8 * 16 + 1)
    shown = torch.cat([batches(tokens)[i][0].flatten() for i in range(4)])
    assert torch.equal(shown.sort().values, tokens[:-1])


def test_second_pass_has_another_order():
    one = batches(torch.arange(8 * 64 + 1))
    assert not torch.equal(one[0][0], one[len(one)][0])


def test_causal_targets_are_the_next_tokens():
    inputs, targets = batches(torch.arange(500))[5]
    assert torch.equal(targets, inputs + 1)


def test_masked_targets_are_the_hidden_tokens():
    one = batches(torch.arange(800), "mlm", batch=90)
    plain = batches(torch.arange(800), batch=90)[0][0]
    inputs, targets = one[0]
    chosen = targets != -100
    assert torch.equal(targets[chosen], plain[chosen])
    assert torch.equal(inputs[~chosen], plain[~chosen])
    assert 0.1 < chosen.float().mean() < 0.2
    assert 0.6 < (inputs[chosen] == 999).float().mean() < 0.95


def test_masks_repeat_with_the_seed():
    a, b, other = (batches(torch.arange(800), "mlm", seed=s)[3] for s in (1, 1, 2))
    assert torch.equal(a[1], b[1])
    assert not torch.equal(a[1], other[1])


@pytest.mark.parametrize("count", [0, 8, 20])
def test_text_too_short_for_a_batch_says_how_long_it_must_be(count):
    with pytest.raises(CommandError, match="one batch of 4 rows of 8 needs 33"):
        batches(torch.arange(count))
