"""Accounting of Slurm, as ``sacct`` prints it with ``--parsable2``, ``--parsable`` or ``--json``.

Fields and states have the names of sacct's manual page. Times are epoch seconds (``SLURM_TIME_FORMAT=%s``) or
local times of this host. Steps (``12.batch``, ``12.0``) are skipped. A run has the keys of a PBS record, so
that all readers of runs take both.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any, Final

from schedd.dialect.accounting import EndedRun

_NEEDED: Final = ("JobID", "Submit", "Start", "End")
_STATE: Final = re.compile(r"[A-Z_]+( by \d+)?")
_TIMES: Final = frozenset({"Submit", "Eligible", "Start", "End"})
_TEXTS: Final = (
    *("JobName", "SubmitLine", "Comment", "AdminComment", "SystemComment", "WorkDir", "Extra", "Container"),
    *("StdIn", "StdOut", "StdErr"),
)
"""Columns with texts of users, which sacct prints as they are."""
_NO_TIME: Final = frozenset({"", "None", "Unknown", "0"})
_JOB: Final = re.compile(r"(\d{1,19})(?:_(\d{1,19})|\+(\d{1,9}))?")
_STEP: Final = re.compile(r"\d+(?:_\d+|\+\d+)?\.\w+|\d+_\[.*")
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_LIMIT: Final = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d\d)(?:\.\d+)?")
_AMOUNT: Final = re.compile(r"(\d{1,15})(?:\.(\d+))?([KMGTP]?)([cn]?)")
_UNITS_KIB: Final = {"": 1024, "K": 1, "M": 1024, "G": 1 << 20, "T": 1 << 30, "P": 1 << 40}
"""KiB of a unit of memory; without a unit sacct means MiB."""
_HOSTS: Final = re.compile(r"([^,\[\]]*)(?:\[([^\]]*)\])?([^,\[\]]*)(?:,|$)")
_MOST_HOSTS: Final = 100_000
_MOST_PROCS: Final = 1 << 24
_CANCELLED: Final = "271"  # exit status of a job ended by SIGTERM in a PBS record: 256 + 15
_RAN_AGAIN: Final = frozenset({"REQUEUED"})


@dataclass(frozen=True, slots=True)
class SlurmRuns:
    """The runs of a log in order of their ends, and its unreadable records: (number from 1, reason).

    A record is a line of a table, or a job of a JSON document.
    """

    runs: tuple[EndedRun, ...]
    faults: tuple[tuple[int, str], ...]


def is_slurm_header(line: str) -> bool:
    """Whether a line is the first of a table printed by ``sacct --parsable2`` or ``--parsable``."""
    names = line.strip().split("|")
    return len(names) >= len(_NEEDED) and "JobID" in names


def is_slurm_log(first_line: str) -> bool:
    """Whether the first line of a file that is not blank may be that of sacct's output, in either form."""
    return is_slurm_header(first_line) or _is_json(first_line)


def read_slurm(lines: Iterable[str]) -> SlurmRuns:
    """Read sacct's output, a table or JSON. The first line must not be blank. Raises ValueError."""
    rest = iter(lines)
    first = next(rest, "")
    if _is_json(first):
        return read_slurm_json("".join(chain([first], rest)))
    return read_slurm_table(chain([first], rest))


def _is_json(first_line: str) -> bool:
    return first_line.lstrip().startswith("{")


def read_slurm_table(lines: Iterable[str]) -> SlurmRuns:
    """Read the output of ``sacct --parsable2``. A header may occur again (files that were joined).

    Raises ValueError when the first line is no header, or lacks a column that is needed.
    """
    columns: list[str] = []
    ended = False  # whether every line ends with a separator
    records: list[tuple[int, EndedRun]] = []
    faults: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        if not text.strip():
            continue
        if is_slurm_header(text):
            columns, ended = _columns(text), text.endswith("|")
            continue
        if not columns:
            raise ValueError("the first line names no columns: print the log without --noheader")
        try:
            if (run := _row_run(columns, text.removesuffix("|") if ended else text)) is not None:
                records.append((number, run))
        except ValueError as bad:
            faults.append((number, str(bad)))
    return SlurmRuns(_in_order(run for _, run in records), tuple(faults))


