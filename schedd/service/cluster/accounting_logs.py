"""Reader of accounting logs, plain or gzipped: the server's files, or sacct's output."""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Final

import structlog

from schedd.dialect.accounting import EndedRun, RunReader, is_record
from schedd.dialect.accounting_files import UNKNOWN_FORMAT, read_log_lines
from schedd.dialect.slurm_accounting import is_slurm_log, read_slurm

_log = structlog.get_logger(__name__)
_DAILY: Final = re.compile(r"(\d{8})(\.gz)?")
_NAMED: Final = 3  # malformed records of a file that are named with their reason


@dataclass(frozen=True, slots=True)
class _MalformedRecord:
    """Number of a line, or of a job in a JSON document, from 1; and what is wrong with it."""

    number: int
    reason: str


def ended_runs(where: Path, oldest: int, cluster: str, what: str) -> Iterator[EndedRun]:
    """Yield the runs in the logs that ended after ``oldest``, including runs that were lost to a rerun.

    ``where`` is a file or a directory of daily files. Unreadable files and records are logged with the reason
    and skipped; at the end the number of runs is logged, with ``what`` as their purpose.
    """
    runs = malformed = 0
    reader = RunReader()
    try:
        files = [*_files(where, oldest, cluster)]
    except OSError as error:  # such as a directory that only root may read
        _log.error("accounting logs cannot be read", cluster=cluster, directory=str(where), why=str(error))
        files = []
    for path in files:
        faults: list[_MalformedRecord] = []
        try:
            for run in _runs(path, reader):
                if isinstance(run, _MalformedRecord):
                    faults.append(run)
                elif run.end > oldest:
                    yield run
                    runs += 1
        except (OSError, EOFError, ValueError, zlib.error) as error:
            _log.error("an accounting log cannot be read", cluster=cluster, file=str(path), why=str(error))
        if faults:
            named = "; ".join(f"record {one.number}: {one.reason}" for one in faults[:_NAMED])
            _log.warning(
                "records of an accounting log are malformed, and are skipped",
                cluster=cluster,
                file=str(path),
                records=len(faults),
                first=named,
            )
        malformed += len(faults)
    _log.info(f"{what} was read from accounting logs", cluster=cluster, runs=runs, malformed=malformed)


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


def _runs(path: Path, reader: RunReader) -> Iterator[EndedRun | _MalformedRecord]:
    """Yield the runs of a file, and its malformed records.

    Raises ValueError when the file is no accounting log, or looks like the output of sacct and cannot be read
    as such.
    """
    lines = read_log_lines(path)
    first = next((line for line in lines if line.strip()), "")
    if is_slurm_log(first):
        read = read_slurm(chain([first], lines))
        yield from read.runs
        yield from (_MalformedRecord(*one) for one in read.faults)
        return
    known = not first
    for number, line in enumerate(chain([first], lines), 1):
        known = known or is_record(line)
        if reader.needs(line):
            try:
                run = reader.read(line)
            except ValueError as error:
                yield _MalformedRecord(number, str(error))
            else:
                if run is not None:
                    yield run
    if not known:
        raise ValueError(UNKNOWN_FORMAT)
