"""How one product is cut into parts of equal work."""

from sparsetile.plan._bands import balanced_bands, imbalance

__all__ = ["balanced_bands", "imbalance"]
