"""Files that are whole or not there."""

import os
import uuid
from collections.abc import Callable
from io import BufferedIOBase
from pathlib import Path


def write_whole(path: Path, content: bytes | Callable[[BufferedIOBase], None]) -> None:
    """Write beside the file, then put it in its place: whoever looks sees the old or the new.

    Args:
        path: The file; a link is followed.
        content: What to write, or a function that writes it.

    Raises:
        OSError: If it cannot be written; the old file is as it was.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_whole(Path(folder) / "a.txt", b"one")
        ...     (Path(folder) / "a.txt").read_text(), len(list(Path(folder).iterdir()))
        ('one', 1)
    """
    path = path.resolve()
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with beside.open("xb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
