"""Models people have: read them, make them sparse, keep them in files, serve them."""

__all__: list[str] = []
