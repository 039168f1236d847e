"""Accounting logs of TORQUE and OpenPBS: ended runs, and runs lost to a rerun.

Record form: ``MM/DD/YYYY HH:MM:SS;TYPE;ID;key=value key=value ...`` (TORQUE Administrator Guide, appendix
"Accounting records"; OpenPBS ``pbs_account``). All times inside a record are epoch seconds, with or without a
fraction.
"""

import re
from calendar import timegm
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from schedd.dialect.errors import RequestError
from schedd.dialect.units import parse_walltime

_RECORD = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;(\w+);([^;]*);(.*)", re.DOTALL)
_VALUE = re.compile(r"""(?:^|\s+)([A-Za-z_][\w.]*)=("[^"]*"(?!\S)|'[^']*'(?!\S)|)""")
_NAMED = re.compile(r"([^/+\s]+)/([\d,-]+)(?:\*(\d+))?")
_GPU = re.compile(r"([^/+\s]+)-gpu/\d+")
_VNODE = re.compile(r"\(([^:()+]+):([^()+]*)")
_CHANGE_S = 1_800  # smallest change of a clock to or from summer time
_LARGEST_CHANGE_S = 3_600
_TOLERANCE_S = 120  # between the times of a record and its event
_LAST_KEYS = frozenset(
    {
        *("session", "end", "Exit_status", "total_execution_slots", "unique_node_count", "run_count"),
        "eligible_time",
    }
)
"""Keys that servers write at the end of a record, after all texts of users."""
_BEFORE_START = frozenset({"project", "jobname", "queue", "ctime", "qtime", "etime"})
_AFTER_TEXTS = {"Q": "ctime", "S": "start", "R": "ctime", "E": "end"}
"""A key that servers write after the texts of users, by type of record."""
_TEXTS = re.compile(r"(?:^|\s)(?:account|project)=")
_MOST_LINES = 50  # of a record
_FIRST_KEYS = frozenset({"user", "group", "account"})
_HOST = re.compile(r"[^/+\s]+/([\d,-]+)(?:\*(\d+))?")


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that ended. ``eligible`` is the time at which the job became eligible (etime), else was queued or
    created; after a rerun, the time at which it was queued again.

    ``procs`` is the number of its processors, at least 1; ``values`` are all keys with their values as text.
    ``lost``: the job was rerun, so another run follows.
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
    """Return the run of an E record; None for any other record and for the head of a job array.

    Raises ValueError with the missing or malformed field.
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
    """Reads the records of a log in order and finds all runs, including runs lost to a rerun.

    TORQUE's record of a rerun (R) has only a time, by the server's local clock. The start is taken from the
    job's last S record; the difference of the two times of the newest S record is the clock's offset, which
    summer time changes. OpenPBS's record has the times of the run.

    Servers write line breaks of an account or project as they are, so that a user can write lines that look
    like records. A record that lacks what the server writes after these texts therefore has the next lines,
    whatever they look like.
    """

    def __init__(self) -> None:
        self._unfinished: list[str] = []  # lines of a record
        self._started: dict[str, str] = {}
        self._latest_start = ""  # of any job
        self._latest = ""
        self._queued_again: dict[str, int] = {}

    def needs(self, line: str) -> bool:
        """Return whether ``read`` needs this line: a record about a run, or a further line of one."""
        return bool(self._unfinished) or _is_about_run(line)

    def read(self, line: str) -> EndedRun | None:
        """Return the run that a record ends, or None. Raises ValueError for a malformed record."""
        if self.needs(line):
            self._unfinished.append(line.rstrip("\n"))
            line = "\n".join(self._unfinished)
            if _is_unfinished(line):
                if len(self._unfinished) < _MOST_LINES:
                    return None
                self._unfinished = []
                raise ValueError(f"a record that does not end: {line[:60]}")
            self._unfinished = []
        record = _RECORD.match(line.strip())
        if record is None:
            raise ValueError("no accounting record: DATE TIME;TYPE;ID;key=value ... is expected")
        kind, job_id, message = record.groups()
        before, self._latest = self._latest, line
        if "[]" in job_id:
            return None
        if kind == "S":
            self._started[job_id] = self._latest_start = line
        elif kind == "R":
            return self._rerun(job_id, line, _values(message), before)
        elif kind == "E":
            run = parse_ended_run(line)
            self._started.pop(job_id, None)
            again = self._queued_again.pop(job_id, 0)
            return (
                replace(run, eligible=min(max(run.eligible, again), run.start)) if run is not None else None
            )
        return None

    def _rerun(self, job_id: str, line: str, values: dict[str, str], before: str) -> EndedRun | None:
        began = self._started.pop(job_id, "")
        start, end = _epoch(values, "start"), _epoch(values, "end")
        if not (start and end) and began:
            values = _values(began.split(";", 3)[3].strip())
            start = _epoch(values, "start")
            end = start + _clock(line) - _clock(began) + self._clock_change(began, line, before)
        if not start or end < start:
            return None
        first = next((t for key in ("etime", "qtime", "ctime") if (t := _epoch(values, key))), start)
        eligible = min(max(first, self._queued_again.get(job_id, 0)), start)
        self._queued_again[job_id] = end
        return EndedRun(job_id, eligible, start, end, _procs(values), values, lost=True)

    def _clock_change(self, began: str, line: str, before: str) -> int:
        """Return by how many seconds daylight saving time set the server's local clock back between the start
        of a run and ``line``, the record after ``before``; negative: forward.
        """
        latest = self._latest_start
        times = _values(latest.split(";", 3)[3].strip()), _values(began.split(";", 3)[3].strip())
        changed = (_epoch(times[0], "start") - _clock(latest)) - (_epoch(times[1], "start") - _clock(began))
        known = round(changed / _CHANGE_S) * _CHANGE_S
        if abs(known) > _LARGEST_CHANGE_S or abs(changed - known) > _TOLERANCE_S:
            known = 0
        # Records are in order of time: the clock was set back right before this one.
        back = _clock(before) - _clock(line)
        return known + (_LARGEST_CHANGE_S if _TOLERANCE_S < back <= _LARGEST_CHANGE_S else 0)


def _is_about_run(line: str) -> bool:
    return ";E;" in line or ";S;" in line or ";R;" in line or ";Q;" in line


def _is_unfinished(text: str) -> bool:
    """Return whether a record ends in a text of the user, which has a line break."""
    record = _RECORD.match(text.strip())
    if record is None or record[1] not in _AFTER_TEXTS:
        return False
    return _TEXTS.search(record[3]) is not None and f" {_AFTER_TEXTS[record[1]]}=" not in record[3]


def _clock(line: str) -> int:
    """Return the time of a record by the server's local clock, in seconds since an arbitrary origin."""
    month, day, year, hour, minute, second = map(int, re.split(r"[/ :]", line.strip()[:19]))
    return timegm((year, month, day, hour, minute, second))


