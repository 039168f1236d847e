"""Reader of the Standard Workload Format, as the Parallel Workloads Archive defines it.

Format: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html (Chapin et al., JSSPP 1999). Besides the
18 fields a longer form of 21 is known, published with the Alea simulator for MetaCentrum's logs: field 10
is then bytes on each node, 19 the list of hosts in braces, 20 the queue and 21 a PBS node specification.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from sys import intern
from typing import Final

from schedd.replay.text_lines import read_lines
from schedd.replay.workload import PROCS_LIMIT, TIME_LIMIT, UNKNOWN, LogFault, Trace, TraceError, TraceJob

_HEADER = re.compile(r";\s*(MaxProcs|MaxNodes|UnixStartTime):\s*(\d+)")
_MEM_LIMIT: Final = 1 << 60


class MalformedLine(ValueError):
    """A line that is not a job; the message is the reason."""


def read_swf(path: Path, *, strict: bool = False, first: int | None = None) -> Trace:
    """Return the log in the file `path`, plain or gzip. Lines that are not jobs become faults of
    the trace.

    ``first``: the reading may end after this number of jobs that ran, in order of submission. Raises
    TraceError when the file cannot be read or, if `strict`, at the first malformed line.
    """
    name = re.sub(r"(\.swf)?(\.gz)?$", "", path.name)
    return read_swf_lines(read_lines(path), name, strict=strict, first=first)


def read_swf_lines(
    lines: Iterable[str], name: str, *, strict: bool = False, first: int | None = None
) -> Trace:
    """Like `read_swf`, from lines that are already text. If a header occurs twice, the first one is used."""
    lines, ran, latest = list(lines), 0, -TIME_LIMIT
    header: dict[str, int] = {}
    jobs: list[TraceJob] = []
    faults: list[LogFault] = []
    for number, line in enumerate(lines, 1):
        try:
            job = parse_job(line)
        except MalformedLine as bad:
            text = line.strip()
            if not text:
                continue
            if text.startswith(";"):
                if known := _HEADER.match(text):
                    header.setdefault(known[1], int(known[2][:18]))
                continue
            fault = LogFault(number, str(bad))
            if strict:
                raise TraceError(f"{name}, {fault}") from bad
            faults.append(fault)
            continue
        jobs.append(job)
        latest = max(latest, job.submit)
        ran += job.has_run
        if ran == first and job.has_run and not strict and _is_all_later(lines[number:], latest):
            break
    return Trace(
        name=name,
        jobs=tuple(jobs),
        max_procs=header.get("MaxProcs") or None,
        max_nodes=header.get("MaxNodes") or None,
        unix_start_time=header.get("UnixStartTime"),
        faults=tuple(faults),
    )


def _is_all_later(lines: Sequence[str], latest: int) -> bool:
    """Return whether these lines are only jobs that were submitted at ``latest`` or later, and comments."""
    try:
        return all(
            line.startswith(";") or int(line.split(None, 2)[1]) >= latest for line in lines if line.strip()
        ) and not any(map(_HEADER.match, lines))
    except (ValueError, IndexError):  # a malformed line, which must be reported
        return False


def parse_job(line: str) -> TraceJob:
    """The job that `line` describes. Processors are field 5, or field 8 where that is unknown.

    Raises MalformedLine.
    """
    fields = line.split()
    if len(fields) != 18 and not (len(fields) == 21 and fields[18].startswith("{")):
        raise MalformedLine(f"{len(fields)} fields where 18 are expected")
    try:
        job, submit, wait, run, used_procs = map(int, fields[:5])
        used_mem, asked_procs, asked_time, asked_mem, status = map(int, fields[6:11])
    except ValueError:
        job, submit, wait, run, used_procs = map(_round_number, fields[:5])
        used_mem, asked_procs, asked_time, asked_mem, status = map(_round_number, fields[6:11])
    procs = used_procs if used_procs > 0 else max(0, asked_procs)
    if max(abs(submit), wait, run, asked_time) > TIME_LIMIT:
        raise MalformedLine("a time that is too far from any log")
    if procs > PROCS_LIMIT or max(used_mem, asked_mem) > _MEM_LIMIT:
        raise MalformedLine("more processors or memory than any machine")
    queue, mem_per_node, nodes_spec = fields[14], None, None
    mem_per_proc = asked_mem if asked_mem > 0 else None
    if len(fields) == 21:
        queue, nodes_spec = fields[19], fields[20]
        if mem_per_proc:
            mem_per_node = -(-mem_per_proc // 1024)
            mem_per_proc = None
    return TraceJob(
        job,
        submit,
        run,
        procs,
        max(0, asked_time),
        _name(fields[11]),
        _name(fields[12]),
        _name(queue),
        mem_per_proc,
        used_mem if used_mem > 0 else None,
        mem_per_node,
        nodes_spec,
        None,
        wait if wait >= 0 else None,
        status,
        name="" if fields[13] in {"-1", "0"} else intern(fields[13]),
    )


def _round_number(text: str) -> int:
    """Return the nearest integer: some logs print whole numbers with decimals."""
    try:
        return round(float(text))
    except (ValueError, OverflowError):
        raise MalformedLine(f"{text[:40]!r} is not a number") from None


def _name(text: str) -> str:
    return UNKNOWN if text == "-1" else intern(text)
