"""Products and softmax with a mask of blocks, for sparse attention."""
