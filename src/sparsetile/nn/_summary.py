"""How large a model is, layer by layer, beside its dense twin."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from torch import Tensor, nn

from sparsetile.nn import _dense
from sparsetile.nn._block_sparse import BlockSparse
from sparsetile.nn._borrowers import Borrower
from sparsetile.nn._tied import tied_weights

_HEADER = ("layer", "shape", "block", "density", "parameters", "bytes", "bytes dense", "note")


@dataclass(frozen=True)
class Row:
    """Size of one layer.

    `parameters` counts trained and frozen values; `bytes` counts them and the index tensors;
    `dense_bytes` is what the layer takes with every block stored.

    Examples:
        >>> row = summary(nn.Linear(8, 4)).rows[0]
        >>> row.shape, row.parameters, row.bytes
        ((4, 8), 36, 144)
    """

    name: str
    shape: tuple[int, ...]
    blocksize: tuple[int, int] | None
    density: float
    parameters: int
    bytes: int
    dense_bytes: int
    note: str = ""


@dataclass(frozen=True)
class Summary:
    """Sizes of a model's layers; prints as a table.

    `rows` holds one row for each linear or embedding layer in the model's order, sparse or dense,
    and a last one for all other parameters, if there are any.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> result = summary(nn.Sequential(Linear(64, 64, bias=False, density=0.25)))
        >>> result.parameters, result.density
        (1024, 0.25)
    """

    rows: tuple[Row, ...]

    @property
    def parameters(self) -> int:
        """Number of stored parameters."""
        return sum(row.parameters for row in self.rows)

    @property
    def bytes(self) -> int:
        """Bytes of parameters and indices."""
        return sum(row.bytes for row in self.rows)

    @property
    def dense_bytes(self) -> int:
        """Bytes of the parameters of the dense twin."""
        return sum(row.dense_bytes for row in self.rows)

    @property
    def density(self) -> float:
        """Stored values of the sparse layers over those of their dense twins."""
        sparse = [row for row in self.rows if row.blocksize]
        every = sum(row.shape[0] * row.shape[1] for row in sparse)
        kept = sum(row.shape[0] * row.shape[1] * row.density for row in sparse)
        return kept / every if every else 1.0

    def __str__(self) -> str:
        table = [_HEADER, *self._cells()]
        widths = [max(len(row[i]) for row in table) for i in range(len(_HEADER))]
        ends = (0, len(_HEADER) - 1)  # text; the rest are numbers
        lines = [
            "  ".join(
                cell.ljust(width) if i in ends else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]
        rule = "─" * max(map(len, lines))
        return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]])

    def _repr_html_(self) -> str:
        head, *body = [_HEADER, *self._cells()]
        rows = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
        rows += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in body]
        return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"

    def _cells(self) -> Iterator[tuple[str, ...]]:
        for row in self.rows:
            yield (
                row.name,
                "×".join(map(str, row.shape)),
                "×".join(map(str, row.blocksize)) if row.blocksize else "",
                f"{row.density:.2f}" if row.blocksize else "",
                f"{row.parameters:,}",
                f"{row.bytes:,}",
                f"{row.dense_bytes:,}",
                row.note,
            )
        yield (
            "total",
            "",
            "",
            f"{self.density:.2f}" if any(row.blocksize for row in self.rows) else "",
            f"{self.parameters:,}",
            f"{self.bytes:,}",
            f"{self.dense_bytes:,}",
            "",
        )


def summary(model: nn.Module) -> Summary:
    """Measure a model, layer by layer, beside its dense twin.

    Args:
        model: Any module; sparse and dense layers are told apart.

    Returns:
        The rows and totals; `print` shows them as a table.

    Raises:
        TypeError: If the model is no module.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> model = nn.Sequential(Linear(64, 64, density=0.25, blocksize=16), nn.Linear(64, 8))
        >>> print(summary(model))
        layer  shape  block  density  parameters  bytes  bytes dense  note
        ──────────────────────────────────────────────────────────────────
        0      64×64  16×16     0.25       1,088  4,388       16,640
        1       8×64                         520  2,080        2,080
        ──────────────────────────────────────────────────────────────────
        total                   0.25       1,608  6,468       18,720
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    tied = tied_weights(model)
    names = {module: name for name, module in model.named_modules()}
    counted: set[int] = set()
    rows, others = [], []
    for name, module in model.named_modules():
        own = [p for p in module._parameters.values() if p is not None and id(p) not in counted]
        counted.update(map(id, own))
        if isinstance(module, BlockSparse):
            rows.append(_sparse_row(name, module, own))
        elif isinstance(module, Borrower):
            note = f"tied to {names.get(module.embedding, 'an embedding elsewhere')}"
            rows.append(_borrower_row(name, module, own, note))
        elif isinstance(module, nn.Linear | nn.Embedding) or _dense.is_conv1d(module):
            note = f"tied to {tied[name]}" if name in tied else ""
            rows.append(_dense_row(name, module, own, note))
        else:
            others += own
    if others:
        size = _bytes(others)
        count = sum(p.numel() for p in others)
        rows.append(Row("other parameters", (), None, 1.0, count, size, size))
    return Summary(tuple(rows))


def _sparse_row(name: str, layer: BlockSparse, own: list[nn.Parameter]) -> Row:
    missing = layer.shape[0] * layer.shape[1] - layer.values.numel()
    size = _bytes(own)
    return Row(
        name=name or type(layer).__name__,
        shape=layer.shape,
        blocksize=layer.blocksize,
        density=layer.density,
        parameters=sum(p.numel() for p in own),
        bytes=size + _bytes([layer.crow_indices, layer.col_indices]),
        dense_bytes=size + missing * layer.values.element_size(),
    )


def _borrower_row(name: str, reader: Borrower, own: list[nn.Parameter], note: str) -> Row:
    size, count = _bytes(own), sum(p.numel() for p in own)
    shape, density = reader.embedding.shape, reader.embedding.density
    return Row(name or type(reader).__name__, shape, None, density, count, size, size, note)


def _dense_row(name: str, layer: nn.Module, own: list[nn.Parameter], note: str) -> Row:
    weight = getattr(layer, "weight", None)
    shape = tuple(weight.shape) if isinstance(weight, Tensor) else ()
    if _dense.is_conv1d(layer):
        shape = shape[::-1]
    size = _bytes(own)
    count = sum(p.numel() for p in own)
    return Row(name or type(layer).__name__, shape, None, 1.0, count, size, size, note)


def _bytes(tensors: list[nn.Parameter] | list[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)