def read_slurm_json(text: str) -> SlurmRuns:
    """Read the output of ``sacct --json``. Raises ValueError when it is no such document."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as bad:
        raise ValueError(f"no JSON document: {bad}") from None
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise ValueError('no output of `sacct --json`: the list "jobs" is missing')
    runs: list[EndedRun] = []
    faults: list[tuple[int, str]] = []
    for number, job in enumerate(jobs, 1):
        try:
            if not isinstance(job, dict):
                raise ValueError("the job is no object")
            if (run := _json_run(job)) is not None:
                runs.append(run)
        except ValueError as bad:
            faults.append((number, str(bad)))
    return SlurmRuns(_in_order(runs), tuple(faults))


def _columns(header: str) -> list[str]:
    names = header.split("|")
    if not names[-1]:  # --parsable ends every line with a separator
        names.pop()
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise ValueError(f"the column {missing[0]} is missing: print the log with --format=ALL")
    return names


def _row(columns: Sequence[str], fields: list[str]) -> dict[str, str]:
    """Return the fields by column. A text of a user, such as a command line, may have separators itself: it
    is the first one with which the state and all times can be read.
    """
    more = len(fields) - len(columns)
    if more > 0:
        for place in (i for i, name in enumerate(columns) if name in _TEXTS):
            merged = "|".join(fields[place : place + more + 1])
            row = dict(zip(columns, [*fields[:place], merged, *fields[place + more + 1 :]], strict=True))
            states = _STATE.fullmatch(row.get("State", "COMPLETED").strip()) is not None
            if states and all(_may_be_time(row[name]) for name in _TIMES & row.keys()):
                return row
    if more:
        raise ValueError(f"{len(fields)} fields where the header has {len(columns)}")
    return dict(zip(columns, fields, strict=True))


def _may_be_time(text: str) -> bool:
    text = text.strip()
    return text in _NO_TIME or re.fullmatch(r"\d{9,10}", text) is not None or _ISO.fullmatch(text) is not None


def _row_run(columns: Sequence[str], text: str) -> EndedRun | None:
    """Return the run of a line; None for a step, a waiting or running job, or a job that never started."""
    row = _row(columns, text.split("|"))
    job = row["JobID"].strip()
    if _STEP.fullmatch(job):
        return None
    allocated, requested = _tres(row.get("AllocTRES", "")), _tres(row.get("ReqTRES", ""))
    nodes = _count(row.get("AllocNodes", "")) or _count(row.get("NNodes", ""))
    procs = (
        _count(row.get("AllocCPUS", ""))
        or _count(row.get("NCPUS", ""))
        or _count(allocated.get("cpu", ""))
        or _count(row.get("ReqCPUS", ""))
    )
    memory = requested.get("mem") or allocated.get("mem") or row.get("ReqMem", "")
    start, end = _run_times(row)
    return _run(
        _Job(
            id=_job_id(job),
            state=row.get("State", "").strip().partition(" ")[0],
            submit=_time(row, "Submit"),
            eligible=_time(row, "Eligible"),
            start=start,
            end=end,
            procs=procs,
            limit=_limit(row),
            memory=_memory(memory, max(procs, 1), max(nodes, 1)),
            gpus=_gpus({kind: _count(count) for kind, count in allocated.items()}),
            hosts=row.get("NodeList", ""),
            exit=row.get("ExitCode", ""),
            user=row.get("User", ""),
            group=row.get("Group", ""),
            account=row.get("Account", ""),
            partition=row.get("Partition", ""),
            name=row.get("JobName", ""),
            qos=row.get("QOS", ""),
            reservation=row.get("Reservation", ""),
        )
    )


def _json_run(job: Mapping[str, Any]) -> EndedRun | None:
    times, array = _part(job, "time"), _part(job, "array")
    required, tres = _part(job, "required"), _part(job, "tres")
    number, task = _number(job.get("job_id")), array.get("task_id")
    array_id = _number(array.get("job_id"))
    if array_id and _is_set(task):
        identifier = f"{array_id}_{_number(task)}"
    else:
        identifier = str(number)
    allocated, requested = _json_tres(tres, "allocated"), _json_tres(tres, "requested")
    procs = allocated.get("cpu", 0) or _number(required.get("CPUs"))
    minutes = times.get("limit")
    memory = 1024 * (requested.get("mem", 0) or allocated.get("mem", 0))
    if not memory:
        per_cpu, per_node = _number(required.get("memory_per_cpu")), _number(required.get("memory_per_node"))
        memory = 1024 * (per_cpu * procs or per_node * max(_number(job.get("allocation_nodes")), 1))
    state = _part(job, "state").get("current")
    code = _part(job, "exit_code").get("return_code")
    return _run(
        _Job(
            id=_job_id(identifier),
            state=str(state[0] if isinstance(state, list) and state else state or ""),
            submit=_number(times.get("submission")),
            eligible=_number(times.get("eligible")),
            start=_number(times.get("start")),
            end=_number(times.get("end")),
            procs=procs,
            limit=60 * _number(minutes) if _is_set(minutes) else 0,
            memory=memory,
            gpus=_gpus(allocated),
            hosts=str(job.get("nodes") or ""),
            exit=str(_number(code)),
            user=str(job.get("user") or ""),
            group=str(job.get("group") or ""),
            account=str(job.get("account") or ""),
            partition=str(job.get("partition") or ""),
            name=str(job.get("name") or ""),
            qos=str(job.get("qos") or ""),
            reservation=str(_part(job, "reservation").get("name") or ""),
        )
    )


@dataclass(frozen=True, slots=True)
class _Job:
    """One record. Times are epoch seconds (0: none), ``limit`` seconds, ``memory`` KiB of the job."""

    id: str
    state: str
    submit: int
    eligible: int
    start: int
    end: int
    procs: int
    limit: int
    memory: int
    gpus: int
    hosts: str
    exit: str
    user: str
    group: str
    account: str
    partition: str
    name: str
    qos: str
    reservation: str


def _run(job: _Job) -> EndedRun | None:
    if not job.start or not job.end or job.state in {"PENDING", "RUNNING", "SUSPENDED"}:
        return None
    if job.end < job.start:
        raise ValueError(f"job {job.id} ends ({job.end}) before it starts ({job.start})")
    if job.end == job.start and job.state == "CANCELLED":
        return None  # cancelled while it waited: sacct gives the moment as start and as end
    if not 0 < job.procs <= _MOST_PROCS:
        raise ValueError(f"job {job.id} has {job.procs} CPUs: neither AllocCPUS nor ReqCPUS has its number")
    values = {
        "user": job.user,
        "group": job.group,
        "account": job.account,
        "queue": job.partition,
        "jobname": job.name,
        "qos": job.qos,
        "Exit_status": _exit_status(job.state, job.exit),
        "exec_host": _exec_host(job.hosts, job.procs),
        "Resource_List.advres": job.reservation,
    }
    if job.limit:
        values["Resource_List.walltime"] = str(job.limit)
    if job.memory:
        values["Resource_List.mem"] = f"{job.memory}kb"
    hosts = _hosts(job.hosts)
    if job.gpus and hosts:
        share = -(-job.gpus // len(hosts))
        names = [name for name in hosts for _ in range(share)][: job.gpus]
        values["exec_gpus"] = "+".join(f"{name}-gpu/0" for name in names)
    eligible = max(job.eligible, job.submit)
    return EndedRun(
        job.id,
        min(eligible or job.start, job.start),
        job.start,
        job.end,
        job.procs,
        {key: value for key, value in values.items() if value},
        lost=job.state in _RAN_AGAIN,
    )


def _in_order(runs: Iterable[EndedRun]) -> tuple[EndedRun, ...]:
    """Order runs by end; all but a job's last were lost, and the next waited from that end."""
    by_job: defaultdict[str, list[EndedRun]] = defaultdict(list)
    for run in runs:
        by_job[run.id].append(run)
    found: list[EndedRun] = []
    for several in by_job.values():
        several.sort(key=lambda run: (run.start, run.end))
        again = 0
        for place, run in enumerate(several):
            lost = run.lost or place < len(several) - 1
            found.append(replace(run, eligible=min(max(run.eligible, again), run.start), lost=lost))
            again = run.end
    found.sort(key=lambda run: run.end)
    return tuple(found)


