"""Files of accounting logs, plain or gzipped: their lines, and whether their format is known."""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Final

from schedd.dialect.accounting import is_record
from schedd.dialect.slurm_accounting import is_slurm_log, read_slurm

UNKNOWN_FORMAT: Final = (
    "it has neither records of a PBS accounting log nor output of sacct: print Slurm's log with its header, "
    "as `sacct --parsable2 --format=ALL`"
)
_GZIP_MAGIC: Final = b"\x1f\x8b"
_CHECKED_LINES: Final = 1_000
_CHECKED_BYTES: Final = 64 << 20  # a larger JSON document is not checked


def read_log_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a log. Raises OSError, EOFError and zlib.error."""
    with path.open("rb") as raw:
        zipped = raw.read(2) == _GZIP_MAGIC
    with (gzip.open if zipped else open)(path, "rt", encoding="utf-8", errors="replace") as lines:
        yield from lines


def log_fault(path: Path) -> str:
    """Return why a log cannot be read: its file is missing, or its format is unknown; empty if it can.

    Of a table or a PBS log the first lines are checked, of a directory only whether it exists.
    """
    try:
        if path.stat().st_size > _CHECKED_BYTES or not path.is_file():
            return ""
        lines = read_log_lines(path)
        first = next((line for line in lines if line.strip()), "")
        rest: Iterable[str] = lines if first.lstrip().startswith("{") else islice(lines, _CHECKED_LINES)
        if is_slurm_log(first):
            read_slurm(chain([first], rest))
        elif first and not any(map(is_record, chain([first], rest))):
            return UNKNOWN_FORMAT
    except (OSError, EOFError, ValueError, zlib.error) as error:
        return _reason(error)
    return ""


def _reason(error: Exception) -> str:
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
