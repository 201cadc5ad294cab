"""Measuring and showing: the `sparsetile` command; the only room that prints.

Nothing imports this room, so its door is the command line, and opening it costs nothing.
"""

__all__: list[str] = []
