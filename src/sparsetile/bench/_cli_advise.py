"""The command `advise`: which layers of a model would be faster sparse on this machine."""

import json as text
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparsetile.bench._counting import Counting
from sparsetile.bench._errors import CommandError, require_extras
from sparsetile.bench._model_files import refusing
from sparsetile.bench._sweep import blocksizes_of, densities_of
from sparsetile.bench._terminal import warn

if TYPE_CHECKING:
    from sparsetile.nn import Advice

_EXAMPLES = """
Examples:

sparsetile advise --preset base --density 0.1 --blocksize 4,16

sparsetile advise --preset my-model --density 0.5,0.25 --blocksize 16 --batch 1 --sequence 32

sparsetile advise --preset mini --dtype bfloat16 --threads 1 --json
"""


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command(epilog=_EXAMPLES)(advise)


def advise(
    preset: Annotated[
        str,
        typer.Option(
            metavar="NAME|FOLDER",
            help="An encoder of BERT's sizes (tiny, mini, small, medium or base), or the folder "
            "of a Hugging Face model.",
        ),
    ] = "base",
    density: Annotated[str, typer.Option(help="Densities to try, with commas.")] = "0.1",
    blocksize: Annotated[
        str, typer.Option(help="Blocks to try, such as 4 or 16x1, with commas.")
    ] = "1,4,16",
    batch: Annotated[int, typer.Option(min=1, help="Rows of a batch.")] = 8,
    sequence: Annotated[int, typer.Option(min=1, help="Tokens of a row.")] = 128,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of a product; all CPUs when not given.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="Seconds to measure for.")] = 20.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure which layers of a model would be faster sparse, on this machine, with these inputs.

    Times each linear layer's forward product dense and sparse in turns, at the rows it really
    gets. Layers of equal sizes are timed once.
    """
    blocks, densities = blocksizes_of(blocksize), densities_of(density)
    if dtype not in ("float32", "bfloat16", "float16"):
        raise CommandError(f"--dtype {dtype}: must be one of float32, bfloat16, float16")
    require_extras("advise", "hf")
    from sparsetile import nn
    from sparsetile.bench._advise_ask import question
    from sparsetile.bench._busy import Neighbours

    neighbours = Neighbours()
    with refusing(), Counting("Timing layers") as counting:
        model, inputs = question(preset, batch=batch, sequence=sequence, dtype=dtype)
        advice = nn.advise(
            model,
            density=densities,
            blocksize=[*blocks],
            example_inputs=inputs,
            threads=threads,
            seconds=seconds,
            progress=counting,
        )
    warn(neighbours.warning())
    if json:
        asked = {"preset": preset, "batch": batch, "sequence": sequence, "dtype": dtype}
        print(text.dumps(asked | plain(advice), indent=1, ensure_ascii=False))
        return
    print(advice)


def plain(advice: "Advice") -> dict[str, Any]:
    """All of an advice as JSON can say it."""
    return {
        "threads": advice.threads,
        "dense_ms": advice.dense_ms,
        "advised_ms": advice.advised_ms,
        "ratio": advice.ratio,
        "dense_bytes": advice.dense_bytes,
        "advised_bytes": advice.advised_bytes,
        "left": advice.left,
        "layers": [
            {
                "name": layer.name,
                "shape": list(layer.shape),
                "rows": layer.rows,
                "dense_bytes": layer.dense_bytes,
                "recommendation": layer.recommendation,
                "why": layer.why,
                "trials": [
                    {
                        "density": trial.density,
                        "blocksize": list(trial.blocksize),
                        "dense_ms": trial.dense_ms,
                        "sparse_ms": trial.sparse_ms,
                        "bytes": trial.bytes,
                    }
                    for trial in layer.trials
                ],
            }
            for layer in advice.layers
        ],
    }
