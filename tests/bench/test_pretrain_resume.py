"""A resumed run is the run that never stopped, bit for bit."""

import pytest
import torch

from sparsetile.bench._errors import CommandError
from sparsetile.bench.pretrain import pretrain
from sparsetile.bench.pretrain._checkpoint import checkpoints, resume, save
from sparsetile.bench.pretrain._logs import read_rows
from sparsetile.bench.pretrain._session import Session
from support_pretrain import corpus_of, tiny, training_state

METHODS = ["dynsparse", "rigl", "snfs", "gmp", "topkast"]


def until(step):
    """A `stop` that asks for an end after so many steps from now."""
    asked = iter(range(step))
    return lambda: next(asked, None) is None


def train(settings, *stops):
    """Train with a stop after each of these numbers of steps, each time resumed; the end state."""
    for place, steps in enumerate(stops):
        assert not pretrain(settings, resumed=place > 0, stop=until(steps)).finished
    outcome = pretrain(settings, resumed=bool(stops))
    assert outcome.finished and outcome.step == settings.steps
    return training_state(settings)


def folders(folder):
    """Two folders in it."""
    return [made for name in "ab" if (made := folder / name).mkdir() is None]


def assert_equal(one, other, where=""):
    """Nested states are equal, tensors bit for bit."""
    assert type(one) is type(other), where
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_equal(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for place, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_equal(a, b, f"{where}[{place}]")
    else:
        assert one == other, where


@pytest.mark.parametrize("method", METHODS)
def test_run_stopped_anywhere_ends_as_one_that_was_not(tmp_path, method):
    whole, parts = (tiny(folder, method=method) for folder in folders(tmp_path))
    straight = train(whole)
    # Updates come after steps 3 and 6: stops right before one and right after it.
    assert_equal(straight, train(parts, 2, 1))
    updates, again = (read_rows(each.output / "updates.csv") for each in (whole, parts))
    assert updates == again
    assert 0 < float(updates[0]["flops"]) < float(updates[0]["flops_with_head"])


@pytest.mark.parametrize(
    "options",
    [
        {"objective": "mlm", "method": "dense"},
        {"dtype": "bfloat16", "accumulate": 2, "blocksize": "4x2", "budget": "erk"},
    ],
    ids=["mlm", "clm"],
)
def test_options_do_not_spoil_resuming(tmp_path, options):
    whole, parts = folders(tmp_path)
    assert_equal(train(tiny(whole, **options)), train(tiny(parts, **options), 4))


def test_run_killed_between_checkpoints_goes_on_from_the_last_whole_one(tmp_path, monkeypatch):
    whole, parts = folders(tmp_path)
    straight = train(tiny(whole))
    settings = tiny(parts, save_every=4)
    steps = []

    def killed(self):
        if len(steps) == 5:
            raise KeyboardInterrupt
        steps.append(1)
        return advance(self)

    advance = Session.advance
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Session, "advance", killed)
        pretrain(settings)
    half = settings.output / "checkpoints" / ".step-00000005.1.part"
    half.mkdir()
    assert checkpoints(settings.output)[-1].name == "step-00000004"
    assert pretrain(settings, resumed=True).finished
    assert_equal(straight, training_state(settings))
    assert not half.exists()
    steps_logged = [int(row["step"]) for row in read_rows(settings.output / "train.csv")]
    assert steps_logged == [2, 4, 6, 7]
    updates = [int(row["step"]) for row in read_rows(settings.output / "updates.csv")]
    assert updates == [3, 6]


def test_two_checkpoints_are_kept(tmp_path):
    settings = tiny(tmp_path, save_every=2)
    pretrain(settings)
    names = [path.name for path in checkpoints(settings.output)]
    assert names == ["step-00000006", "step-00000007"]


def test_checkpoint_that_cannot_be_written_leaves_nothing_behind(tmp_path, monkeypatch):
    settings = tiny(tmp_path)
    session = Session(settings, corpus_of(settings))

    def full(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="no space"):
        save(session, settings.output)
    assert list((settings.output / "checkpoints").iterdir()) == []


def test_checkpoint_of_other_text_is_refused(tmp_path):
    settings = tiny(tmp_path)
    corpus = corpus_of(settings)
    checkpoint = save(Session(settings, corpus), settings.output)
    corpus.train[0] += 1
    with pytest.raises(CommandError, match="was trained on other text"):
        resume(settings, corpus, checkpoint)


def test_finished_run_can_be_resumed_and_reports_again(tmp_path, capfd):
    settings = tiny(tmp_path)
    first = pretrain(settings)
    capfd.readouterr()
    again = pretrain(settings, resumed=True)
    assert again == first
    said = " ".join(capfd.readouterr().err.split())
    assert "was finished already, at step 7: nothing is trained" in said
    assert "--steps 14 -o" in said and "Training GPT-2" not in said


def test_pattern_that_will_not_move_is_said_by_flags(tmp_path, capfd):
    pretrain(tiny(tmp_path, method="rigl", steps=5, every=4))
    said = " ".join(capfd.readouterr().err.split())
    assert "--every 4 does not fit into --steps 5: the pattern will not move" in said
