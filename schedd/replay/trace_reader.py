"""Reader of logs in every format, recognised by their content."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from schedd.dialect.accounting import is_record
from schedd.replay.accounting import read_accounting
from schedd.replay.gwf import is_gwf_log, read_gwf
from schedd.replay.slurm import is_slurm_log, read_slurm
from schedd.replay.swf import read_swf
from schedd.replay.text_lines import read_lines
from schedd.replay.workload import Trace, TraceError


def read_traces(
    paths: Sequence[Path], *, strict: bool = False, first: int | None = None
) -> tuple[Trace, ...]:
    """Return the logs in `paths`: first those in the Standard and the Grid Workload Format in order, then the
    accounting log of PBS, then that of Slurm.

    All accounting files of one kind together form one log, named after the first; a directory stands for its
    accounting files. ``first``: number of jobs that ran, in order of submission, needed of each. Raises
    TraceError for an unreadable file, for a log without jobs, and, if `strict`, for the first malformed line.
    """
    traces: dict[Path, Trace] = {}
    accounting: list[Path] = []
    slurm: list[Path] = []
    for path in paths:
        files = _files(path)
        if files is not None:
            of_pbs = [file for file in files if _is_accounting(file)]
            of_slurm = [file for file in files if file not in of_pbs and is_slurm_log(file)]
            if not of_pbs and not of_slurm:
                raise TraceError(f"{path}: the directory has no accounting log")
            accounting += of_pbs
            slurm += of_slurm
        elif _is_accounting(path):
            accounting.append(path)
        elif is_slurm_log(path):
            slurm.append(path)
        elif is_gwf_log(path):
            traces[path] = read_gwf(path, strict=strict)
        else:
            traces[path] = read_swf(path, strict=strict, first=first)
    if accounting:
        traces[accounting[0]] = read_accounting(accounting, accounting[0].name, strict=strict)
    if slurm:
        traces[slurm[0]] = read_slurm(slurm, slurm[0].name, strict=strict)
    for path, trace in traces.items():
        if not trace.jobs:
            why = f"; {trace.faults[0]}" if trace.faults else ""
            raise TraceError(
                f"{path}: the file has no job in Standard Workload, Grid Workload, accounting or sacct "
                f"format{why}"
            )
    return tuple(traces.values())


def _files(path: Path) -> list[Path] | None:
    """Return the files of a directory; None if ``path`` is none. Raises TraceError if it is unreadable."""
    try:
        return sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None


def _is_accounting(file: Path) -> bool:
    return any(is_record(line) for line in islice(read_lines(file), 20))
