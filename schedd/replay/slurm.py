"""Reader of Slurm's accounting (``sacct``): every run that ended; one lost to a requeue is a job of its
own.
"""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from schedd.dialect.slurm_accounting import (
    SlurmRuns,
    is_slurm_header,
    is_slurm_json,
    read_slurm_json,
    read_slurm_table,
)
from schedd.replay.accounting import job_of_run
from schedd.replay.text_lines import read_lines
from schedd.replay.workload import LogFault, Trace, TraceError, TraceJob

__all__ = ["is_slurm_log", "read_slurm"]


def is_slurm_log(path: Path) -> bool:
    """Whether a file, plain or gzip, begins like the output of sacct. Raises TraceError if it is
    unreadable.
    """
    first = _first_line(path)
    return is_slurm_header(first) or is_slurm_json(first)


def read_slurm(paths: Sequence[Path], name: str, *, strict: bool = False) -> Trace:
    """Return the jobs that ended in the files ``paths``, all of one cluster.

    Raises TraceError for an unreadable file, and, if ``strict``, for the first malformed record.
    """
    jobs: list[TraceJob] = []
    faults: list[LogFault] = []
    for path in paths:
        read = _read(path)
        found = [LogFault(number, reason, path.name) for number, reason in read.faults]
        for run in read.runs:
            try:
                jobs.append(job_of_run(run))
            except ValueError as bad:
                found.append(LogFault(0, str(bad), path.name))
        if strict and found:
            raise TraceError(str(found[0]))
        faults += found
    return Trace(name=name, jobs=tuple(jobs), unix_start_time=0, faults=tuple(faults))


def _first_line(path: Path) -> str:
    return next((line for line in read_lines(path) if line.strip()), "")


def _read(path: Path) -> SlurmRuns:
    lines = read_lines(path)
    first = next((line for line in lines if line.strip()), "")
    try:
        if is_slurm_json(first):
            return read_slurm_json("".join(chain([first], lines)))
        return read_slurm_table(chain([first], lines))
    except ValueError as bad:
        raise TraceError(f"{path}: {bad}") from None
