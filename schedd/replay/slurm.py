"""Reader of Slurm's accounting (``sacct``): every run that ended, requeued ones as jobs."""

from collections.abc import Iterator, Sequence
from itertools import dropwhile
from pathlib import Path

from schedd.dialect import slurm_accounting
from schedd.replay.accounting import make_trace_job
from schedd.replay.text_lines import read_lines
from schedd.replay.workload import LogFault, Trace, TraceError, TraceJob


def is_slurm_log(path: Path) -> bool:
    """Whether a file (plain or gzip) begins like sacct's output. Raises TraceError if unreadable."""
    return slurm_accounting.is_slurm_log(next(_written_lines(path), ""))


def read_slurm(paths: Sequence[Path], name: str, *, strict: bool = False) -> Trace:
    """Return the jobs that ended in the files ``paths``, all of one cluster.

    Raises TraceError for an unreadable file, and, if ``strict``, for the first malformed record.
    """
    jobs: list[TraceJob] = []
    faults: list[LogFault] = []
    for path in paths:
        try:
            read = slurm_accounting.read_slurm(dropwhile(str.isspace, read_lines(path)))
        except TraceError:
            raise
        except ValueError as bad:
            raise TraceError(f"{path}: {bad}") from None
        found = [LogFault(number, reason, path.name) for number, reason in read.faults]
        for run in read.runs:
            try:
                jobs.append(make_trace_job(run))
            except ValueError as bad:
                found.append(LogFault(0, str(bad), path.name))
        if strict and found:
            raise TraceError(str(found[0]))
        faults += found
    return Trace(name=name, jobs=tuple(jobs), unix_start_time=0, faults=tuple(faults))


def _written_lines(path: Path) -> Iterator[str]:
    return (line for line in read_lines(path) if line.strip())
