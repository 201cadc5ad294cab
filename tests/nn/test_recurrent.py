"""Block-sparse LSTM and GRU against torch's own, run with the same weights in float64."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

from sparsetile.nn import GRU, LSTM, Linear
from sparsetile.train import RigL
from support import without_type_checks

KINDS = {
    "plain": {},
    "two layers": {"num_layers": 2},
    "no bias": {"bias": False},
    "batch first": {"batch_first": True},
    "both ways": {"bidirectional": True},
    "all": {"num_layers": 2, "bidirectional": True, "batch_first": True},
}
PROJECTED = {"projected": {"proj_size": 5, "num_layers": 2, "bidirectional": True}}
CASES = [
    *(
        pytest.param(LSTM, options, id=f"lstm, {name}")
        for name, options in (KINDS | PROJECTED).items()
    ),
    *(pytest.param(GRU, options, id=f"gru, {name}") for name, options in KINDS.items()),
]
SUBJECTS = {LSTM: "lstm", GRU: "gru"}


def sparse(kind, **options):
    options = {"blocksize": (4, 2), "density": 0.4, "dtype": torch.float64} | options
    return kind(6, 10, **options)


def state(rnn, batch, seed=1):
    torch.manual_seed(seed)
    count = rnn.num_layers * (1 + rnn.bidirectional)
    shape = (count, batch) if batch else (count,)
    h = torch.randn(*shape, rnn.proj_size or rnn.hidden_size, dtype=torch.float64)
    if isinstance(rnn, GRU):
        return h.requires_grad_()
    return h.requires_grad_(), torch.randn(*shape, rnn.hidden_size).double().requires_grad_()


def tensors(thing):
    if isinstance(thing, torch.Tensor):
        return [thing]
    if isinstance(thing, nn.utils.rnn.PackedSequence):
        return [thing.data]
    return [tensor for part in thing for tensor in tensors(part)]


def assert_same(rnn, x, hx=None):
    """Outputs, states, and the gradients of input, states and all weights equal torch's."""
    dense = rnn.to_dense()
    wanted = [x.data if isinstance(x, nn.utils.rnn.PackedSequence) else x]
    wanted += [] if hx is None else tensors(hx)
    got, want = tensors(rnn(x, hx)), tensors(dense(x, hx))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    names = list(dense.state_dict())
    weights = [getattr(dense, name) for name in names]
    ours = [parameter for _, parameter in sorted(rnn.named_parameters())]
    losses = [sum(t.sin().sum() for t in results) for results in (got, want)]
    got = torch.autograd.grad(losses[0], [*wanted, *ours])
    want = torch.autograd.grad(losses[1], [*wanted, *weights])
    for a, b in zip(got[: len(wanted)], want[: len(wanted)], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)
    by_name = dict(zip(names, want[len(wanted) :], strict=True))
    for (name, _), grad in zip(sorted(rnn.named_parameters()), got[len(wanted) :], strict=True):
        layer, kind = name.split(".")
        if kind == "bias":
            torch.testing.assert_close(grad, by_name[f"bias_{layer}"], rtol=1e-11, atol=1e-12)
        else:
            full = nn.Linear(1, 1, bias=False)
            full.weight = nn.Parameter(by_name[f"weight_{layer}"])
            cut = Linear.from_linear(full, pattern=getattr(rnn, layer).pattern).values
            torch.testing.assert_close(grad, cut.detach(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kind, options", CASES)
def test_a_layer_equals_torchs_with_the_same_weights(kind, options):
    rnn = sparse(kind, **options)
    x = torch.randn(5, 3, 6, dtype=torch.float64, requires_grad=True)
    assert_same(rnn, x)
    assert_same(rnn, x, state(rnn, 5 if rnn.batch_first else 3))


@pytest.mark.parametrize("kind, options", CASES)
def test_packed_sequences_of_any_lengths(kind, options):
    rnn = sparse(kind, **options)
    parts = [torch.randn(n, 6, dtype=torch.float64) for n in (2, 5, 1, 5, 3)]
    packed = pack_sequence(parts, enforce_sorted=False)
    packed.data.requires_grad_()
    assert_same(rnn, packed)
    assert_same(rnn, packed, state(rnn, 5))


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_packed_output_unpads_as_torchs(kind):
    rnn = sparse(kind, batch_first=True)
    x = torch.randn(3, 7, 6, dtype=torch.float64)
    packed = pack_padded_sequence(x, torch.tensor([7, 4, 2]), batch_first=True)
    got, lengths = pad_packed_sequence(rnn(packed)[0], batch_first=True)
    want, _ = pad_packed_sequence(rnn.to_dense()(packed)[0], batch_first=True)
    torch.testing.assert_close(got, want)
    assert lengths.tolist() == [7, 4, 2]


@pytest.mark.parametrize("kind, options", CASES)
def test_one_sequence_without_a_batch(kind, options):
    rnn = sparse(kind, **options)
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    assert_same(rnn, x)
    assert_same(rnn, x, state(rnn, 0))


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_dropout_is_between_layers_in_training_alone(kind):
    rnn = sparse(kind, num_layers=2, dropout=1.0)
    x = torch.randn(5, 3, 6, dtype=torch.float64)
    first = rnn(x)[0]
    assert torch.equal(first, rnn(torch.randn_like(x))[0])  # the second layer sees zeros
    rnn.eval()
    torch.testing.assert_close(rnn(x)[0], rnn.to_dense()(x)[0])


@pytest.mark.parametrize("kind, options", CASES)
def test_a_dense_checkpoint_loads_and_comes_back(kind, options):
    rnn = sparse(kind, **options)
    source = sparse(kind, **options)
    for name, layer in source.named_children():
        getattr(rnn, name).set_pattern_(layer.pattern)
    dense = source.to_dense()
    rnn.load_state_dict(dense.state_dict())
    again = rnn.to_dense().state_dict()
    assert list(again) == list(dense.state_dict())
    assert all(torch.equal(again[name], value) for name, value in dense.state_dict().items())
    nested, target = nn.ModuleDict({"rnn": dense}), nn.ModuleDict({"rnn": sparse(kind, **options)})
    with pytest.warns(UserWarning, match="is dense"):
        target.load_state_dict(nested.state_dict())


@pytest.mark.parametrize("kind", [LSTM, GRU])
@pytest.mark.parametrize("method", ["magnitude", "random"])
def test_a_dense_layer_becomes_sparse(kind, method):
    dense = kind.dense_type(8, 16, num_layers=2, dropout=0.5).eval()
    make = getattr(kind, f"from_{SUBJECTS[kind]}")
    rnn = make(dense, blocksize=4, density=0.25, method=method)
    assert not rnn.training
    assert rnn.dropout == 0.5
    back = getattr(rnn, f"to_{SUBJECTS[kind]}")()
    for name, weight in dense.named_parameters():
        got = getattr(back, name)
        if "bias" in name:
            assert torch.equal(got, weight)
        else:
            assert torch.equal(got, torch.where(got != 0, weight, 0))
            assert (got != 0).float().mean() == 0.25
    full = make(dense, blocksize=4, density=1.0)
    x = torch.randn(5, 3, 8)
    torch.testing.assert_close(full(x)[0], dense(x)[0])


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_full_layers_are_drawn_as_torchs_and_sparse_ones_wider(kind):
    full, tenth = (kind(64, 256, blocksize=16, density=d) for d in (1.0, 0.25))
    for layer in full.children():
        assert 0.06 < layer.values.abs().max() <= 1 / 16
        assert 0.06 < layer.bias.abs().max() <= 1 / 16
    for layer in tenth.children():
        assert layer.values.std().item() == pytest.approx(2 / 16 / 3**0.5, rel=0.25)
        assert layer.bias.abs().max() <= 1 / 16


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_layers_learn_copy_and_compile(kind):
    rnn = kind(8, 16, blocksize=4, density=0.5)
    head = nn.Linear(16, 8)
    x = torch.randn(6, 4, 8)
    optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=0.01)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = (head(rnn(x)[0])[1:] - x[:-1]).square().mean()  # say what came before
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    rnn.flatten_parameters()
    twin = copy.deepcopy(rnn)
    assert torch.equal(twin(x)[0], rnn(x)[0])
    torch._dynamo.reset()
    with without_type_checks():
        compiled = torch.compile(rnn, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x[:2])[0], rnn(x[:2])[0])
    torch._dynamo.reset()


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_trainers_move_the_blocks_of_every_weight(kind):
    rnn = kind(8, 16, bidirectional=True, blocksize=4, density=0.5)
    optimizer = torch.optim.Adam(rnn.parameters(), lr=0.01)
    trainer = RigL(total_steps=4, every=2).attach(rnn, optimizer)
    for _ in range(4):
        optimizer.zero_grad()
        rnn(torch.randn(5, 2, 8))[0].square().mean().backward()
        optimizer.step()
    assert set(trainer.layers) == {"ih_l0", "hh_l0", "ih_l0_reverse", "hh_l0_reverse"}
    assert all(count > 0 for count in trainer.history[0].moved.values())


