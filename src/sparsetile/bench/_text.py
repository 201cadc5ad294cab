"""Real text to train on: the standard library's own source, or the user's files."""

import random
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sparsetile.bench._errors import CommandError

_SKIPPED = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
)
_SHORTEST = 20_000
_PIECE = 1 << 19


@dataclass(frozen=True)
class Text:
    """A training text and the last part of it, held out.

    Args:
        source: Where it comes from, in words.
        train: The text to learn from.
        held_out: The text to be judged on; no line of it is in `train`'s part of the source.
    """

    source: str
    train: str
    held_out: str


def read_text(
    files: Sequence[Path] = (), *, limit: int = 8_000_000, held_out: float = 0.05
) -> Text:
    """Read the training text.

    Args:
        files: Text files, read in this order; none for the standard library's source.
        limit: Characters to keep at most.
        held_out: Fraction at the end that is not trained on.

    Returns:
        The text, cut in two at a line's end.

    Raises:
        CommandError: If a file is missing, is not text, or the whole is too short.

    Examples:
        >>> text = read_text(limit=100_000)
        >>> len(text.train) > 90_000 and len(text.held_out) > 4_900
        True
    """
    if files:
        whole = "\n".join(_read(path) for path in files)
        source = ", ".join(path.name for path in files)
    else:
        whole, source = _standard_library(limit)
    whole = whole[:limit]
    if len(whole) < _SHORTEST:
        raise CommandError(
            f"the text has {len(whole):,} characters; training needs at least {_SHORTEST:,}; "
            "give longer files after --text, or none for the Python standard library's source"
        )
    cut = whole.find("\n", int(len(whole) * (1 - held_out))) + 1
    if cut == 0:  # no line ends in the last part
        cut = int(len(whole) * (1 - held_out))
    return Text(source, whole[:cut], whole[cut:])


def pieces(text: str) -> list[str]:
    """Cut a text at line ends into pieces that can be tokenized side by side."""
    cuts = [0]
    while len(text) - cuts[-1] > _PIECE:
        end = text.rfind("\n", cuts[-1] + 1, cuts[-1] + _PIECE)
        cuts.append(end if end > 0 else cuts[-1] + _PIECE)
    return [text[a:b] for a, b in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise CommandError(
            f"cannot read the text file {path}: {error.strerror}; --text takes readable files"
        ) from None
    if not text.strip():
        raise CommandError(f"the text file {path} is empty; --text takes files with text in them")
    if text.count("\ufffd") + text.count("\0") > len(text) // 20:
        raise CommandError(f"{path} does not look like UTF-8 text; --text takes plain text files")
    return text


def _standard_library(limit: int) -> tuple[str, str]:
    root = Path(sysconfig.get_path("stdlib"))
    found = sorted(
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if not _SKIPPED.intersection(path.relative_to(root).parts)
    )
    # Neighbours in the alphabet are of one kind (asyncio, encodings): mixed, the held-out end is
    # like the rest. The order is the same on every machine with this version of Python.
    random.Random(0).shuffle(found)
    texts, size = [], 0
    for name in found:
        texts.append((root / name).read_text(encoding="utf-8", errors="replace"))
        size += len(texts[-1])
        if size >= limit:
            break
    version = sysconfig.get_python_version()
    return "\n".join(texts), f"the source of Python {version}'s standard library"
