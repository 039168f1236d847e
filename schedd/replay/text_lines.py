"""Lines of a text file, plain or gzip."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from schedd.replay.workload import TraceError

_GZIP_MAGIC = b"\x1f\x8b"


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of `path`; gzip is recognised by its first bytes, and invalid UTF-8 becomes U+FFFD.

    Raises TraceError when the file cannot be opened or its compressed data ends early.
    """
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == _GZIP_MAGIC
        opener = gzip.open if zipped else open
        with opener(path, "rt", encoding="utf-8", errors="replace") as text:
            yield from text
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error
