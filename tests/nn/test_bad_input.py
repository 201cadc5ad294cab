"""Bad calls of the layers and the surgery: each is refused by name, with what is allowed."""

import math

import jaxtyping
import pytest
import torch
from torch import nn

from sparsetile.matrix import Pattern, random_pattern
from sparsetile.nn import (
    ER,
    GlobalMagnitude,
    Linear,
    PerLayer,
    Uniform,
    densify_,
    sparsify_,
    summary,
)

PATTERN = random_pattern(16, 32, blocksize=4, density=0.5, seed=0)


@pytest.fixture(autouse=True)
def _no_type_checker():
    # What a user meets are the library's own messages.
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def model():
    return nn.Sequential(nn.Linear(16, 16))


def layer():
    return Linear(32, 16, pattern=PATTERN)


def lazy():
    return nn.Sequential(nn.LazyLinear(16))


def meta():
    return nn.Sequential(nn.Linear(16, 16, device="meta"))


class Own:
    def __init__(self, shares):
        self.shares = shares

    def share(self, layers):
        return self.shares


def budgeted(density, **options):
    return sparsify_(model(), density=density, blocksize=4, **options)


def damaged():
    net = model()
    nn.init.constant_(net[0].weight, math.nan)
    return net


BAD = {
    "in_features_text": (lambda: Linear("8", 8, density=0.5), "in_features must be an int"),
    "in_features_float": (lambda: Linear(8.0, 8, density=0.5), "in_features must be an int"),
    "in_features_negative": (lambda: Linear(-8, 8, density=0.5), "in_features must be 0 or more"),
    "out_features_bool": (lambda: Linear(8, True, density=0.5), "out_features must be an int"),
    "out_features_negative": (lambda: Linear(8, -1, density=0.5), "out_features must be 0 or"),
    "neither": (lambda: Linear(8, 8), "exactly one of density and pattern, got neither"),
    "both": (lambda: Linear(32, 16, density=0.5, pattern=PATTERN), "exactly one.*got both"),
    "density_nan": (lambda: Linear(8, 8, density=math.nan), "density"),
    "density_zero": (lambda: Linear(8, 8, density=0.0), "density"),
    "density_above_one": (lambda: Linear(8, 8, density=1.5), "density"),
    "density_negative": (lambda: Linear(8, 8, density=-0.1), "density"),
    "density_infinite": (lambda: Linear(8, 8, density=math.inf), "density"),
    "density_text": (lambda: Linear(8, 8, density="0.5"), "density"),
    "blocksize_zero": (lambda: Linear(8, 8, density=0.5, blocksize=0), "blocksize"),
    "blocksize_negative": (lambda: Linear(8, 8, density=0.5, blocksize=-4), "blocksize"),
    "blocksize_float": (lambda: Linear(8, 8, density=0.5, blocksize=4.0), "blocksize"),
    "blocksize_triple": (lambda: Linear(8, 8, density=0.5, blocksize=(4, 4, 4)), "blocksize"),
    "pattern_a_mask": (
        lambda: Linear(8, 8, pattern=torch.ones(8, 8, dtype=torch.bool)),
        "pattern must be a sparsetile Pattern, got Tensor; pattern_of",
    ),
    "pattern_transposed": (lambda: Linear(16, 32, pattern=PATTERN), r"it is \(out_features, in"),
    "pattern_shape": (lambda: Linear(64, 16, pattern=PATTERN), r"shape \(16, 64\), got \(16, 32\)"),
    "pattern_blocksize": (
        lambda: Linear(32, 16, pattern=PATTERN, blocksize=8),
        "blocksize=8 differs from the pattern's",
    ),
    "dtype_int": (lambda: Linear(8, 8, density=0.5, dtype=torch.int32), "dtype must be a floating"),
    "dtype_text": (lambda: Linear(8, 8, density=0.5, dtype="float32"), "dtype must be a floating"),
    "dtype_float8": (
        lambda: Linear(8, 8, density=0.5, dtype=torch.float8_e4m3fn),
        "dtype must be a floating.*got torch.float8_e4m3fn",
    ),
    "device_unknown": (lambda: Linear(8, 8, density=0.5, device="nope"), "device must.*'nope'"),
    "device_negative": (lambda: Linear(8, 8, density=0.5, device=-1), "device must be.*got -1"),
    "device_absent": (lambda: Linear(8, 8, density=0.5, device="cuda:99"), "device must be one"),
    "device_float": (lambda: Linear(8, 8, density=0.5, device=0.5), "device must be a torch.dev"),
    "blocksize_huge": (lambda: Linear(8, 8, density=0.5, blocksize=2**31), "blocksize"),
    "blocksize_large": (lambda: Linear(8, 8, density=0.5, blocksize=2**20), "at most.*in a block"),
    "too_many_positions": (
        lambda: Linear(2**31, 2**31, density=1e-15),
        "out_features=2147483648.*18014398509481984 block positions.*too many",
    ),
    "meta_pattern": (lambda: Linear(8, 8, density=0.5, device="meta").pattern, "meta device"),
    "input_width": (lambda: layer()(torch.randn(3, 31)), "x"),
    "input_dtype": (lambda: layer()(torch.randn(3, 32, dtype=torch.float64)), "dtype|float64"),
    "input_integers": (lambda: layer()(torch.ones(3, 32, dtype=torch.int64)), "x"),
    "input_a_list": (lambda: layer()([1.0] * 32), "x"),
    "input_on_meta": (lambda: layer()(torch.randn(3, 32, device="meta")), "meta|device"),
    "from_another_module": (
        lambda: Linear.from_linear(nn.Conv2d(4, 4, 3), density=0.5),
        "linear must be a torch.nn.Linear.*got Conv2d",
    ),
    "from_sparse": (lambda: Linear.from_linear(layer(), density=0.5), "got Linear"),
    "from_method": (
        lambda: Linear.from_linear(nn.Linear(8, 8), density=0.5, method="best"),
        'method must be "magnitude" or "random"',
    ),
    "from_score": (
        lambda: Linear.from_linear(nn.Linear(8, 8), density=0.5, score="l3"),
        "score",
    ),
    "from_neither": (lambda: Linear.from_linear(nn.Linear(8, 8)), "exactly one of density"),
    "set_blocksize": (
        lambda: layer().set_pattern_(random_pattern(16, 32, blocksize=8, density=0.5, seed=0)),
        "blocksize",
    ),
    "set_shape": (lambda: layer().set_pattern_(Pattern((8, 8), 4, [0, 0, 0], [])), "shape"),
    "set_values": (
        lambda: layer().set_pattern_(PATTERN, torch.zeros(1, 4, 4)),
        r"values must have shape \[16, 4, 4\]",
    ),
    "set_values_number": (lambda: layer().set_pattern_(PATTERN, 3), "values must be a tensor"),
    "set_values_complex": (
        lambda: layer().set_pattern_(PATTERN, torch.zeros(16, 4, 4, dtype=torch.complex64)),
        "values must be a tensor of a floating type, got torch.complex64",
    ),
    "set_values_meta": (
        lambda: layer().set_pattern_(PATTERN, torch.zeros(16, 4, 4, device="meta")),
        "values must be a plain.*meta",
    ),
    "set_values_sparse": (
        lambda: layer().set_pattern_(PATTERN, torch.zeros(16, 4, 4).to_sparse()),
        "values must be a plain.*sparse_coo",
    ),
    "sparsify_nothing_density": (
        lambda: sparsify_(nn.ReLU(), density=math.nan, blocksize=4),
        "density",
    ),
    "sparsify_nothing_blocksize": (
        lambda: sparsify_(nn.ReLU(), density=0.5, blocksize="x"),
        "blocksize",
    ),
    "sparsify_float8": (
        lambda: sparsify_(model().to(torch.float8_e4m3fn), density=0.5, blocksize=4),
        "its weight is torch.float8_e4m3fn",
    ),
    "sparsify_no_module": (
        lambda: sparsify_([nn.Linear(8, 8)], density=0.5, blocksize=4),
        "model must be a torch.nn.Module, got list",
    ),
    "sparsify_density": (lambda: sparsify_(model(), density=2.0, blocksize=4), "density"),
    "sparsify_density_nan": (lambda: sparsify_(model(), density=math.nan, blocksize=4), "density"),
    "sparsify_blocksize": (lambda: sparsify_(model(), density=0.5, blocksize=-1), "blocksize"),
    "sparsify_method": (
        lambda: sparsify_(model(), density=0.5, blocksize=4, method="l1"),
        "method must be",
    ),
    "sparsify_filter": (
        lambda: sparsify_(model(), density=0.5, blocksize=4, filter="0"),
        "filter must be callable",
    ),
    "sparsify_lazy": (
        lambda: sparsify_(lazy(), density=0.5, blocksize=4, filter=lambda m, n: True),
        "lazy and has no weight yet",
    ),
    "sparsify_meta": (lambda: sparsify_(meta(), density=0.5, blocksize=4), "meta device"),
    "sparsify_shared": (
        lambda: sparsify_(tied(), density=0.5, blocksize=4, filter=lambda m, n: True),
        "shared with",
    ),
    "budget_density": (lambda: ER(1.5), "density: got 1.5"),
    "budget_density_text": (lambda: Uniform("0.1"), "density: got '0.1'"),
    "budget_class": (lambda: budgeted(ER), r"density must be a number.*got ER itself"),
    "budget_none": (lambda: budgeted(None), "density must be a number.*mapping.*got None"),
    "budget_list": (lambda: budgeted([0.1]), r"density must be a number.*got \[0.1\]"),
    "global_density": (lambda: GlobalMagnitude(0), "density: got 0"),
    "global_score": (lambda: GlobalMagnitude(0.1, score="l3"), "score: got 'l3'"),
    "global_nan": (
        lambda: sparsify_(damaged(), density=GlobalMagnitude(0.1), blocksize=4),
        "layer '0' cannot be ranked.*NaN",
    ),
    "global_balanced": (
        lambda: budgeted(GlobalMagnitude(0.1), balanced=True),
        "balanced=True is for random patterns, got GlobalMagnitude",
    ),
    "magnitude_balanced": (
        lambda: budgeted(0.1, balanced=True, method="magnitude"),
        'balanced=True is for random patterns, got method="magnitude"',
    ),
    "balanced_text": (lambda: budgeted(0.1, balanced="rows"), "balanced must be True or False"),
    "by_layer_list": (lambda: PerLayer([0.1]), "choices must be a mapping"),
    "by_layer_empty": (lambda: budgeted({}), "choices must name a layer, got none"),
    "by_layer_key": (lambda: budgeted({0: 0.1}), "choices must be by layer name, got 0"),
    "by_layer_density": (lambda: budgeted({"*": 2.0}), "density: got 2.0"),
    "by_layer_text": (lambda: budgeted({"*": "10%"}), r"choices\['\*'\] must be a number"),
    "by_layer_rest": (
        lambda: budgeted({"1": 0.5}),
        "layer '0' matches none.*'1'; add it, or {\"\\*\": None} as the last",
    ),
    "by_layer_unused": (
        lambda: budgeted({"*": 0.5, "head.*": 0.1}),
        "'head.\\*' of the densities by layer decides for no layer.*are '0'",
    ),
    "by_layer_pattern": (
        lambda: budgeted({"0": PATTERN}),
        r"layer '0' must be a pattern of the weight's shape \(16, 16\), got \(16, 32\)",
    ),
    "own_budget_short": (lambda: budgeted(Own([])), "Own.share must return one entry.*1.*got 0"),
    "own_budget_many": (lambda: budgeted(Own([17])), "layer '0' must be 1 to 16 blocks.*got 17"),
    "own_budget_zero": (lambda: budgeted(Own([0])), "must be 1 to 16 blocks.*None to leave it"),
    "own_budget_share": (lambda: budgeted(Own([0.1])), "must be a number of blocks.*got 0.1"),
    "densify_no_module": (lambda: densify_(torch.zeros(3)), "model must be a torch.nn.Module"),
    "summary_no_module": (lambda: summary("model"), "model must be a torch.nn.Module, got str"),
}


def tied():
    net = nn.ModuleDict({"embed": nn.Embedding(16, 16), "head": nn.Linear(16, 16)})
    net["head"].weight = net["embed"].weight
    return net


@pytest.mark.parametrize("case", BAD)
@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
def test_bad_call_is_refused_with_its_argument_named(case):
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_model_of_which_one_layer_is_refused_is_left_as_it_was():
    net = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16, device="meta"))
    with pytest.raises(ValueError, match="'1'"):
        sparsify_(net, density=0.5, blocksize=4)
    assert type(net[0]) is nn.Linear
