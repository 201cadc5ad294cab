import pytest

from sparsetile.train import sparse_lr


@pytest.mark.parametrize(
    ("sparsity", "factor"),
    [(0.0, 1.0), (0.5, 1.9), (0.75, 3.8), (0.8, 4.5), (0.9, 6.4), (0.95, 7.8), (0.99, 9.2)],
)
def test_the_rule_gives_the_published_factors(sparsity, factor):
    assert sparse_lr(1.0, sparsity) == pytest.approx(factor, abs=0.06)


def test_density_is_one_minus_sparsity():
    assert sparse_lr(1.0, density=0.25) == sparse_lr(1.0, 0.75)


@pytest.mark.parametrize(
    ("sparsities", "message"),
    [
        ({}, "takes one of sparsity and density, .* got sparsity=None and density=None"),
        ({"sparsity": 0.9, "density": 0.1}, "got sparsity=0.9 and density=0.1"),
    ],
)
def test_one_of_both_is_wanted(sparsities, message):
    with pytest.raises(TypeError, match=message):
        sparse_lr(1.0, **sparsities)
