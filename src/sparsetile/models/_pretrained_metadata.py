"""What a saved model's own file says: which layers are sparse, what is tied, which files belong."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from sparsetile._version import __version__
from sparsetile.models import _pretrained_check as check
from sparsetile.nn import BlockSparse, Embedding, Linear, TiedEmbedding, TiedHead

FILE = "sparsetile.json"
_FORMAT, _VERSION = "sparsetile-model", 1
_KINDS = ("linear", "embedding", "tied_head", "tied_embedding")
_MOST_BYTES = 2**28  # of the file: it is read whole


@dataclass(frozen=True)
class Layer:
    """One sparse layer of a saved model.

    Attributes:
        kind: "linear", "embedding", or "tied_head" and "tied_embedding", which use a table.
        shape: Sizes of its weight.
        blocksize: Shape of its blocks.
        nnzb: Number of stored blocks.
        bias: Whether it has one.
        table: For tied ones, the name of the embedding.
    """

    kind: str
    shape: tuple[int, int]
    blocksize: tuple[int, int]
    nnzb: int
    bias: bool
    table: str | None = None


@dataclass(frozen=True)
class Metadata:
    """All that is said of a saved model beside its tensors.

    Attributes:
        model_class: Class of a transformers model; None for other modules.
        layers: The sparse layers by name.
        tied: Names of tensors that are another one, which is stored.
        files: Bytes of each file of tensors.
    """

    model_class: str | None
    layers: dict[str, Layer]
    tied: dict[str, str]
    files: dict[str, int | None] = field(default_factory=dict)

    def to_json(self) -> str:
        """Write as text."""
        head = {"format": _FORMAT, "version": _VERSION, "written_by": f"sparsetile {__version__}"}
        return json.dumps(head | asdict(self), indent=1) + "\n"


def layers_of(model: nn.Module) -> dict[str, Layer]:
    """Describe the sparse layers of a model.

    Raises:
        TypeError: If a layer is of a class that could not be made again.
        ValueError: If a tied layer's table is not in the model.
    """
    layers: dict[str, Layer] = {}
    tables = {module: name for name, module in model.named_modules()}
    for name, module in model.named_modules():
        bias = module._parameters.get("bias") is not None
        if isinstance(module, TiedHead | TiedEmbedding):
            table = module.embedding
            if table not in tables:
                raise ValueError(
                    check.refusal(
                        f"save {name!r}",
                        got="a layer tied to an embedding outside of the model",
                        allowed="layers tied to one inside",
                        fix="save the module that holds both",
                    )
                )
            kind = "tied_head" if isinstance(module, TiedHead) else "tied_embedding"
            owner = tables[table]
            layers[name] = Layer(kind, table.shape, table.blocksize, table.nnzb, bias, owner)
        elif isinstance(module, BlockSparse):
            if type(module) not in (Linear, Embedding):
                raise TypeError(
                    check.refusal(
                        f"save {name!r}",
                        got=f"a {type(module).__name__}",
                        allowed="Linear, Embedding and what is made of them",
                        fix="save its state_dict",
                    )
                )
            kind = "linear" if isinstance(module, Linear) else "embedding"
            module.pattern  # noqa: B018  # refuses indices that were damaged
            layers[name] = Layer(kind, module.shape, module.blocksize, module.nnzb, bias)
    return layers


def read_metadata(path: Path) -> Metadata:
    """Read and check the file.

    Raises:
        ValueError: If it is damaged, of another program, or of a newer version.
    """
    where = str(path)
    try:
        with path.open("rb") as file:
            table = json.loads(file.read(_MOST_BYTES))
    except (ValueError, RecursionError) as fault:
        raise ValueError(
            check.refusal(
                where,
                got=f"no JSON ({fault})",
                allowed="sparsetile's metadata",
                fix="save it again",
            )
        ) from fault
    if not isinstance(table, dict) or table.get("format") != _FORMAT:
        got = table.get("format") if isinstance(table, dict) else type(table).__name__
        raise ValueError(
            check.refusal(
                f"{where}, 'format'",
                got=repr(got),
                allowed=repr(_FORMAT),
                fix="this is not a model that save_pretrained wrote",
            )
        )
    version = check.field(where, table, "version", int)
    if not 1 <= version <= _VERSION:
        raise ValueError(
            check.refusal(
                f"{where}, 'version'",
                got=f"{version}, written by {table.get('written_by')!r:.60}",
                allowed=f"1 to {_VERSION}, which sparsetile {__version__} reads",
                fix="update sparsetile, or save the model with this version",
            )
        )
    layers = check.field(where, table, "layers", dict)
    tied = check.field(where, table, "tied", dict)
    files = check.field(where, table, "files", dict)
    for alias in tied:
        check.field(f"{where}, 'tied'", tied, alias, str)
    for name in files:
        if name != Path(name).name or not name.endswith(".safetensors"):
            raise ValueError(
                check.refusal(
                    f"{where}, 'files'",
                    got=repr(name),
                    allowed="names of safetensors files in the same folder",
                    fix="do not load it: it points elsewhere",
                )
            )
        check.field(f"{where}, 'files'", files, name, int)
    known = {name: _layer(f"{where}, layer {name!r}", layers[name]) for name in layers}
    for name, layer in known.items():
        owner = known.get(layer.table or "")
        if (layer.table is not None) != layer.kind.startswith("tied") or (
            layer.table is not None and (owner is None or owner.kind != "embedding")
        ):
            raise ValueError(
                check.refusal(
                    f"{where}, layer {name!r}, 'table'",
                    got=repr(layer.table),
                    allowed="the name of an embedding for tied layers, and only for them",
                    fix="the file is damaged: save the model again",
                )
            )
    model_class = check.field(where, table, "model_class", (str, type(None)))
    return Metadata(model_class, known, tied, files)


def _layer(where: str, table: Any) -> Layer:
    kind = check.field(where, table, "kind", str)
    shape, blocksize = (check.sizes(where, table, name) for name in ("shape", "blocksize"))
    nnzb, bias = check.field(where, table, "nnzb", int), check.field(where, table, "bias", bool)
    name = check.field(where, table, "table", (str, type(None)))
    if kind not in _KINDS or min(blocksize) < 1 or nnzb < 0:
        raise ValueError(
            check.refusal(
                where,
                got=f"kind {kind!r}, blocksize {blocksize}, nnzb {nnzb}",
                allowed=f"a kind of {', '.join(_KINDS)}, and sizes that can be",
                fix="the file is damaged or of a newer version: save the model again",
            )
        )
    return Layer(kind, shape, blocksize, nnzb, bias, name)
