"""Making a dense model sparse after it was trained, with data or without."""

__all__: list[str] = []
