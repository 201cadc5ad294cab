"""The model of a folder pruned into another folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

from sparsetile.bench._convert import size_of
from sparsetile.bench._errors import CommandError
from sparsetile.bench._model_files import TokenizerFiles, check_folder, load_model
from sparsetile.models import save_pretrained
from sparsetile.prune import PruneReport, prune_

Method = Literal["magnitude", "wanda", "sparsegpt"]
_BATCH = 8


def prune_folder(
    source: Path,
    target: Path,
    *,
    density: float,
    blocksize: tuple[int, int],
    method: Method,
    calibration: Path | None,
    samples: int,
    sequence: int,
    progress: Callable[[int, int, str], None],
) -> tuple[PruneReport, dict[str, Any]]:
    """Load, prune and save a model.

    Args:
        source: The folder of a Hugging Face model.
        target: Where the pruned one goes; written whole or not at all.
        density: Share of the blocks to keep.
        blocksize: Shape of the blocks.
        method: What chooses the blocks.
        calibration: A text file, for methods that look at data.
        samples: Pieces of it to use at most.
        sequence: Tokens of a piece at most.
        progress: Called as `progress(done, total, name)`.

    Returns:
        What was done to each layer, and what JSON is to say beside it.

    Raises:
        CommandError: If something does not go together.
        OSError: If a file cannot be read or written.
    """
    check_folder(source)
    data = None
    if calibration is not None:
        data = _batches(source, calibration, samples, sequence)
    model = load_model(source)
    report = prune_(
        model,
        density=density,
        blocksize=blocksize,
        method=method,
        calibration=data,
        progress=progress,
    )
    save_pretrained(model, target, tokenizer=TokenizerFiles(source))
    about = {
        "input": str(source),
        "output": str(target),
        "method": method,
        "density": report.density,
        "output_error": report.output_error,
        "seconds": report.seconds,
        "bytes_in": size_of(source),
        "bytes_out": size_of(target),
        "layers": [
            {
                "name": layer.name,
                "shape": list(layer.shape),
                "blocksize": list(layer.blocksize),
                "method": layer.method,
                "density": layer.density,
                "blocks": layer.blocks,
                "positions": layer.positions,
                "output_error": layer.output_error,
                "seconds": layer.seconds,
            }
            for layer in report.layers
        ],
    }
    return report, about


def _batches(
    source: Path, calibration: Path, samples: int, sequence: int
) -> list[dict[str, torch.Tensor]]:
    """Pieces of a text as the model takes them."""
    from transformers import AutoTokenizer

    try:
        text = calibration.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise CommandError(
            f"--calibration {calibration}: is not UTF-8 text; give a plain text file"
        ) from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # transformers raises what it meets
        text = " ".join(str(error).split())[:300]
        raise CommandError(
            f"{source}: its tokenizer cannot be loaded ({text}); put the tokenizer's files there"
        ) from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    pieces = _joined(lines, 4 * sequence)[:samples]
    if not pieces:
        raise CommandError(f"--calibration {calibration}: is empty; give a file with text in it")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    batches = []
    for start in range(0, len(pieces), _BATCH):
        made = tokenizer(
            pieces[start : start + _BATCH],
            return_tensors="pt",
            padding=True,
            truncation=True,
            max_length=sequence,
        )
        batches.append(dict(made))
    return batches


def _joined(lines: list[str], characters: int) -> list[str]:
    """Join lines that follow each other until a piece is long enough."""
    pieces: list[str] = []
    for line in lines:
        if pieces and len(pieces[-1]) < characters:
            pieces[-1] += " " + line
        else:
            pieces.append(line)
    return pieces
