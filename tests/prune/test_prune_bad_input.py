import jaxtyping
import pytest
import torch
from torch import nn

from sparsetile.nn import Linear
from sparsetile.prune import NM, Kept, Magnitude, SparseGPT, Wanda, distillation_loss, prune_
from support_prune import dense_net

GOOD = {"density": 0.5, "blocksize": 4}
X = torch.ones(2, 36)


@pytest.fixture(autouse=True)
def _no_type_checker():
    # What a user meets are the library's own messages.
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"density": 0}, ValueError, "density"),
        ({"density": 1.5}, ValueError, "density"),
        ({"density": "half"}, TypeError, r"density: got 'half'; allowed: a number in \(0, 1\]"),
        ({"density": {}}, ValueError, "choices must name a layer"),
        ({"density": {"nobody": 0.5, "*": 0.5}}, ValueError, "'nobody'"),
        ({"density": {"0": NM(2, 4), "*": 0.5}}, ValueError, r"pass density=NM\(2, 4\)"),
        ({"density": NM(2, 4)}, ValueError, "blocksize: got 4×4 with the pattern 2:4"),
        ({"density": NM(2, 4), "blocksize": 1, "steps": 2}, ValueError, "leave out steps"),
        ({"blocksize": 0}, ValueError, "blocksize"),
        ({"method": "best"}, ValueError, "method: got 'best'; allowed: 'magnitude', 'wanda'"),
        ({"method": "movement"}, ValueError, "needs training"),
        ({"method": Wanda}, TypeError, "an object such as Wanda"),
        ({"method": "wanda"}, ValueError, "calibration: got None with method Wanda"),
        ({"reconstruct": True}, ValueError, "calibration: got None with reconstruct"),
        ({"sequential": True}, ValueError, "calibration: got None with sequential"),
        ({"reconstruct": "yes"}, TypeError, "reconstruct: got 'yes'"),
        ({"sequential": 1, "calibration": X}, TypeError, "sequential: got 1"),
        ({"steps": 0}, ValueError, "steps: got 0"),
        ({"steps": 1.5}, TypeError, "steps: got 1.5"),
        ({"memory_limit": 0}, ValueError, "memory_limit: got 0"),
        ({"output_errors": "no"}, TypeError, "output_errors: got 'no'"),
        ({"progress": 3}, TypeError, "progress: got 3"),
        ({"filter": 3}, TypeError, "filter must be callable"),
        ({"filter": lambda m, n: False}, ValueError, "prune_ found nothing to prune"),
    ],
)
def test_bad_arguments_are_refused_and_nothing_is_replaced(options, error, text):
    model = dense_net()
    with pytest.raises(error, match=text):
        prune_(model, **GOOD | options)
    assert type(model[0]) is nn.Linear


def test_models_that_cannot_be_pruned_in_place_say_so():
    with pytest.raises(TypeError, match=r"model: got int; allowed: a torch.nn.Module"):
        prune_(3, **GOOD)
    with pytest.raises(ValueError, match=r"got a bare Linear.*pass torch.nn.Sequential\(layer\)"):
        prune_(nn.Linear(8, 8), **GOOD)
    with pytest.raises(ValueError, match=r"found nothing to prune.*1 sparse already"):
        prune_(nn.Sequential(Linear(8, 8, density=1.0, blocksize=4)), **GOOD)


def test_weights_that_are_not_finite_are_named():
    model = dense_net()
    model[2].weight.data[3, 5] = float("nan")
    with pytest.raises(ValueError, match=r"layer '2': got NaN or infinity in its weight at \(3, 5"):
        prune_(model, **GOOD)


def test_recurrent_layers_refuse_calibration():
    model = nn.Sequential(nn.GRU(8, 8))
    with pytest.raises(ValueError, match=r"layer '0.ih_l0' inside a recurrent module"):
        prune_(model, **GOOD, filter=lambda m, n: True, method="wanda", calibration=[X])


class TooMany(Magnitude):
    def prune(self, layer):
        return Kept(torch.ones(layer.grid, dtype=torch.bool), layer.weight)


class Lying:
    def __init__(self, share):
        self.said = share

    def share(self, layers):
        return self.said


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"method": TooMany()}, ValueError, r"method TooMany for layer '0': got 144 blocks"),
        ({"density": Lying([1])}, ValueError, r"Lying.share: got 1 entries; allowed: one for each"),
        ({"density": Lying([1, 0])}, ValueError, r"layer '2': got 0; allowed: an int of 1 to 80"),
        ({"density": Lying([1, 81])}, ValueError, r"layer '2': got 81"),
        ({"density": Lying([1, "x"])}, TypeError, r"layer '2': got 'x'"),
    ],
)
def test_methods_and_budgets_of_users_are_held_to_their_word(options, error, text):
    model = dense_net()
    with pytest.raises(error, match=text):
        prune_(model, **GOOD | options)
    assert type(model[0]) is nn.Linear


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Magnitude("l3"), ValueError, "score: got 'l3'"),
        (lambda: Wanda(compare="column"), ValueError, "compare: got 'column'"),
        (lambda: SparseGPT(damping=0), ValueError, "damping: got 0"),
        (lambda: SparseGPT(columns=0), ValueError, "columns: got 0"),
        (lambda: SparseGPT(equal=2), TypeError, "equal: got 2"),
        (lambda: SparseGPT(dtype=torch.float16), ValueError, "dtype: got torch.float16"),
        (
            lambda: distillation_loss(torch.ones(1, 2), torch.ones(1, 3)),
            ValueError,
            r"teacher_logits: got shape \[1, 3\]",
        ),
        (
            lambda: distillation_loss(torch.ones(1, 2), torch.ones(1, 2), alpha=2),
            ValueError,
            "alpha: got 2",
        ),
        (
            lambda: distillation_loss(torch.ones(1, 2), torch.ones(1, 2), temperature=0),
            ValueError,
            "temperature: got 0",
        ),
    ],
)
def test_bad_settings_are_refused(make, error, text):
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize(
    ("calibration", "error", "text"),
    [
        ([], ValueError, "got no batch"),
        (iter(()), ValueError, "got no batch"),
        ("some text", TypeError, "tokenize text first"),
        (["some text"], TypeError, "batch 0 of calibration: got str .*tokenize text first"),
        ([("a", "b")], TypeError, "tokenize text first"),
        ([3], TypeError, "batch 0 of calibration: got int"),
        (3, TypeError, "calibration: got 3; allowed: an iterable of batches"),
        (lambda model: None, ValueError, "never reach layer '0'.*leave the layer out"),
        ([torch.full((2, 36), float("nan"))], ValueError, "input of layer '0' in batch 0"),
        (
            [torch.zeros(2, 36), torch.zeros(2, 36).index_fill(1, torch.tensor([7]), torch.inf)],
            ValueError,
            "layer '0' in batch 1, feature 7",
        ),
        ([torch.zeros(0, 36)], ValueError, "never reach layer '0'"),
    ],
)
def test_bad_calibration_is_refused_and_the_model_stays(calibration, error, text):
    model = dense_net()
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(error, match=text):
        prune_(model, density=0.5, blocksize=4, method="wanda", calibration=calibration)
    assert type(model[0]) is nn.Linear
    for now, was in zip(model.parameters(), before, strict=True):
        assert torch.equal(now, was)
    assert all(not m._forward_pre_hooks for m in model.modules())