def _values(message: str) -> dict[str, str]:
    """Return the values by key. A value may have blanks, or be quoted and then have keys of its own, which a
    user can choose; the first of equal keys counts, unless the order and the times in the record decide
    otherwise.
    """
    parts = list(_VALUE.finditer(message))
    ends = [*(part.start() for part in parts[1:]), len(message)][: len(parts)]
    pairs = [
        (part[1], part[2][1:-1] if part[2] else message[part.end() : end].strip().strip('"'))
        for part, end in zip(parts, ends, strict=True)
    ]
    found: dict[str, str] = {}
    for key, value in pairs:
        found.setdefault(key, value)
    return found if len(found) == len(pairs) else _without_forged(pairs, found)


def _without_forged(pairs: list[tuple[str, str]], found: dict[str, str]) -> dict[str, str]:
    """Return the values of a record with equal keys: an account can end its quotes and go on with keys.

    The keys at the end of a record come after all texts of users. The start is the one that agrees with the
    end and the used walltime; the keys that servers write right before and after it are those of the job.
    """
    found = dict(found)
    for key, value in pairs:
        if key in _LAST_KEYS or key.startswith("resources_used."):
            found[key] = value
    end, used = _seconds(found.get("end", "")), found.get("resources_used.walltime", "")
    starts = [at for at, (key, value) in enumerate(pairs) if key == "start" and _seconds(value) is not None]
    if end is None or not starts:
        return found
    with suppress(RequestError):
        end -= parse_walltime(used)
    own = min(starts, key=lambda at: (abs((_seconds(pairs[at][1]) or 0) - end), -at))
    for key, value in pairs[:own]:
        if key in _BEFORE_START:
            found[key] = value
    for key, value in reversed(pairs[own + 1 :]):
        if key not in _LAST_KEYS | _BEFORE_START | _FIRST_KEYS and not key.startswith("resources_used."):
            found[key] = value
    found["start"] = pairs[own][1]
    return found