BAD = {
    "hidden": (lambda k: k(6, 0, density=0.5), "hidden_size and num_layers must be 1 or more"),
    "hidden_float": (lambda k: k(6, 1.5, density=0.5), "hidden_size must be an int"),
    "dropout": (lambda k: k(6, 8, dropout=2.0, density=0.5), "dropout must be a share"),
    "density": (lambda k: k(6, 8, density=0.0), "density"),
    "input_dims": (
        lambda k: sparse(k)(torch.zeros(6).double()),
        r"input must be a sequence.*\[6\]",
    ),
    "input_list": (lambda k: sparse(k)([1.0]), "input must be a sequence.*got list"),
    "input_width": (lambda k: sparse(k)(torch.zeros(2, 3, 7).double()), "x has shape"),
    "no_time": (lambda k: sparse(k)(torch.zeros(0, 3, 6).double()), "at least one time step"),
    "hx": (
        lambda k: sparse(k)(torch.zeros(2, 3, 6).double(), state(sparse(k), 4)),
        r"hx must have shape \[1, 3, 10\].*got \[1, 4, 10\]",
    ),
}


@pytest.mark.parametrize("kind", [LSTM, GRU])
@pytest.mark.parametrize("case", BAD)
def test_bad_calls_are_refused_in_words(kind, case):
    call, message = BAD[case]
    with without_type_checks(), pytest.raises((ValueError, TypeError), match=message):
        call(kind)


def test_other_mistakes_are_named():
    with pytest.raises(ValueError, match="proj_size must be smaller than hidden_size=10"):
        sparse(LSTM, proj_size=10)
    with pytest.warns(UserWarning, match="no effect with num_layers=1"):
        sparse(GRU, dropout=0.5)
    with without_type_checks(), pytest.raises(TypeError, match=r"a torch.nn.LSTM, got GRU"):
        LSTM.from_lstm(nn.GRU(4, 4), density=0.5)