def _job_id(text: str) -> str:
    """Return the id as PBS names it: ``12``, ``12[3]`` of an array, ``12+1`` of a heterogeneous job."""
    found = _JOB.fullmatch(text)
    if found is None or text == "0":
        raise ValueError(f"JobID {text[:40]!r} is no id of a job")
    return f"{found[1]}[{found[2]}]" if found[2] else text


def _time(row: Mapping[str, str], column: str) -> int:
    text = row.get(column, "").strip()
    if text in _NO_TIME:
        return 0
    if re.fullmatch(r"\d{1,10}", text):
        return int(text)
    if not _ISO.fullmatch(text):
        raise ValueError(
            f"{column} {text[:40]!r} is no time: YYYY-MM-DDTHH:MM:SS, or epoch seconds (SLURM_TIME_FORMAT=%s)"
        )
    try:
        return int(datetime.fromisoformat(text).timestamp())  # in the time zone of this host
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{column} {text[:40]!r} is no time") from None


def _run_times(row: Mapping[str, str]) -> tuple[int, int]:
    """Return start and end. Local times in the hour that a change of the clock repeats may be the later ones:
    the elapsed time says so, or an end before the start.
    """
    start, end = _time(row, "Start"), _time(row, "End")
    later = {column: _later_time(row.get(column, "").strip()) for column in ("Start", "End")}
    elapsed = _count(row.get("ElapsedRaw", ""))
    pairs = [(a, b) for a in (start, later["Start"] or start) for b in (end, later["End"] or end)]
    if len(set(pairs)) == 1:
        return start, end
    if (
        elapsed
        and (found := next((pair for pair in pairs if pair[1] - pair[0] == elapsed), None)) is not None
    ):
        return found
    return next((pair for pair in pairs if pair[1] >= pair[0]), (start, end))


