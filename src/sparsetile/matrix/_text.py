"""Text of any length, packed by gzip or not, read a bounded piece at a time."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, cast

from sparsetile.matrix._entries import bad_file

PIECE = 2**20
LONGEST = 2**20
# What deflate makes of a byte at most.
_UNPACKED = 1032


class Text:
    """A text file and how far it has been read.

    Lines may end as on any system. One byte is one character, so that any bytes can be read.

    Attributes:
        path: The file.
        lines: Lines handed out so far.
        size: Characters handed out so far.
        most: What the file can hold at most, in bytes.
    """

    def __init__(self, path: Path, file: TextIOWrapper, most: int) -> None:
        self.path, self.lines, self.size, self.most = path, 0, 0, most
        self._file = file

    def line(self) -> str:
        """Read a line that is not longer than a line may be.

        Returns:
            The line with its end; nothing at the end of the file.

        Raises:
            ValueError: If it is too long.
        """
        text = self._took(self._file.readline(LONGEST))
        self.lines += 1
        if len(text) == LONGEST and not text.endswith("\n"):
            raise self._too_long(self.lines)
        return text

    def part_of_line(self) -> str:
        """Read on in a line that may be of any length.

        Returns:
            Its next piece, with its end if that is in it; nothing at the end of the file.
        """
        text = self._took(self._file.readline(PIECE))
        self.lines += text.endswith("\n")
        return text

    def whole_lines(self) -> Iterator[str]:
        """Read the rest, many lines at a time.

        Yields:
            Some lines. `lines` still tells how many there were before them.

        Raises:
            ValueError: If a line is too long.
        """
        while text := self._took(self._file.read(PIECE)):
            if not text.endswith("\n"):
                tail = self._took(self._file.readline(LONGEST))
                text += tail
                if len(tail) == LONGEST and not tail.endswith("\n"):
                    raise self._too_long(self.lines + text.count("\n") + 1)
            yield text
            self.lines += text.count("\n")

    def _took(self, text: str) -> str:
        self.size += len(text)
        return text

    def _too_long(self, line: int) -> ValueError:
        got, allowed = "a line without end", f"lines of at most {LONGEST} characters"
        return bad_file(self.path, got=got, allowed=allowed, fix="get the file again", line=line)


@contextmanager
def open_text(path: Path) -> Iterator[Text]:
    """Open a text file for reading; one whose name ends in `.gz` is unpacked on the way.

    Args:
        path: The file.

    Yields:
        The text.

    Raises:
        ValueError: If it is packed, and the packing is damaged.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.mtx.gz")
        ...     _ = path.write_bytes(gzip.compress(b"one"))
        ...     with open_text(path) as text:
        ...         text.line()
        'one'
    """
    packed, most = path.suffix.lower() == ".gz", path.stat().st_size
    with path.open("rb") as raw:
        # Unpacked it behaves as a file, which typeshed does not say.
        source = cast(BinaryIO, gzip.GzipFile(fileobj=raw, mode="rb")) if packed else raw
        with TextIOWrapper(source, encoding="latin-1") as file:
            text = Text(path, file, most * _UNPACKED if packed else most)
            try:
                yield text
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                got, fix = f"gzip that is damaged or cut: {error}", "get the file again"
                allowed = "a whole file packed by gzip"
                raise bad_file(path, got=got, allowed=allowed, fix=fix) from None