def _seconds(text: str) -> int | None:
    whole = text.partition(".")[0]
    return int(whole) if re.fullmatch(r"[0-9]{1,10}", whole) else None


def _epoch(values: dict[str, str], key: str) -> int:
    text = values.get(key, "0")
    if not re.fullmatch(r"[0-9]{1,10}(\.[0-9]{0,9})?", text):
        raise ValueError(f"{key}={text[:40]} is no time in epoch seconds")
    return int(text.partition(".")[0])


def _procs(values: dict[str, str]) -> int:
    """Return the number of processors of the run.

    The slots of ``exec_host`` count if another field has the same number, or no other field has one: a list
    of hosts may be truncated or anonymised. Otherwise the server's numbers count (``exec_vnode``,
    ``total_execution_slots``, ``resources_used.ncpus``); without these, the larger of the slots and the
    request.
    """
    slots = sum(_slots(host[1]) * int(host[2] or 1) for host in _HOST.finditer(values.get("exec_host", "")))
    given = [
        sum(_vnode_cpus(values)),
        _count(values, "total_execution_slots"),
        _count(values, "resources_used.ncpus"),
    ]
    requested = [_requested_cores(values)]
    claims = [claim for claim in (*given, *requested) if claim]
    if slots and (slots in claims or not claims):
        return slots
    found = next((claim for claim in given if claim), 0)
    return found or max(slots, *requested) or 1


def _count(values: Mapping[str, str], key: str) -> int:
    text = values.get(key, "")
    return int(text) if re.fullmatch(r"0*[1-9][0-9]{0,7}", text) else 0


def _vnode_cpus(values: Mapping[str, str]) -> Iterator[int]:
    """Yield the cpus of each part of ``exec_vnode``."""
    for _, parts in _VNODE.findall(values.get("exec_vnode", "")):
        cpus = re.search(r"(?:^|:)ncpus=(\d{1,8})(?=:|$)", parts)
        yield int(cpus[1]) if cpus is not None else 0


def _requested_cores(values: Mapping[str, str]) -> int:
    """Return the cores of a simple request; 0 for any other."""
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


def node_shares(run: EndedRun) -> list[tuple[str, int, int]]:
    """Return (node, cpus, gpus) for each node of the run; the node is empty if the record names none.

    ``exec_host=n1/0-3+n2/0*4``; gpus by ``exec_gpus=n1-gpu/0+n1-gpu/1`` (TORQUE) or ``ngpus`` of
    ``exec_vnode`` (OpenPBS). If the slots differ from the run's processors, the processors are divided over
    the hosts in proportion.
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
    """Return the number of indices in a list such as ``0-3,6``."""
    count = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            count += int(last) - int(first) + 1 if last.isdigit() and int(last) >= int(first) else 1
    return count
