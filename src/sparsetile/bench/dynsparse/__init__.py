"""The experiment of DynSparse, small: dense, static and dynamic at equal steps and data."""
