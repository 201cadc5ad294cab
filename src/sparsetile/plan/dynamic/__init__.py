"""Products with a pattern that changes under a plan made once."""
