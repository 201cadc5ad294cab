"""A folder that is replaced whole or left as it was."""

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_folder(folder: Path, ours: Callable[[Path], bool]) -> Iterator[Path]:
    """Give a new folder to write to, and put it in place when all is written.

    Other files of a folder that is there already (a tokenizer, a model card) stay in it.

    Args:
        folder: What to make or replace; a link is followed.
        ours: Tells which files of the present folder the new ones replace.

    Yields:
        An empty folder beside it.

    Raises:
        OSError: If it cannot be written; the old folder is as it was.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as place:
        ...     with whole_folder(Path(place) / "model", lambda path: False) as new:
        ...         _ = (new / "a.txt").write_text("one")
        ...     [path.name for path in (Path(place) / "model").iterdir()]
        ['a.txt']
    """
    folder = folder.resolve()
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder}: got a file; allowed: a folder; choose another name")
    folder.parent.mkdir(parents=True, exist_ok=True)
    mark = uuid.uuid4().hex
    new, old = (folder.with_name(f".{folder.name}.{mark}.{end}") for end in ("tmp", "old"))
    new.mkdir()
    try:
        yield new
        for path in new.rglob("*"):
            if path.is_file():
                _sync(path)
        if folder.is_dir():
            shutil.copymode(folder, new)
            _carry_over(folder, new, ours)
            folder.rename(old)
            try:
                new.rename(folder)
            except BaseException:
                old.rename(folder)
                raise
            shutil.rmtree(old, ignore_errors=True)
        else:
            new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _carry_over(old: Path, new: Path, ours: Callable[[Path], bool]) -> None:
    for path in old.iterdir():
        if ours(path) or (new / path.name).exists():
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, new / path.name, symlinks=True, copy_function=_linked)
        else:
            _linked(path, new / path.name)


def _linked(source: str | Path, target: str | Path) -> str:
    """Link a file where the file system can, and copy it where not."""
    with suppress(OSError):
        os.link(source, target, follow_symlinks=False)
        return str(target)
    return str(shutil.copy2(source, target, follow_symlinks=False))


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
