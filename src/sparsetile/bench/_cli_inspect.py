"""The command `inspect`: zeros, blocks and bytes of a model or a matrix."""

from pathlib import Path
from typing import Annotated

import typer

from sparsetile.bench._counting import Counting
from sparsetile.bench._model_files import refusing

_EXAMPLES = """
Examples:

sparsetile inspect my-model  (the folder of a Hugging Face model)

sparsetile inspect pruned.safetensors --spy pictures  (also draws every matrix that has zeros)

sparsetile inspect layer.mtx --json  (one matrix; one JSON document on stdout)
"""


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command(epilog=_EXAMPLES)(inspect)


def inspect(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|FOLDER",
            help="A checkpoint (.safetensors, .bin, .pt, .pth, .onnx, or a Hugging Face folder), "
            "or one matrix (.mtx, .smtx, .npz, .pt, .safetensors).",
            show_default=False,
        ),
    ],
    spy: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Draw every matrix that has zeros into a folder."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say of each weight how many zeros it has, and whether storing blocks would pay.

    Shows the share of 1×1, 4×4, 8×8, 16×16 and 32×32 blocks that hold a non-zero, the bytes now,
    dense and in blocks, and an estimate of what would be gained. `sparsetile advise` measures.
    """
    from sparsetile import models

    with refusing(), Counting("Reading weights") as counting:
        found = models.inspect(path, spy=spy, progress=counting)
    if json:
        print(found.to_json())
        return
    print(found)
    for file in found.pictures.values():
        print(file)
