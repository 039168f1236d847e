"""Reader of accounting logs, plain or gzipped: the server's files, or sacct's output."""

import gzip
import re
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from pathlib import Path
from typing import Final

import structlog

from schedd.dialect.accounting import EndedRun, RunReader
from schedd.dialect.slurm_accounting import is_slurm_log, read_slurm

_log = structlog.get_logger(__name__)
_DAILY: Final = re.compile(r"(\d{8})(\.gz)?")
_GZIP_MAGIC: Final = b"\x1f\x8b"


def ended_runs(where: Path, oldest: int, cluster: str, what: str) -> Iterator[EndedRun]:
    """Yield the runs in the logs that ended after ``oldest``, including runs that were lost to a rerun.

    ``where`` is a file or a directory of daily files. Unreadable files and lines are logged and skipped; at
    the end the number of runs is logged, with ``what`` as their purpose.
    """
    runs = faults = 0
    reader = RunReader()
    try:
        files = [*_files(where, oldest, cluster)]
    except OSError as error:  # such as a directory that only root may read
        _log.error("accounting logs cannot be read", cluster=cluster, directory=str(where), why=str(error))
        files = []
    for path in files:
        try:
            for run in _runs(path, reader):
                if run is None:
                    faults += 1
                elif run.end > oldest:
                    yield run
                    runs += 1
        except (OSError, EOFError, ValueError, zlib.error) as error:
            _log.error("an accounting log cannot be read", cluster=cluster, file=str(path), why=str(error))
    _log.info(f"{what} was read from accounting logs", cluster=cluster, runs=runs, malformed=faults)


def _files(where: Path, oldest: int, cluster: str) -> Iterator[Path]:
    """Yield the log itself, or the files of a directory (YYYYMMDD) that may have recent runs."""
    if not where.is_dir():
        yield where
        return
    first = f"{datetime.fromtimestamp(oldest, UTC) - timedelta(days=1):%Y%m%d}"
    names = sorted(path.name for path in where.iterdir() if _DAILY.fullmatch(path.name))
    if not names:
        _log.error("no accounting log (YYYYMMDD) in the directory", cluster=cluster, directory=str(where))
    yield from (where / name for name in names if name[:8] >= first)


def _runs(path: Path, reader: RunReader) -> Iterator[EndedRun | None]:
    """Yield the runs of a file, and None for each malformed record.

    Raises ValueError when the file looks like the output of sacct and cannot be read as such.
    """
    lines = _lines(path)
    first = next((line for line in lines if line.strip()), "")
    if is_slurm_log(first):
        read = read_slurm(chain([first], lines))
        yield from read.runs
        yield from repeat(None, len(read.faults))
        return
    for line in chain([first], lines):
        if reader.needs(line):
            try:
                run = reader.read(line)
            except ValueError:
                yield None
            else:
                if run is not None:
                    yield run


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as raw:
        zipped = raw.read(2) == _GZIP_MAGIC
    with (gzip.open if zipped else open)(path, "rt", encoding="utf-8", errors="replace") as lines:
        yield from lines
