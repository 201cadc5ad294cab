"""Where the fields of the meta-information lie.

The layout is that of Graphcore's popsparse library (poplibs), which runs the dynamic products of
PopSparse (arXiv 2303.16999). All entries are 16-bit words. A bucket is a list of subgroups, ended
by a zero where the next id would stand. A subgroup holds non-zeros of one part (ix, iy) of W.

Elements (blocks of 1×1): a header of nine words; for each worker five: offset of its first value,
columns of the dense operand, first of these, rows less one, words from here to its first row; if
the gradient of the weight is planned, the number of its workers and for each four: offset of its
first value, words from here to the row of that, non-zeros of that row to leave out, non-zeros to
take; then row by row the row in the part, the number of its non-zeros, and for each non-zero its
column in the part times the bytes of a row of the dense operand. Buckets of their own for the
gradient of the input swap rows and columns, and name before each column's offset the value to
gather, counted from the subgroup's first.

Blocks: a header of seven words; the four words of each worker of the gradient of the weight
(values counted in blocks); then block row by block row its first row in the part, its blocks less
one, and for each block its first column in the part.
"""

from sparsetile.plan.dynamic._plan import DynamicPlan

ELEMENT_HEADER = 9
ID, X, Y, COUNT, NEXT, NUM_Z, ROWS, FIRST_ROW, WORKERS = range(ELEMENT_HEADER)
"""Header of elements: id, part, non-zeros, words to the next subgroup, columns of the dense
operand, rows less one, words to the first row, workers."""

BLOCK_HEADER = 7
BLOCK_VALUES, BLOCK_NEXT, BLOCK_ROWS, BLOCK_WORKERS = range(3, BLOCK_HEADER)
"""Header of blocks: id and part as above, values, words to the next subgroup, rows less one,
workers of the gradient of the weight."""

WORKER = 5
GRAD_W_WORKER = 4
ROW = 2
LARGEST = 2**16 - 1
BITS_PER_WORD = 2
"""Bits of the overflow's set that one 16-bit word holds: the original takes the two bytes of a
word for its bits, on the host and on the device alike, and so do we."""


def is_block(plan: DynamicPlan) -> bool:
    """Whether blocks rather than single elements are encoded."""
    return plan.kernel_block != (1, 1)


def z_grain(plan: DynamicPlan) -> int:
    """Columns of the dense operand that a worker takes at once."""
    return 4 if plan.dtype == "float16" else 2


def num_z(plan: DynamicPlan) -> int:
    """Columns of the dense operand on a tile, in whole grains."""
    grain = z_grain(plan)
    return max(1, -(-plan.z_size // grain)) * grain


def offset_scale(plan: DynamicPlan) -> int:
    """What a row or column is multiplied by where it stands as an offset into the operand."""
    return num_z(plan) * (2 if plan.dtype == "float16" else 4)


def overflow_words(plan: DynamicPlan) -> int:
    """Words before the first bucket: three end indices and a set of distances along x."""
    return 3 + -(-plan.x // BITS_PER_WORD)


def most_fixed_words(plan: DynamicPlan) -> int:
    """Words of a subgroup beside rows and non-zeros, if all workers find work."""
    workers = plan.machine.workers
    if is_block(plan):
        return BLOCK_HEADER + plan.options.grad_w * workers * GRAD_W_WORKER
    grad_w = plan.options.grad_w * (1 + workers * GRAD_W_WORKER)
    return ELEMENT_HEADER + workers * WORKER + grad_w


def most_fixed_words_grad_a(plan: DynamicPlan) -> int:
    """The same of the words that the gradient of the input has of its own."""
    return ELEMENT_HEADER + plan.machine.workers * WORKER


def capacity(plan: DynamicPlan) -> int:
    """Blocks or elements that a bucket holds."""
    return plan.bucket_values // (plan.kernel_block[0] * plan.kernel_block[1])
