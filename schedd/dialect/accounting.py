"""One record of an accounting log of TORQUE or OpenPBS: the run that it says has ended.

Record form: ``MM/DD/YYYY HH:MM:SS;TYPE;ID;key=value key=value ...`` (TORQUE Administrator Guide, appendix
"Accounting records"; OpenPBS ``pbs_account``). All times inside a record are epoch seconds.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["EndedRun", "is_record", "parse_ended_run", "shares_of"]

_RECORD = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;(\w+);([^;]*);(.*)", re.DOTALL)
_KEY = re.compile(r"(?:^|\s+)([A-Za-z_][\w.]*)=")
_NAMED = re.compile(r"([^/+\s]+)/([\d,-]+)(?:\*(\d+))?")
_GPU = re.compile(r"([^/+\s]+)-gpu/\d+")
_VNODE = re.compile(r"\(([^:()+]+):([^()+]*)")
_HOST = re.compile(r"[^/+\s]+/([\d,-]+)(?:\*(\d+))?")


@dataclass(frozen=True, slots=True)
class EndedRun:
    """An E record. ``eligible`` is when the job became so (etime), else its queueing or creation.

    ``procs`` are the processors it ran on, at least 1; ``values`` are all keys with their values as text.
    """

    id: str
    eligible: int
    start: int
    end: int
    procs: int
    values: Mapping[str, str]


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


def shares_of(run: EndedRun) -> list[tuple[str, int, int]]:
    """What the run held: (node, cpus, gpus) of each node, as far as the record says where it was.

    ``exec_host=n1/0-3+n2/0*4``; gpus by ``exec_gpus=n1-gpu/0+n1-gpu/1`` (TORQUE) or ``ngpus`` of
    ``exec_vnode`` (OpenPBS).
    """
    found: dict[str, list[int]] = {}
    for host in _NAMED.finditer(run.values.get("exec_host", "")):
        found.setdefault(host[1], [0, 0])[0] += _slots(host[2]) * int(host[3] or 1)
    if not found:
        found[""] = [run.procs, 0]
    for name in _GPU.findall(run.values.get("exec_gpus", "")):
        found.setdefault(name, [0, 0])[1] += 1
    for name, parts in _VNODE.findall(run.values.get("exec_vnode", "")):
        gpus = re.search(r"(?:^|:)ngpus=(\d{1,6})", parts)
        if gpus is not None:
            found.setdefault(name, [0, 0])[1] += int(gpus[1])
    return [(name, cpus, gpus) for name, (cpus, gpus) in found.items()]


def _slots(text: str) -> int:
    """How many indices a list such as ``0-3,6`` names."""
    count = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            count += int(last) - int(first) + 1 if last.isdigit() and int(last) >= int(first) else 1
    return count
