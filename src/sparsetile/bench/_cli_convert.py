"""The command `convert`: matrices and checkpoints of others made ours, or dense again."""

import json as text
from pathlib import Path
from typing import Annotated, Any

import typer

from sparsetile.bench._counting import Counting
from sparsetile.bench._errors import CommandError
from sparsetile.bench._model_files import refusing
from sparsetile.bench._sweep import read_blocksize
from sparsetile.bench._terminal import show

_EXAMPLES = """
Examples:

sparsetile convert pruned.pt sparse.safetensors  (zeros and masks become blocks that are left out)

sparsetile convert my-model my-sparse-model --reorder  (folders of a Hugging Face model)

sparsetile convert my-sparse-model plain --dense  (transformers alone loads plain)

sparsetile convert layer.mtx layer.safetensors --blocksize 16  (one matrix)
"""


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command(epilog=_EXAMPLES)(convert)


def convert(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="IN",
            help="A matrix, a checkpoint, or the folder of a model, as `inspect` takes them.",
            show_default=False,
        ),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="For a matrix: .mtx, .smtx (both also .gz), .npz, .pt or .safetensors. For a "
            "checkpoint: .safetensors. For a model's folder: a folder.",
            show_default=False,
        ),
    ],
    blocksize: Annotated[
        str,
        typer.Option(
            help="auto keeps the blocks that IN has, else chooses for each weight of 1, 4, 8, 16 "
            "and 32, or dense where blocks do not pay; or a size, such as 4 or 16x1."
        ),
    ] = "auto",
    dense: Annotated[
        bool, typer.Option("--dense", help="Write dense weights, that need nothing of ours.")
    ] = False,
    reorder: Annotated[
        bool,
        typer.Option(
            "--reorder",
            help="Let hidden features between two layers change places, so that zeros gather in "
            "blocks; the model computes the same.",
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Convert a matrix, a checkpoint or a model to ours, or back to dense.

    Every value that was kept is kept exactly. OUT is written whole or not at all.
    """
    blocks = _blocks(blocksize)
    if dense and blocks is not None:
        raise CommandError("--dense has no blocks; leave out --blocksize")
    _check_target(target)
    from sparsetile.bench._convert import convert as work

    with refusing(), Counting("Converting weights") as counting:
        done = work(source, target, blocks=blocks, dense=dense, reorder=reorder, progress=counting)
    if json:
        print(text.dumps(done, indent=1, ensure_ascii=False))
        return
    show(_table(done))
    print(done["output"])


def _blocks(typed: str) -> tuple[int, int] | None:
    if typed == "auto":
        return None
    try:
        return read_blocksize(typed)
    except ValueError as allowed:
        raise CommandError(f"--blocksize {typed}: cannot be; {allowed}, or auto") from None


def _check_target(target: Path) -> None:
    if target.suffix and target.is_dir():
        raise CommandError(f"{target}: is a folder; name a file in it")
    if not target.parent.is_dir():
        raise CommandError(f"{target}: must be in a folder that exists; make {target.parent} first")


def _table(done: dict[str, Any]) -> Any:
    from rich.table import Table

    from sparsetile.bench._files import human_bytes

    sizes = f"{human_bytes(done['bytes_in'])} → {human_bytes(done['bytes_out'])} on disk"
    table = Table(title=f"{done['input']} → {done['output']}: {sizes}")
    for title in ("weight", "shape", "blocks", "density", "bytes", "of dense"):
        table.add_column(title, justify="left" if title == "weight" else "right")
    for layer in done["layers"]:
        block = layer["blocksize"]
        share = layer["bytes"] / layer["dense_bytes"] if layer["dense_bytes"] else 0.0
        table.add_row(
            layer["name"] or "matrix",
            "×".join(map(str, layer["shape"])),
            "×".join(map(str, block)) if block else "dense",
            f"{layer['density']:.3f}",
            f"{layer['bytes']:,}",
            f"{share:.3f}" if layer["dense_bytes"] else "",
        )
    return table
