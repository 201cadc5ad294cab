"""Products with a pattern known when planning."""
