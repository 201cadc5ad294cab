import pytest
import torch
from torch import nn

from sparsetile.prune import SparseGPT, Wanda, prune_
from sparsetile.prune._calibration import Feed
from support_prune import correlated, dense_net


def sums(calibration, model, gram=True):
    layers = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    return Feed(calibration).collect(model, layers, gram=gram)


class Encoder(nn.Module):
    """Query, key and value side by side, and padding."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.out = nn.Linear(8, 8)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x, attention_mask=None):
        return self.out(input=self.dropout(self.q(x) + self.k(x) * self.v(x)))


@pytest.mark.parametrize(
    "shape",
    [
        lambda x: [x[:5], x[5:]],
        lambda x: x,
        lambda x: ((part,) for part in x.split(4)),
        lambda x: [{"input": x[:7]}, {"input": x[7:]}],
        lambda x: lambda model: model(x),
        lambda x: torch.utils.data.DataLoader(x, batch_size=3),
    ],
)
def test_sums_are_those_of_the_inputs(shape):
    model, x = dense_net(), correlated(12, 36, dtype=torch.float32)
    seen = sums(shape(x), model)
    wide = x.double()
    assert seen["0"].rows == seen["2"].rows == 12
    torch.testing.assert_close(seen["0"].gram, wide.T @ wide, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(seen["0"].norms, wide.norm(dim=0))
    hidden = torch.tanh(model[0](x)).double()
    torch.testing.assert_close(seen["2"].gram, hidden.T @ hidden, rtol=1e-5, atol=1e-5)


def test_layers_with_one_input_share_its_sums_and_dropout_is_off():
    model, x = Encoder(), torch.randn(3, 5, 8)
    model.train()
    model.k.eval()
    seen = sums([x, x], model)
    flat = x.reshape(-1, 8).double()
    for name in ("q", "k", "v"):
        assert seen[name].rows == 30
        torch.testing.assert_close(seen[name].gram, 2 * flat.T @ flat, rtol=1e-5, atol=1e-5)
    twice, once = seen["out"].gram, sums(x, model)["out"].gram
    torch.testing.assert_close(twice, 2 * once)
    assert model.training and model.dropout.training and not model.k.training
    assert all(not m._forward_pre_hooks for m in model.modules())


def test_padding_does_not_count():
    model, x = Encoder(), torch.randn(3, 5, 8)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]])
    batch = {"x": x, "attention_mask": mask}
    for calibration in ([batch], batch, lambda m: m(**batch)):
        seen = sums(calibration, model)
        real = x[mask.bool()].double()
        assert seen["q"].rows == 9
        torch.testing.assert_close(seen["q"].gram, real.T @ real, rtol=1e-5, atol=1e-5)


def test_order_is_that_of_execution():
    model = Encoder()
    layers = {name: getattr(model, name) for name in ("out", "v", "k", "q")}
    assert Feed(torch.ones(1, 2, 8)).order(model, layers) == [["q", "k", "v"], ["out"]]


def test_an_input_changed_in_place_is_seen_anew():
    class Changing(Encoder):
        def forward(self, x):
            first = self.q(x)
            x.add_(1)
            return first + self.k(x)

    x = torch.zeros(2, 8)
    seen = Feed([x]).collect(model := Changing(), {"q": model.q, "k": model.k}, gram=True)
    assert float(seen["q"].gram.sum()) == 0 and float(seen["k"].gram[0, 0]) == 2


def test_memory_limit_cuts_the_layers_into_passes():
    x = correlated(64, 36, dtype=torch.float32)
    runs = []

    def data(model):
        runs.append(model(x))

    # Gram matrices of 36² and 64² numbers of 8 bytes.
    for limit, passes in ((8 * (36**2 + 64**2), 1), (8 * 64**2, 2), (1, 2)):
        runs.clear()
        model = dense_net()
        prune_(
            model, density=0.5, blocksize=4, method="wanda", calibration=data, memory_limit=limit
        )
        assert len(runs) == passes


def test_without_output_errors_wanda_collects_norms_alone(monkeypatch):
    asked = []
    whole = Feed.collect

    def collect(self, model, layers, *, gram):
        asked.append(gram)
        return whole(self, model, layers, gram=gram)

    monkeypatch.setattr(Feed, "collect", collect)
    x = correlated(64, 36, dtype=torch.float32)
    for method in (Wanda(), SparseGPT()):
        report = prune_(
            dense_net(),
            density=0.5,
            blocksize=4,
            method=method,
            calibration=[x],
            output_errors=False,
        )
        assert [layer.output_error for layer in report.layers] == [None, None]
    assert asked == [False, True]
