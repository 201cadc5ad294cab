"""Models and matrices in files, as commands read them: every refusal is one line."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsetile.bench._errors import CommandError, is_own_check, one_line

if TYPE_CHECKING:
    from torch import nn

    from sparsetile.matrix import BSR

_ONLY_MATRICES = (".mtx", ".mtx.gz", ".smtx", ".smtx.gz", ".npz")
_TOKENIZER = ("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json",
              "*.model", "chat_template*")  # fmt: skip


@contextmanager
def refusing() -> Iterator[None]:
    """Turn what files can do to a reader or writer into a line for the person who typed.

    Raises:
        CommandError: For a missing or unwritable file, a missing package, or a refusal of ours.
    """
    try:
        yield
    except OSError as error:
        if is_own_check(error) or error.strerror is None:
            raise CommandError(one_line(error)) from None
        where = f"{error.filename}: " if error.filename else ""
        fix = "check the path, and whether you may read and write there"
        raise CommandError(f"{where}{error.strerror}; {fix}") from None
    except ImportError as error:
        if not is_own_check(error):
            raise
        raise CommandError(one_line(error)) from None


def is_model_folder(path: Path) -> bool:
    """Whether a folder says how its model is built."""
    return path.is_dir() and (path / "config.json").is_file()


def read_matrix(path: Path) -> "BSR | None":
    """Read a file if it holds one matrix and no model.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a file of a suffix that only matrices have is damaged.
    """
    from sparsetile.matrix import load

    name = path.name.lower()
    if name.endswith(_ONLY_MATRICES):
        return load(path)
    if not path.is_file() or not name.endswith((".pt", ".safetensors")):
        return None
    try:
        return load(path)
    except ValueError:
        return None  # a checkpoint, or damaged: its reader says which


def load_model(folder: Path) -> "nn.Module":
    """Load the model of a Hugging Face folder, whoever made it sparse.

    Raises:
        CommandError: If there is no model in it that can be loaded without code from elsewhere.
    """
    from sparsetile.models import from_pretrained, load_into, read_checkpoint

    check_folder(folder)
    if (folder / "sparsetile.json").is_file():
        return from_pretrained(folder)
    checkpoint = read_checkpoint(folder)
    if checkpoint.formats == ("dense",):
        made, _ = _class_and_config(folder)
        with _from_transformers(folder):
            model: nn.Module = made.from_pretrained(folder, local_files_only=True)
        return model.eval()
    model = build_model(folder)
    try:
        return load_into(model, checkpoint).model.eval()
    except RuntimeError as error:
        raise CommandError(f"{folder}: {one_line(error)}") from None


def build_model(folder: Path) -> "nn.Module":
    """Build the model of a folder with weights drawn at random.

    Raises:
        CommandError: If its config cannot be read without code from elsewhere.
    """
    check_folder(folder)
    made, config = _class_and_config(folder)
    with _from_transformers(folder):
        model: nn.Module = made(config)
    return model.eval()


def check_folder(folder: Path) -> None:
    """Refuse what is no folder of a model."""
    if not folder.exists():
        raise CommandError(f"{folder}: no such folder; give the folder of a Hugging Face model")
    if not is_model_folder(folder):
        raise CommandError(
            f"{folder}: has no config.json, which says how the model is built; give the folder "
            "of a Hugging Face model"
        )


class TokenizerFiles:
    """The tokenizer of a folder, saved by copying its files.

    Args:
        folder: Where the files are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save_pretrained(self, target: str) -> None:
        """Copy the files."""
        for pattern in _TOKENIZER:
            for path in self._folder.glob(pattern):
                if path.is_file():
                    shutil.copyfile(path, Path(target, path.name))


def _class_and_config(folder: Path) -> tuple[Any, Any]:
    """The class of transformers that a config names, and the config."""
    import transformers

    with _from_transformers(folder):
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
        text = (folder / "config.json").read_text(encoding="utf-8")
        named = json.loads(text).get("architectures") or [""]
    made = getattr(transformers, str(named[0]), None)
    if not (isinstance(made, type) and issubclass(made, transformers.PreTrainedModel)):
        raise CommandError(
            f"{folder}: 'architectures' is {named!r}; it must name a class of transformers, such "
            'as ["BertModel"]; write it into config.json'
        )
    return made, config


@contextmanager
def _from_transformers(folder: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # transformers raises what it meets
        text = one_line(error)[:400]
        raise CommandError(
            f"{folder}: transformers cannot load it ({type(error).__name__}: {text}); check its "
            "files, or download the folder again"
        ) from None
