"""Accounting logs of TORQUE and OpenPBS: the runs that ended, and those that were lost to a rerun.

Record form: ``MM/DD/YYYY HH:MM:SS;TYPE;ID;key=value key=value ...`` (TORQUE Administrator Guide, appendix
"Accounting records"; OpenPBS ``pbs_account``). All times inside a record are epoch seconds, with or without a
fraction.
"""

import re
from calendar import timegm
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

__all__ = ["EndedRun", "RunReader", "is_record", "may_tell_of_runs", "parse_ended_run", "shares_of"]

_RECORD = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;(\w+);([^;]*);(.*)", re.DOTALL)
_KEY = re.compile(r"(?:^|\s+)([A-Za-z_][\w.]*)=")
_NAMED = re.compile(r"([^/+\s]+)/([\d,-]+)(?:\*(\d+))?")
_GPU = re.compile(r"([^/+\s]+)-gpu/\d+")
_VNODE = re.compile(r"\(([^:()+]+):([^()+]*)")
_HOST = re.compile(r"[^/+\s]+/([\d,-]+)(?:\*(\d+))?")


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that ended. ``eligible`` is when the job became so (etime), else its queueing or creation; after
    a rerun, when it was back in its queue.

    ``procs`` are the processors it ran on, at least 1; ``values`` are all keys with their values as text.
    ``lost``: the job was rerun, so that another run follows.
    """

    id: str
    eligible: int
    start: int
    end: int
    procs: int
    values: Mapping[str, str]
    lost: bool = False


def is_record(line: str) -> bool:
    """Whether `line` looks like a record of an accounting log, of whatever type."""
    return _RECORD.match(line) is not None


def parse_ended_run(line: str) -> EndedRun | None:
    """The run of an E record; None for any other record and for the head of a job array.

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
    eligible = next((t for key in ("etime", "qtime", "ctime") if (t := _epoch(values, key))), 0)
    if not start or not end:
        raise ValueError(f"E record of job {job_id} without start or end")
    if end < start:
        raise ValueError(f"E record of job {job_id} ends ({end}) before it starts ({start})")
    return EndedRun(job_id, min(eligible or start, start), start, end, _procs(values), values)


class RunReader:
    """Reads the records of a log in their order and finds the runs, those lost to a rerun among them.

    TORQUE's record of a rerun (R) says nothing but its time on the server's own clock: its start is that of
    the last S record, whose two times tell the clock's offset. OpenPBS's has the times of the run.
    """

    def __init__(self) -> None:
        self._started: dict[str, str] = {}
        self._queued_again: dict[str, int] = {}

    def read(self, line: str) -> EndedRun | None:
        """The run that a record ends; None where it ends none. Raises ValueError for a malformed record."""
        record = _RECORD.match(line.strip())
        if record is None:
            raise ValueError("no accounting record: DATE TIME;TYPE;ID;key=value ... is expected")
        kind, job_id, message = record.groups()
        if "[]" in job_id:
            return None
        if kind == "S":
            self._started[job_id] = line
        elif kind == "R":
            return self._rerun(job_id, line, _values(message))
        elif kind == "E":
            run = parse_ended_run(line)
            self._started.pop(job_id, None)
            again = self._queued_again.pop(job_id, 0)
            return (
                replace(run, eligible=min(max(run.eligible, again), run.start)) if run is not None else None
            )
        return None

    def _rerun(self, job_id: str, line: str, values: dict[str, str]) -> EndedRun | None:
        began = self._started.pop(job_id, "")
        start, end = _epoch(values, "start"), _epoch(values, "end")
        if not (start and end) and began:
            values = _values(began.split(";", 3)[3].strip())
            start = _epoch(values, "start")
            end = start + _clock(line) - _clock(began)
        if not start or end < start:
            return None
        first = next((t for key in ("etime", "qtime", "ctime") if (t := _epoch(values, key))), start)
        eligible = min(max(first, self._queued_again.get(job_id, 0)), start)
        self._queued_again[job_id] = end
        return EndedRun(job_id, eligible, start, end, _procs(values), values, lost=True)


def may_tell_of_runs(line: str) -> bool:
    """Whether the record is of a kind that a reader of runs needs; most are not."""
    return ";E;" in line or ";S;" in line or ";R;" in line


def _clock(line: str) -> int:
    """The time of a record on the server's own clock, in seconds since some moment."""
    month, day, year, hour, minute, second = map(int, re.split(r"[/ :]", line.strip()[:19]))
    return timegm((year, month, day, hour, minute, second))