def _later_time(text: str) -> int:
    """Return the later meaning of a local time that occurs twice; 0: it does not."""
    if not _ISO.fullmatch(text):
        return 0
    try:
        moment = datetime.fromisoformat(text)
        first, second = moment.timestamp(), moment.replace(fold=1).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0
    return int(second) if second > first else 0


def _limit(row: Mapping[str, str]) -> int:
    """Seconds of TimelimitRaw (minutes) or Timelimit ([DAYS-][HOURS:]MINUTES:SECONDS); 0: no limit."""
    if minutes := _count(row.get("TimelimitRaw", "")):
        return 60 * minutes
    found = _LIMIT.fullmatch(row.get("Timelimit", "").strip())
    if found is None:
        return 0
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _memory(text: str, procs: int, nodes: int) -> int:
    """KiB of the whole job: ``4Gc`` is per CPU, ``16Gn`` per node, ``16G`` for the job."""
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        return 0
    amount = int(found[1]) + float(f"0.{found[2] or 0}")
    times = {"c": procs, "n": nodes, "": 1}[found[4]]
    return round(amount * _UNITS_KIB[found[3]] * times)


def _tres(text: str) -> dict[str, str]:
    """``cpu=32,mem=64G,gres/gpu:a100=4``: amounts by type."""
    pairs = (part.partition("=") for part in text.strip().split(","))
    return {key: value for key, separator, value in pairs if separator}


def _gpus(allocated: Mapping[str, int]) -> int:
    """GPUs of all types: ``gres/gpu``, or where that is missing the sum of its types."""
    return allocated.get("gres/gpu", 0) or sum(
        count for kind, count in allocated.items() if kind.startswith("gres/gpu:")
    )


def _count(text: str) -> int:
    """Return a whole number, which sacct may shorten (``2K``: 2048); 0 for anything else."""
    found = re.fullmatch(r"(\d{1,12})(K?)", text.strip())
    return int(found[1]) * (1024 if found[2] else 1) if found is not None else 0


def _exit_status(state: str, code: str) -> str:
    if state == "COMPLETED":
        return "0"
    if state == "CANCELLED":
        return _CANCELLED
    number = code.partition(":")[0]
    return number if number.isdecimal() and int(number) else "1"


def _exec_host(text: str, procs: int) -> str:
    """``n1/0*8+n2/0*8``: the CPUs divided over the hosts, which sacct does not do."""
    hosts = _hosts(text)
    if not hosts:
        return ""
    share, more = divmod(procs, len(hosts))
    parts = ((name, share + (place < more)) for place, name in enumerate(hosts))
    return "+".join(f"{name}/0*{count}" for name, count in parts if count)


def _hosts(text: str) -> list[str]:
    """The names of a host list such as ``n[001-004,007],login1``; empty if it is none, or too long."""
    text = text.strip()
    if not text or text.startswith("None"):
        return []
    names: list[str] = []
    place = 0
    while place < len(text):
        found = _HOSTS.match(text, place)
        if found is None or found.end() == place:
            return []
        place = found.end()
        for index in _indices(found[2]) if found[2] is not None else ("",):
            if name := f"{found[1]}{index}{found[3]}":
                names.append(name)
            if len(names) > _MOST_HOSTS:
                return []
    return names


def _indices(text: str) -> Iterator[str]:
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash:
            yield part
        elif first.isdecimal() and last.isdecimal() and int(last) - int(first) < _MOST_HOSTS:
            yield from (str(index).zfill(len(first)) for index in range(int(first), int(last) + 1))


def _part(job: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object within a job. Releases before 23.02 print the state as a plain text."""
    value = job.get(key)
    if isinstance(value, dict):
        return value
    return {"current": value} if key == "state" else {}


def _is_set(value: Any) -> bool:
    """Whether a number is given: plain, or as ``{"set": true, "infinite": false, "number": 4}``."""
    if isinstance(value, dict):
        return bool(value.get("set")) and not value.get("infinite")
    return isinstance(value, int)


def _number(value: Any) -> int:
    """Return a number in either form; 0: none. Raises ValueError for all but natural numbers."""
    if isinstance(value, dict):
        value = value.get("number") if _is_set(value) else 0
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 60:
        raise ValueError(f"{str(value)[:40]!r} is no whole number from 0 on")
    return value


def _json_tres(tres: Mapping[str, Any], key: str) -> dict[str, int]:
    """Amounts by type, such as ``cpu``, ``mem`` (MiB), ``gres/gpu`` and ``gres/gpu:a100``."""
    found: dict[str, int] = defaultdict(int)
    entries = tres.get(key)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            name = str(entry.get("name") or "")
            found[str(entry.get("type")) + (f"/{name}" if name else "")] += _number(entry.get("count"))
    return found
