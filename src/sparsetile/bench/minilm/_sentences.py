"""Sentences that every machine has: the standard library's own prose, and Shakespeare."""

import ast
import io
import random
import re
import sysconfig
import tokenize
import warnings
from dataclasses import dataclass
from pathlib import Path

from sparsetile.bench._errors import CommandError
from sparsetile.bench._progress import say
from sparsetile.bench.dynsparse._shakespeare import shakespeare

_SKIPPED = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
)
_SHORTEST, _LONGEST = 24, 400  # characters
_ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])")


@dataclass(frozen=True)
class Sentences:
    """Sentences in three parts; none is in two of them.

    Args:
        source: Where they come from, in words.
        calibration: What pruning may look at.
        held_out: What the models are judged on.
        training: What recovery learns from.
    """

    source: str
    calibration: tuple[str, ...]
    held_out: tuple[str, ...]
    training: tuple[str, ...]


def sentences(
    *, calibration: int, held_out: int, training: int, files: int | None, plays: bool
) -> Sentences:
    """Read, mix and split sentences; the same on every machine with this version of Python.

    Args:
        calibration: How many to calibrate on.
        held_out: How many to judge on.
        training: How many to learn from at most.
        files: Files of the standard library to read; all if None.
        plays: Take Shakespeare's too, if the package that holds him can be had.

    Returns:
        The sentences.

    Raises:
        CommandError: If there are too few.
    """
    found = _standard_library(files)
    source = f"prose in the source of Python {sysconfig.get_python_version()}'s standard library"
    if plays:
        try:
            text = shakespeare()
        except CommandError as reason:
            say(f"without Shakespeare: {reason}")
        else:
            found |= set(in_prose(text.train + text.held_out))
            source += " and Shakespeare's works"
    mixed = sorted(found)
    random.Random(0).shuffle(mixed)
    judged = calibration + held_out
    if len(mixed) <= judged:
        raise CommandError(
            f"the standard library has {len(mixed)} sentences; at least {judged + 1} are needed: "
            "install its source files"
        )
    return Sentences(
        source,
        tuple(mixed[:calibration]),
        tuple(mixed[calibration:judged]),
        tuple(mixed[judged : judged + training]),
    )


def in_prose(text: str) -> list[str]:
    """Sentences of a text: paragraphs are cut where a stop is followed by a capital.

    Args:
        text: Prose; a blank line ends a paragraph.

    Returns:
        Sentences of a fit length with mostly letters, on one line each.

    Examples:
        >>> in_prose("He saw that it was good and true. So he went home again. No.")
        ['He saw that it was good and true.']
    """
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in _ENDS.split(" ".join(paragraph.split())):
            letters = sum(map(str.isalpha, sentence)) + sentence.count(" ")
            if _SHORTEST <= len(sentence) <= _LONGEST and letters > 0.85 * len(sentence):
                found.append(sentence)
    return found


def _standard_library(files: int | None) -> set[str]:
    root = Path(sysconfig.get_path("stdlib"))
    paths = sorted(
        path
        for path in root.rglob("*.py")
        if not _SKIPPED.intersection(path.relative_to(root).parts)
    )
    found: set[str] = set()
    for path in paths[:files]:
        source = path.read_text(encoding="utf-8", errors="replace")
        found.update(in_prose("\n\n".join([*_docstrings(source), *_comments(source)])))
    return found


def _docstrings(source: str) -> list[str]:
    try:
        with warnings.catch_warnings():  # old escapes in strings are no matter of ours
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    told = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
    return [text for text in told if text]


def _comments(source: str) -> list[str]:
    """Comments, those on lines that follow each other as one text."""
    texts: list[str] = []
    last = -2
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type != tokenize.COMMENT:
                continue
            text = token.string.lstrip("#! ")
            if token.start[0] == last + 1 and texts:
                texts[-1] += "\n" + text
            else:
                texts.append(text)
            last = token.start[0]
    except (tokenize.TokenError, SyntaxError):
        pass
    return texts
