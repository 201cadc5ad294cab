"""Between a user's layout and the kernels': panels in, tiles out.

A *panel* is a column tile of the dense operand, ``[k][columns]``, every row of it whole vectors.
A *stage* is a band of result rows, ``[rows][columns]``, small enough to stay in the first cache.
"""

from sparsetile.ops.cpu._emit import Function, Value, i64, vector, zero
from sparsetile.ops.cpu._transpose import transpose


def pack_rows(name: str, lanes: int, vectors: int) -> Function:
    """Emit the packing of ``x[n, k]`` with k contiguous: a transpose in registers.

    The function takes ``x, stride, n, k0, k1, k, panel``: the address of the tile's first row, the
    bytes between rows, the rows there are, the panel rows to write (``k0`` and ``k1`` multiples of
    the lanes) and the length of a row of x. Columns past n and panel rows past k are zero.
    """
    f = _pack_function(name)
    x, stride, n, k0, k1, k, panel = f.args
    row_bytes = 4 * lanes * vectors
    with f.loop(0, vectors) as tile:
        column = f.mul(tile.index, lanes)
        rows = [f.at(x, f.mul(f.add(column, i), stride)) for i in range(lanes)]
        target = f.at(panel, f.mul(tile.index, 4 * lanes))
        left = f.sub(n, column)

        def turn(k_index: Value, masks: list[Value] | None) -> None:
            offset = f.mul(k_index, 4)
            loaded = [
                f.load_lanes(vector(lanes), f.at(row, offset), masks[i] if masks else None)
                for i, row in enumerate(rows)
            ]
            out = f.at(target, f.mul(k_index, row_bytes))
            for j, packed in enumerate(transpose(f, loaded)):
                f.store(packed, f.at(out, row_bytes * j), align=4 * lanes)

        whole = f.mul(f.div(f.greatest(f.least(k1, k), 0), lanes), lanes)
        whole = f.select(f.compare("sge", left, lanes), whole, i64(0))
        with f.loop(k0, whole, lanes) as loop:
            turn(loop.index, None)
        with f.loop(f.greatest(k0, whole), k1, lanes) as loop:
            some = f.sub(k, loop.index)
            turn(
                loop.index,
                [
                    f.lanes_below(f.select(f.compare("sgt", left, i), some, i64(0)), lanes)
                    for i in range(lanes)
                ],
            )
    return f


def pack_columns(name: str, lanes: int, vectors: int) -> Function:
    """Emit the packing of ``x[k, n]`` with n contiguous: a copy.

    Arguments as for :func:`pack_rows`, with ``stride`` the bytes between rows of k. Columns past n
    are zero.
    """
    f = _pack_function(name)
    x, stride, n, k0, k1, k, panel = f.args
    masks = [f.lanes_below(f.sub(n, t * lanes), lanes) for t in range(vectors)]
    whole = f.least(k1, k)
    with f.loop(k0, whole) as loop:
        row = f.at(x, f.mul(loop.index, stride))
        out = f.at(panel, f.mul(loop.index, 4 * lanes * vectors))
        for t in range(vectors):
            value = f.load_lanes(vector(lanes), f.at(row, 4 * lanes * t), masks[t])
            f.store(value, f.at(out, 4 * lanes * t), align=4 * lanes)
    with f.loop(f.greatest(k0, whole), k1) as loop:
        out = f.at(panel, f.mul(loop.index, 4 * lanes * vectors))
        for t in range(vectors):
            f.store(zero(vector(lanes)), f.at(out, 4 * lanes * t), align=4 * lanes)
    return f


def unpack_rows(name: str, lanes: int, vectors: int) -> Function:
    """Emit the transposing store of a stage into ``y[n, m]`` with m contiguous.

    The function takes ``stage, y, stride, rows, n``: the address of the stage, that of its first
    number in y, the bytes between rows of y, and the rows and columns to store.
    """
    f = _unpack_function(name)
    stage, y, stride, rows, n = f.args
    row_bytes = 4 * lanes * vectors
    whole = f.mul(f.div(rows, lanes), lanes)
    with f.loop(0, vectors) as tile:
        column = f.mul(tile.index, lanes)
        left = f.sub(n, column)
        source, target = f.at(stage, f.mul(column, 4)), f.at(y, f.mul(column, stride))

        def turned(row: Value) -> list[Value]:
            start = f.at(source, f.mul(row, row_bytes))
            loaded = [
                f.load(vector(lanes), f.at(start, row_bytes * i), align=4 * lanes)
                for i in range(lanes)
            ]
            return transpose(f, loaded)

        with f.when(f.compare("sge", left, lanes)), f.loop(0, whole, lanes) as loop:
            out = f.at(target, f.mul(loop.index, 4))
            for piece in turned(loop.index):
                f.store(piece, out)
                out = f.at(out, stride)
        first = f.select(f.compare("sge", left, lanes), whole, i64(0))
        with f.loop(first, rows, lanes) as loop:
            mask = f.lanes_below(f.sub(rows, loop.index), lanes)
            out = f.at(target, f.mul(loop.index, 4))
            for lane, piece in enumerate(turned(loop.index)):
                with f.when(f.compare("sgt", left, lane)):
                    f.store_lanes(piece, out, mask)
                out = f.at(out, stride)
    return f


def unpack_columns(name: str, lanes: int, vectors: int) -> Function:
    """Emit the store of a stage into ``y[m, n]`` with n contiguous; arguments as above."""
    f = _unpack_function(name)
    stage, y, stride, rows, n = f.args
    masks = [f.lanes_below(f.sub(n, t * lanes), lanes) for t in range(vectors)]
    with f.loop(0, rows) as loop:
        source = f.at(stage, f.mul(loop.index, 4 * lanes * vectors))
        target = f.at(y, f.mul(loop.index, stride))
        for t in range(vectors):
            value = f.load(vector(lanes), f.at(source, 4 * lanes * t), align=4 * lanes)
            f.store_lanes(value, f.at(target, 4 * lanes * t), masks[t])
    return f


def _pack_function(name: str) -> Function:
    args = [("x", "ptr noalias readonly"), ("stride", "i64"), ("n", "i64"), ("k0", "i64")]
    return Function(
        name, [*args, ("k1", "i64"), ("k", "i64"), ("panel", "ptr noalias")], internal=True
    )


def _unpack_function(name: str) -> Function:
    args = [("stage", "ptr noalias readonly"), ("y", "ptr noalias"), ("stride", "i64")]
    return Function(name, [*args, ("rows", "i64"), ("n", "i64")], internal=True)
