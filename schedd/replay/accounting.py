"""Reader of PBS and TORQUE accounting logs: every job that ended, from its E record.

Record form: ``MM/DD/YYYY HH:MM:SS;TYPE;ID;key=value key=value ...`` (TORQUE Administrator Guide, appendix
"Accounting records"; OpenPBS ``pbs_account``). All times inside a record are epoch seconds.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from sys import intern

from schedd.model.parse import RequestError, parse_size, parse_walltime
from schedd.replay.text import lines_of
from schedd.replay.workload import PROCS_LIMIT, TIME_LIMIT, UNKNOWN, Fault, Trace, TraceError, TraceJob

__all__ = ["is_record", "parse_ended", "read_accounting", "read_accounting_lines"]

_RECORD = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;(\w+);([^;]*);(.*)", re.DOTALL)
_KEY = re.compile(r"(?:^|\s+)([A-Za-z_][\w.]*)=")
_HOST = re.compile(r"[^/+\s]+/([\d,-]+)(?:\*(\d+))?")
_KILLED = 256
"""TORQUE and OpenPBS report an end by signal N as exit status 256 + N, among them every deletion."""


def is_record(line: str) -> bool:
    """Whether `line` looks like a record of an accounting log, of whatever type."""
    return _RECORD.match(line) is not None


def read_accounting(paths: Sequence[Path], name: str, *, strict: bool = False) -> Trace:
    """The jobs that ended in the log files `paths` (plain or gzip), in order of their ends.

    Raises TraceError when a file cannot be read or, if `strict`, at the first malformed line.
    """
    jobs: list[TraceJob] = []
    faults: list[Fault] = []
    for path in paths:
        part = read_accounting_lines(lines_of(path), path.name, strict=strict)
        jobs += part.jobs
        faults += part.faults
    return Trace(name=name, jobs=tuple(jobs), unix_start_time=0, faults=tuple(faults))


def read_accounting_lines(lines: Iterable[str], name: str, *, strict: bool = False) -> Trace:
    """Like `read_accounting`, from the lines of one file. Records other than E are passed over."""
    jobs: list[TraceJob] = []
    faults: list[Fault] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            job = parse_ended(line)
        except ValueError as bad:
            fault = Fault(number, str(bad), name)
            if strict:
                raise TraceError(str(fault)) from bad
            faults.append(fault)
        else:
            if job is not None:
                jobs.append(job)
    return Trace(name=name, jobs=tuple(jobs), unix_start_time=0, faults=tuple(faults))


def parse_ended(line: str) -> TraceJob | None:
    """The job of an E record; None for any other record and for the head of a job array.

    ``submit`` is the moment the job became eligible (etime), so that a hold or a dependency is not
    counted as waiting; else its queueing (qtime) or creation (ctime). Processors are those it ran on.
    Raises ValueError, whose message says what is missing or malformed.
    """
    record = _RECORD.match(line.strip())
    if record is None:
        raise ValueError("no accounting record: DATE TIME;TYPE;ID;key=value ... is expected")
    kind, job_id, message = record.groups()
    if kind != "E" or "[]" in job_id:
        return None
    values = _values(message)
    start, end = _epoch(values, "start"), _epoch(values, "end")
    submit = next((t for key in ("etime", "qtime", "ctime") if (t := _epoch(values, key))), 0)
    if not start or not end:
        raise ValueError(f"E record of job {job_id} without start or end")
    if end < start:
        raise ValueError(f"E record of job {job_id} ends ({end}) before it starts ({start})")
    procs = _procs(values)
    if procs > PROCS_LIMIT:
        raise ValueError(f"E record of job {job_id} with {procs} processors, more than any machine has")
    used = _stated(parse_size, values, "resources_used.mem")
    exit_status = values.get("Exit_status", "")
    return TraceJob(
        id=job_id,
        submit=min(submit or start, start),
        run=end - start,
        procs=procs,
        estimate=min(_stated(parse_walltime, values, "Resource_List.walltime"), TIME_LIMIT),
        user=intern(values.get("user") or UNKNOWN),
        group=intern(values.get("group") or UNKNOWN),
        queue=intern(values.get("queue") or UNKNOWN),
        mem_kib_per_proc=_mem_per_proc(values, procs),
        used_mem_kib_per_proc=-(-used // procs) if used else None,
        nodes_spec=values.get("Resource_List.nodes"),
        select_spec=values.get("Resource_List.select"),
        wait=start - min(submit or start, start),
        status=_status(exit_status),
    )


def _values(message: str) -> dict[str, str]:
    """Key to value. A value may hold blanks or stand in quotes; of a key given twice the first counts."""
    keys = list(_KEY.finditer(message))
    ends = [key.start() for key in keys[1:]] + [len(message)]
    found: dict[str, str] = {}
    for key, end in zip(keys, ends, strict=True):
        found.setdefault(key[1], message[key.end() : end].strip().strip('"'))
    return found


def _epoch(values: dict[str, str], key: str) -> int:
    text = values.get(key, "0")
    if not re.fullmatch(r"[0-9]{1,10}", text):
        raise ValueError(f"{key}={text[:40]} is no time in epoch seconds")
    return int(text)


def _stated(parse: Callable[[str], int], values: dict[str, str], key: str) -> int:
    """What `parse` reads from the value of `key`; 0 for none or one without an amount, such as UNLIMITED."""
    try:
        return parse(values[key])
    except (KeyError, RequestError):
        return 0


def _procs(values: dict[str, str]) -> int:
    """Processors the job ran on: its execution slots, else the server's total, else what it asked for."""
    slots = sum(_slots(host[1]) * int(host[2] or 1) for host in _HOST.finditer(values.get("exec_host", "")))
    if slots:
        return slots
    for key in ("total_execution_slots", "Resource_List.ncpus", "Resource_List.procs"):
        text = values.get(key, "")
        if re.fullmatch(r"0*[1-9][0-9]{0,7}", text):
            return int(text)
    return 1


def _slots(text: str) -> int:
    """How many indices a list such as ``0-3,6`` names."""
    count = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            count += int(last) - int(first) + 1 if last.isdigit() and int(last) >= int(first) else 1
    return count


def _mem_per_proc(values: dict[str, str], procs: int) -> int | None:
    """The larger of ``mem`` (for the whole job, divided over its processors) and ``pmem``."""
    whole = _stated(parse_size, values, "Resource_List.mem")
    return max(-(-whole // procs), _stated(parse_size, values, "Resource_List.pmem")) or None


def _status(text: str) -> int:
    try:
        code = int(text)
    except ValueError:
        return -1
    if code == 0:
        return 1
    return 5 if code >= _KILLED else 0
