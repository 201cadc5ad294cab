import pytest

from sparsetile.train import sparse_lr


@pytest.mark.parametrize(
    ("sparsity", "factor"),
    [(0.0, 1.0), (0.5, 1.9), (0.75, 3.8), (0.8, 4.5), (0.9, 6.4), (0.95, 7.8), (0.99, 9.2)],
)
def test_the_rule_gives_the_published_factors(sparsity, factor):
    assert sparse_lr(1.0, sparsity) == pytest.approx(factor, abs=0.06)
