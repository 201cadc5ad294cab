"""What a pre-training run does, writes, and refuses."""

import csv
import math

import pytest
import torch

from sparsetile import nn
from sparsetile.bench._errors import CommandError
from sparsetile.bench._tokens import Corpus
from sparsetile.bench.pretrain import _session, describe, pretrain
from sparsetile.bench.pretrain._build import config_for, model_for
from sparsetile.bench.pretrain._logs import COLUMNS, UPDATES, Log, read_rows
from sparsetile.bench.pretrain._report import unigram_loss
from sparsetile.bench.pretrain._session import Session
from support_pretrain import corpus_of, tiny


@pytest.mark.parametrize(
    ("objective", "method", "margin"),
    # Masked tokens take long to be told apart: in so few steps their frequencies are learned.
    [("clm", "dynsparse", 0.5), ("mlm", "dense", -0.1)],
)
def test_held_out_loss_falls_to_and_below_what_counts_give(tmp_path, objective, method, margin):
    settings = tiny(tmp_path, objective=objective, method=method, steps=30, every=12, lr=2e-3,
                    rest_lr=1e-2, dropout=0.0, batch=8)  # fmt: skip
    session = Session(settings, corpus_of(settings))
    assert session.judge() == pytest.approx(math.log(300), abs=0.6)
    for _ in range(settings.steps):
        session.advance()
    assert session.judge() < unigram_loss(session.corpus) - margin
    assert session.step == 30
    assert session.trainer is None or len(session.trainer.history) == 2


def test_run_leaves_what_the_page_names(tmp_path):
    settings = tiny(tmp_path, plots=True, eval_every=4)
    outcome = pretrain(settings)
    assert outcome.finished
    names = {path.name for path in settings.output.iterdir()}
    assert names == {
        "config.toml", "tokenizer.json", "checkpoints", "train.csv", "eval.csv", "updates.csv",
        "loss.svg", "pattern.svg",
    }  # fmt: skip
    assert [path.name for path in outcome.pictures] == ["loss.svg", "pattern.svg"]
    rows = {name: read_rows(settings.output / name) for name in (*COLUMNS, UPDATES)}
    assert [row["step"] for row in rows["train.csv"]] == ["2", "4", "6", "7"]
    assert [row["step"] for row in rows["eval.csv"]] == ["4", "7"]
    assert [row["step"] for row in rows["updates.csv"]] == ["3", "6"]
    assert float(rows["updates.csv"][-1]["coverage"]) > 0.25
    assert rows["train.csv"][-1]["tokens"] == str(7 * 4 * 16)
    assert set(outcome.lines) == {
        "held-out loss", "by token counts alone", "perplexity", "training", "operations",
        "weights, gradients, state", "coverage",
    }  # fmt: skip


def test_dense_run_has_no_pattern_to_tell_of(tmp_path):
    settings = tiny(tmp_path, method="dense", plots=True)
    outcome = pretrain(settings)
    assert [path.name for path in outcome.pictures] == ["loss.svg"]
    assert "coverage" not in outcome.lines and "twin" not in str(outcome.lines)
    assert not (settings.output / "updates.csv").exists()


def test_accumulated_batches_are_one_large_batch(tmp_path):
    large = tiny(tmp_path, batch=8, dropout=0.0)
    small = tiny(tmp_path, batch=4, accumulate=2, dropout=0.0)
    corpus = corpus_of(large)
    one, other = Session(large, corpus), Session(small, corpus)
    for _ in range(4):
        assert one.advance().loss == pytest.approx(other.advance().loss, rel=1e-4)
    assert large.tokens_per_step == small.tokens_per_step


def test_sparse_layers_get_the_rule_and_the_rest_its_own_rate(tmp_path):
    settings = tiny(tmp_path, lr=1e-3, rest_lr=1e-2, warmup=0.0)
    session = Session(settings, corpus_of(settings))
    block, rest = session.rates
    assert block == pytest.approx(1e-3 * math.exp(1.969 * 0.75**2 + 0.2905 * 0.75))
    assert rest == 1e-2
    session.advance()
    groups = session.optimizer.param_groups
    assert groups[0]["lr"] == block and {group["lr"] for group in groups[1:]} == {rest}
    assert all(p.ndim == 3 for p in groups[0]["params"])


@pytest.mark.parametrize("decay", ["cosine", "linear"])
def test_rates_rise_then_fall_to_a_twentieth(tmp_path, decay):
    settings = tiny(tmp_path, steps=100, warmup=0.1, decay=decay)
    session = Session(settings, corpus_of(settings))
    rates = []
    for session.step in range(101):
        rates.append(session.rates[1] / settings.rest_lr)
    assert max(rates) == rates[10] == 1.0
    assert rates[:11] == sorted(rates[:11]) and rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[100] == pytest.approx(0.05)
    assert rates[55] == pytest.approx(0.525)  # half way down, by a line and by a cosine


