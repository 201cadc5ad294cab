"""Notices a schedule that never asks for an update."""

from sparsetile.train._schedule import Clock, Every


def why_idle(clock: Clock) -> str:
    """Say why a clock asks for no update in the whole run.

    Args:
        clock: One of ours; of others nobody can tell.

    Returns:
        The reason; empty if there will be an update, or none was wanted.

    Examples:
        >>> why_idle(Every(100, total_steps=50))
        'every=100 does not fit into the 50 steps in which blocks may move'
        >>> why_idle(Every(10, total_steps=50))
        ''
    """
    if isinstance(clock, Every) and clock.steps >= clock.total_steps:
        return (
            f"every={clock.steps} does not fit into the {clock.total_steps} steps in which blocks "
            "may move"
        )
    return ""
