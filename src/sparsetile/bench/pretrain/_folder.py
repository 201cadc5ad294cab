"""The folder of a run: never another run's, unless that is asked for."""

import shutil
from pathlib import Path

from sparsetile.bench._errors import CommandError
from sparsetile.bench.pretrain._checkpoint import FOLDER, checkpoints
from sparsetile.bench.pretrain._logs import COLUMNS, UPDATES
from sparsetile.bench.pretrain._pictures import PICTURES

CONFIG, TOKENIZER = "config.toml", "tokenizer.json"
_OWN = (CONFIG, TOKENIZER, FOLDER, *COLUMNS, UPDATES, *PICTURES)


def refuse_run(folder: Path) -> None:
    """Refuse a folder that holds a run.

    Raises:
        CommandError: Says how to go on with that run, or to replace it.
    """
    there = _left_in(folder)
    if there:
        done = checkpoints(folder)
        until = f", up to step {int(done[-1].name[5:]):,}" if done else ""
        raise CommandError(
            f"--output {folder}: holds a run already ({there[0].name}{until}); go on with it by "
            "--resume, replace it by --overwrite, or name another folder"
        )


def start(folder: Path) -> None:
    """Make the folder of a new run; what another run left there goes, other files stay.

    Raises:
        CommandError: If the folder cannot be made.
    """
    for path in _left_in(folder):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"--output {folder}: cannot be made ({error.strerror}); it must be a folder; name "
            "another"
        ) from None


def last_checkpoint(folder: Path) -> Path:
    """Where to go on.

    Raises:
        CommandError: If there is nothing to go on with.
    """
    done = checkpoints(folder)
    if not done or not (folder / CONFIG).is_file():
        raise CommandError(
            f"--output {folder}: holds no checkpoint to resume; name the folder of a run that has "
            "been stopped, or leave --resume out to start one"
        )
    for half in (folder / FOLDER).glob(".*.part"):
        shutil.rmtree(half)
    return done[-1]


def _left_in(folder: Path) -> list[Path]:
    return [folder / name for name in _OWN if (folder / name).exists()]