def test_bfloat16_is_used_in_products_only(tmp_path):
    settings = tiny(tmp_path, dtype="bfloat16", method="dense")
    session = Session(settings, corpus_of(settings))
    seen = []
    layer = session.model.get_submodule("transformer.h.0.mlp.c_fc")
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    session.advance()
    session.judge()
    assert set(seen) == {torch.bfloat16}
    assert {p.dtype for p in session.model.parameters()} == {torch.float32}


def test_compile_runs_the_compiled_model_and_saves_the_plain_one(tmp_path, monkeypatch):
    calls = []

    def compiled(model):
        class Compiled(torch.nn.Module):
            def forward(self, **inputs):
                calls.append(model)
                return model(**inputs)

        return Compiled()

    monkeypatch.setattr(_session.torch, "compile", compiled)
    settings = tiny(tmp_path, compile=True)
    session = Session(settings, corpus_of(settings))
    session.advance()
    assert calls == [session.model]


def test_dropout_is_for_training_alone(tmp_path):
    settings = tiny(tmp_path, dropout=0.5)
    session = Session(settings, corpus_of(settings))
    state = torch.get_rng_state()
    assert session.judge() == session.judge()
    assert torch.equal(state, torch.get_rng_state())
    assert session.model.training


@pytest.mark.parametrize("where", ["loss", "length of the gradient"])
def test_numbers_that_are_none_stop_the_run_before_the_step(tmp_path, monkeypatch, where):
    settings = tiny(tmp_path)
    session = Session(settings, corpus_of(settings))
    session.advance()
    before = {name: tensor.clone() for name, tensor in session.model.state_dict().items()}
    plain = _session.loss_of

    def broken(*args):
        loss = plain(*args)
        if where == "loss":
            return loss * math.nan
        loss.register_hook(lambda gradient: gradient * math.inf)
        return loss

    monkeypatch.setattr(_session, "loss_of", broken)
    with pytest.raises(CommandError, match=f"the {where} is .* in step 2 of 7; .* --lr"):
        session.advance()
    after = session.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_gmp_starts_dense_and_topkast_uses_a_part(tmp_path):
    gmp = tiny(tmp_path, method="gmp")
    model = Session(gmp, corpus_of(gmp)).model
    layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
    assert {layer.density for layer in layers} == {1.0}
    top = tiny(tmp_path, method="topkast")
    model = Session(top, corpus_of(top)).model
    layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
    assert all(layer.weight.nnzb < layer.nnzb for layer in layers)


def test_budgets_share_the_same_blocks_out_differently(tmp_path):
    stored = {}
    for budget in ("uniform", "er", "erk"):
        settings = tiny(tmp_path, budget=budget)
        model = model_for(settings, config_for(settings, 300))
        stored[budget] = [m.nnzb for m in model.modules() if isinstance(m, nn.Linear)]
    assert len({sum(counts) for counts in stored.values()}) == 1
    assert stored["uniform"] != stored["er"]


def test_srigl_starts_with_balanced_rows(tmp_path):
    settings = tiny(tmp_path, method="srigl")
    for layer in model_for(settings, config_for(settings, 300)).modules():
        if isinstance(layer, nn.Linear):
            rows = layer.crow_indices.diff()
            assert rows.max() - rows.min() <= 1


def test_unigram_loss_is_the_entropy_of_the_counts():
    class Three:
        def get_vocab_size(self):
            return 3

    tokens = torch.tensor([0] * 5000 + [1] * 2500 + [2] * 2500)
    entropy = 0.5 * math.log(2) + 0.5 * math.log(4)
    assert unigram_loss(Corpus(Three(), tokens, tokens, "")) == pytest.approx(entropy, rel=1e-4)


def test_dry_run_tells_of_updates_and_of_the_twin(tmp_path):
    facts, layers = describe(tiny(tmp_path, method="dynsparse"))
    assert facts["method"] == "dynsparse, 2 updates"
    assert "its dense twin" in facts["weights, gradients, state"]
    assert sum(row.blocksize is not None for row in layers.rows) == 4
    facts, _ = describe(tiny(tmp_path, method="dense"))
    assert facts["method"] == "dense"
    assert facts["operations"].endswith("without the head")


def test_log_is_cut_back_to_the_step_that_is_resumed(tmp_path):
    path = tmp_path / "eval.csv"
    log = Log(path, 0)
    for step in (2, 4, 6):
        log.add({"step": step, "seconds": 1.0, "tokens": 3, "loss": 2.5, "perplexity": 12.1825})
    with path.open("a") as file:
        file.write("8,1.0")  # the power went
    Log(path, 4).add({"step": 6, "seconds": 9, "tokens": 3, "loss": 2, "perplexity": 7})
    with path.open(newline="") as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["2", "4", "6"]
    assert read_rows(path)[-1]["seconds"] == "9"
