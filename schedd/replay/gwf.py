"""Reader of the Grid Workload Format of the Grid Workloads Archive.

Version 1 of the format: 29 fields between tabs, comment lines with ``#``, -1 for unknown, times as seconds
since the epoch.
"""

import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from sys import intern
from typing import Final

from schedd.replay.swf import MalformedLine
from schedd.replay.text_lines import read_lines
from schedd.replay.workload import PROCS_LIMIT, TIME_LIMIT, UNKNOWN, LogFault, Trace, TraceError, TraceJob

_FIELDS: Final = 29
_LOOKED_AT: Final = 400  # lines read to detect the format; headers have about a hundred
_MEM_LIMIT: Final = 1 << 60


def is_gwf_log(path: Path) -> bool:
    """Return whether the file's first line that is not a comment has the fields of the format."""
    for line in islice(read_lines(path), _LOOKED_AT):
        if line.strip() and not line.lstrip().startswith("#"):
            return len(_split(line)) == _FIELDS
    return False


def read_gwf(path: Path, *, strict: bool = False) -> Trace:
    """Return the log in the file `path`, plain or gzip; lines that are not jobs become faults of
    the trace.

    Raises TraceError when the file cannot be read or, if `strict`, at the first malformed line.
    """
    name = re.sub(r"(\.gwf)?(\.gz)?$", "", path.name)
    return read_gwf_lines(read_lines(path), name, strict=strict)


def read_gwf_lines(lines: Iterable[str], name: str, *, strict: bool = False) -> Trace:
    """Like `read_gwf`, from lines that are already text."""
    jobs: list[TraceJob] = []
    faults: list[LogFault] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            jobs.append(parse_gwf_job(line))
        except MalformedLine as bad:
            fault = LogFault(number, str(bad))
            if strict:
                raise TraceError(f"{name}, {fault}") from bad
            faults.append(fault)
    return Trace(name=name, jobs=tuple(jobs), unix_start_time=0, faults=tuple(faults))


def parse_gwf_job(line: str) -> TraceJob:
    """Return the job that `line` describes. Processors are field 5, or field 8 where that is unknown.

    Raises MalformedLine.
    """
    fields = _split(line)
    if len(fields) != _FIELDS:
        raise MalformedLine(f"{len(fields)} fields where {_FIELDS} are expected")
    submit, wait, run, used_procs = (_round_number(text) for text in fields[1:5])
    used_mem, asked_procs, asked_time, asked_mem, status = (_round_number(text) for text in fields[6:11])
    procs = used_procs if used_procs > 0 else max(0, asked_procs)
    if max(abs(submit), wait, run, asked_time) > TIME_LIMIT:
        raise MalformedLine("a time that is too far from any log")
    if procs > PROCS_LIMIT or max(used_mem, asked_mem) > _MEM_LIMIT:
        raise MalformedLine("more processors or memory than any machine")
    return TraceJob(
        int(fields[0]) if fields[0].isdecimal() and len(fields[0]) <= 18 else fields[0],
        submit,
        run,
        procs,
        max(0, asked_time),
        _name(fields[11]),
        _name(fields[12]),
        _name(fields[14]),
        asked_mem if asked_mem > 0 else None,
        used_mem if used_mem > 0 else None,
        wait=wait if wait >= 0 else None,
        status=status if status in (0, 1, 5) else -1,
        name="" if fields[13] in {"-1", "0"} else intern(fields[13]),
    )


def _split(line: str) -> list[str]:
    line = line.strip()
    return [field.strip() for field in line.split("\t")] if "\t" in line else line.split()


def _round_number(text: str) -> int:
    """Return the nearest integer; some logs print decimals."""
    try:
        return int(text) if text.lstrip("-").isdecimal() and len(text) < 20 else round(float(text))
    except (ValueError, OverflowError):
        raise MalformedLine(f"{text[:40]!r} is not a number") from None


def _name(text: str) -> str:
    return UNKNOWN if text in {"-1", ""} else intern(text)