def _values(message: str) -> dict[str, str]:
    """Key to value. A value may hold blanks or stand in quotes; of a key given twice the first counts."""
    keys = list(_KEY.finditer(message))
    ends = [*(key.start() for key in keys[1:]), len(message)][: len(keys)]
    found: dict[str, str] = {}
    for key, end in zip(keys, ends, strict=True):
        found.setdefault(key[1], message[key.end() : end].strip().strip('"'))
    return found


def _epoch(values: dict[str, str], key: str) -> int:
    text = values.get(key, "0")
    if not re.fullmatch(r"[0-9]{1,10}(\.[0-9]{0,9})?", text):
        raise ValueError(f"{key}={text[:40]} is no time in epoch seconds")
    return int(text.partition(".")[0])


def _procs(values: dict[str, str]) -> int:
    """Processors the job ran on.

    The slots of ``exec_host`` count where another field says the same, or none says anything. Else what the
    server gave (``exec_vnode``, ``total_execution_slots``, ``resources_used.ncpus``) goes before them, and a
    request goes before them where it is larger: a list of hosts may be cut or made anonymous.
    """
    slots = sum(_slots(host[1]) * int(host[2] or 1) for host in _HOST.finditer(values.get("exec_host", "")))
    given = [
        sum(_vnode_cpus(values)),
        _count(values, "total_execution_slots"),
        _count(values, "resources_used.ncpus"),
    ]
    asked = [_asked(values)]
    claims = [claim for claim in (*given, *asked) if claim]
    if slots and (slots in claims or not claims):
        return slots
    found = next((claim for claim in given if claim), 0)
    return found or max(slots, *asked) or 1


def _count(values: Mapping[str, str], key: str) -> int:
    text = values.get(key, "")
    return int(text) if re.fullmatch(r"0*[1-9][0-9]{0,7}", text) else 0


def _vnode_cpus(values: Mapping[str, str]) -> Iterator[int]:
    """The cpus of each part of ``exec_vnode``."""
    for _, parts in _VNODE.findall(values.get("exec_vnode", "")):
        cpus = re.search(r"(?:^|:)ncpus=(\d{1,8})(?=:|$)", parts)
        yield int(cpus[1]) if cpus is not None else 0


def _asked(values: Mapping[str, str]) -> int:
    """The cores of the request, as far as it is as simple as most are; 0: it is not."""
    if spec := values.get("Resource_List.nodes"):
        total = 0
        for part in spec.partition("#")[0].split("+"):
            head, *rest = part.split(":")
            ppn = next((one[4:] for one in rest if one.startswith("ppn=")), "1")
            count = head if head.isdecimal() else "1"
            total += int(count[:8]) * (int(ppn[:8]) if ppn.isdecimal() else 1)
        return total
    return next(
        (cores for key in ("Resource_List.procs", "Resource_List.ncpus") if (cores := _count(values, key))),
        0,
    )


def shares_of(run: EndedRun) -> list[tuple[str, int, int]]:
    """What the run held: (node, cpus, gpus) of each node, as far as the record says where it was.

    ``exec_host=n1/0-3+n2/0*4``; gpus by ``exec_gpus=n1-gpu/0+n1-gpu/1`` (TORQUE) or ``ngpus`` of
    ``exec_vnode`` (OpenPBS). Where the slots are not the processors of the run, these are divided over the
    hosts in proportion.
    """
    found: dict[str, list[int]] = {}
    for host in _NAMED.finditer(run.values.get("exec_host", "")):
        found.setdefault(host[1], [0, 0])[0] += _slots(host[2]) * int(host[3] or 1)
    if not found:
        found[""] = [run.procs, 0]
    total = sum(cpus for cpus, _ in found.values())
    if total != run.procs:
        left, slots = run.procs, max(total, 1)
        for share in found.values():
            share[0], left = run.procs * share[0] // slots, left - run.procs * share[0] // slots
        next(iter(found.values()))[0] += left
    for name in _GPU.findall(run.values.get("exec_gpus", "")):
        found.setdefault(name, [0, 0])[1] += 1
    for vnode, parts in _VNODE.findall(run.values.get("exec_vnode", "")):
        gpus = re.search(r"(?:^|:)ngpus=(\d{1,6})", parts)
        if gpus is not None:
            found.setdefault(vnode, [0, 0])[1] += int(gpus[1])
    return [(name, cpus, gpus) for name, (cpus, gpus) in found.items()]


def _slots(text: str) -> int:
    """How many indices a list such as ``0-3,6`` names."""
    count = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            count += int(last) - int(first) + 1 if last.isdigit() and int(last) >= int(first) else 1
    return count
