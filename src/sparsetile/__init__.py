"""Block-sparse matrix products and always-sparse training for PyTorch."""

from sparsetile._version import __version__

__all__ = ["__version__"]
