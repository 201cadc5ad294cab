"""Transposing vectors in registers."""

from collections.abc import Sequence

from sparsetile.ops.cpu._emit import Function, Value


def transpose(f: Function, rows: Sequence[Value]) -> list[Value]:
    """Transpose as many vectors as each has lanes, in registers.

    Only shuffles that processors have are used: within 128-bit lanes first, then of whole ones.
    """
    lanes = len(rows)
    if lanes == 1:
        return list(rows)
    if lanes == 2:
        return [f.shuffle(rows[0], rows[1], [i, i + 2]) for i in (0, 1)]
    quads = range(0, lanes, 4)  # first numbers of the 128-bit lanes

    def within(a: Value, b: Value, order: Sequence[int]) -> Value:
        """Shuffle 4 of the 8 numbers that a and b have in a 128-bit lane, alike in all lanes."""
        return _shuffle(
            f, a, b, [q + (i if i < 4 else i - 4 + lanes) for q in quads for i in order]
        )

    columns: list[list[Value]] = [[] for _ in range(4)]
    for q in quads:
        r0, r1, r2, r3 = rows[q : q + 4]
        low = within(r0, r1, (0, 4, 1, 5)), within(r2, r3, (0, 4, 1, 5))
        high = within(r0, r1, (2, 6, 3, 7)), within(r2, r3, (2, 6, 3, 7))
        # vector c: in lane l, four rows' numbers of column 4·l + c
        columns[0].append(within(*low, (0, 1, 4, 5)))
        columns[1].append(within(*low, (2, 3, 6, 7)))
        columns[2].append(within(*high, (0, 1, 4, 5)))
        columns[3].append(within(*high, (2, 3, 6, 7)))
    turned = [_transpose_quads(f, vectors) for vectors in columns]
    return [turned[c][lane] for lane in range(lanes // 4) for c in range(4)]


def _transpose_quads(f: Function, vectors: Sequence[Value]) -> list[Value]:
    """Transpose 1, 2 or 4 vectors of as many 128-bit lanes."""

    def pick(a: Value, b: Value, order: Sequence[int]) -> Value:
        return _shuffle(f, a, b, [4 * quad + i for quad in order for i in range(4)])

    if len(vectors) == 1:
        return list(vectors)
    if len(vectors) == 2:
        a, b = vectors
        return [pick(a, b, (lane, lane + 2)) for lane in (0, 1)]
    a, b, c, d = vectors
    low = pick(a, b, (0, 1, 4, 5)), pick(c, d, (0, 1, 4, 5))
    high = pick(a, b, (2, 3, 6, 7)), pick(c, d, (2, 3, 6, 7))
    orders = ((0, 2, 4, 6), (1, 3, 5, 7))
    return [pick(x, y, order) for x, y in (low, high) for order in orders]


def _shuffle(f: Function, a: Value, b: Value, order: Sequence[int]) -> Value:
    # Without the fence LLVM takes most of the time of a kernel to look for better shuffles.
    return f.fence(f.shuffle(a, b, order))
