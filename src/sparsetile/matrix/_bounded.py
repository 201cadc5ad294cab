"""Files that are never asked for more than they hold."""

from io import BufferedReader, FileIO
from pathlib import Path


class BoundedFile(BufferedReader):
    """A file whose reads ask for no more memory than the file has bytes.

    Python's own take memory for as many bytes as they are asked for, and what reads archives asks
    for as many as a damaged head says.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a").write_bytes(b"one")
        ...     with BoundedFile(Path(folder, "a")) as file:
        ...         file.read(10**15)
        b'one'
    """

    def __init__(self, path: Path) -> None:
        super().__init__(FileIO(path))
        self._most = path.stat().st_size

    def read(self, size: int | None = -1, /) -> bytes:
        """Read some bytes.

        Args:
            size: How many at most; all that are left if negative or None.

        Returns:
            The bytes.
        """
        return super().read(size if size is None or size < 0 else min(size, self._most))
