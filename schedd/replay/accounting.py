"""Reader of PBS and TORQUE accounting logs: every run that ended; one lost to a rerun is a job of its own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from sys import intern

from schedd.dialect import RequestError, parse_size, parse_walltime
from schedd.dialect.accounting import EndedRun, RunReader, node_shares, parse_ended_run
from schedd.dialect.advres import read_advres
from schedd.dialect.deadline import logged_deadline
from schedd.dialect.moldable import lists_alternatives, read_alternatives, read_walltime_range
from schedd.dialect.partition import logged_partition
from schedd.dialect.qos import logged_qos
from schedd.dialect.torque_names import ADDED_BY_THE_SERVER, OBEYED, REFUSED
from schedd.engine import array_name
from schedd.replay.text_lines import read_lines
from schedd.replay.workload import PROCS_LIMIT, TIME_LIMIT, UNKNOWN, LogFault, Trace, TraceError, TraceJob
from schedd.wire.job_extensions import extension_resources

_IGNORED = ("software",)
"""Requests that no replay follows: the log does not have how many licences there were."""
_RESOURCE = "Resource_List."
_OF_ALL_SERVERS = (
    OBEYED
    | ADDED_BY_THE_SERVER
    | REFUSED.keys()
    | {
        *(
            "select",
            "schedselect",
            "place",
            "ngpus",
            "host",
            "vnode",
            "mpiprocs",
            "ompthreads",
            "accelerator",
        ),
        *("min_walltime", "max_walltime", "soft_walltime", "preempt_targets"),
    }
)
"""Resources with a meaning of their own for a server or a scheduler."""
_KILLED = 256
"""TORQUE and OpenPBS report an end by signal N as exit status 256 + N, among them every deletion."""


def read_accounting(paths: Sequence[Path], name: str, *, strict: bool = False) -> Trace:
    """The jobs that ended in the log files `paths` (plain or gzip), in order of their ends.

    Raises TraceError when a file cannot be read or, if `strict`, at the first malformed line.
    """
    jobs: list[TraceJob] = []
    faults: list[LogFault] = []
    reader = RunReader()
    for path in paths:
        part = _read(read_lines(path), path.name, reader, strict=strict)
        jobs += part.jobs
        faults += part.faults
    return Trace(name=name, jobs=tuple(jobs), unix_start_time=0, faults=tuple(faults))


def read_accounting_lines(lines: Iterable[str], name: str, *, strict: bool = False) -> Trace:
    """Like `read_accounting`, from the lines of one file. Records of other kinds are skipped."""
    return _read(lines, name, RunReader(), strict=strict)


def _read(lines: Iterable[str], name: str, reader: RunReader, *, strict: bool) -> Trace:
    jobs: list[TraceJob] = []
    faults: list[LogFault] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            run = reader.read(line)
            job = make_trace_job(run) if run is not None else None
        except ValueError as bad:
            fault = LogFault(number, str(bad), name)
            if strict:
                raise TraceError(str(fault)) from bad
            faults.append(fault)
        else:
            if job is not None:
                jobs.append(job)
    return Trace(name=name, jobs=tuple(jobs), unix_start_time=0, faults=tuple(faults))


def parse_ended(line: str) -> TraceJob | None:
    """Return the job of an E record; None for other records and for the head of a job array.

    ``submit`` is the time of eligibility (etime), so that holds and dependencies do not count as waiting;
    otherwise the time of queueing (qtime) or creation (ctime). Processors are the used ones. Raises
    ValueError with the missing or malformed field.
    """
    run = parse_ended_run(line)
    return make_trace_job(run) if run is not None else None


def make_trace_job(run: EndedRun) -> TraceJob:
    """Return the job of a run. Raises ValueError for more processors than any machine has."""
    values, procs = run.values, run.procs
    if procs > PROCS_LIMIT:
        raise ValueError(f"job {run.id} has {procs} processors, more than any machine")
    used = _stated(parse_size, values, "resources_used.mem")
    extensions = extension_resources(values.get("x", ""))
    gpus = node_count = 0
    if "exec_gpus" in values and not values.get("Resource_List.nodes"):
        nodes = node_shares(run)
        gpus, node_count = sum(share[2] for share in nodes), len(nodes)
    asked = {
        **{key.removeprefix(_RESOURCE): value for key, value in values.items() if key.startswith(_RESOURCE)},
        **extensions,
    }
    estimate, ran = _stated(parse_walltime, values, "Resource_List.walltime"), run.end - run.start
    bounds = read_walltime_range(asked)
    if bounds is not None:
        # A run that used all of a chosen walltime would have used a longer one, too.
        ran = bounds[1] if ran >= estimate else ran
        estimate = bounds[1]
    alternatives = tuple([(int(one["procs"]), int(one["walltime"])) for one in read_alternatives(asked)])
    unknown_shape = lists_alternatives(asked) and procs not in dict(alternatives)
    status = 0 if run.lost else _status(values.get("Exit_status", ""))
    return TraceJob(
        id=f"{run.id}@{run.start}" if run.lost else run.id,
        submit=run.eligible,
        run=ran,
        procs=procs,
        estimate=min(estimate, TIME_LIMIT),
        user=intern(values.get("user") or UNKNOWN),
        group=intern(values.get("group") or UNKNOWN),
        queue=intern(values.get("queue") or UNKNOWN),
        mem_kib_per_proc=_mem_per_proc(values, procs),
        used_mem_kib_per_proc=-(-used // procs) if used else None,
        nodes_spec=values.get("Resource_List.nodes"),
        select_spec=values.get("Resource_List.select"),
        wait=run.start - run.eligible,
        status=status,
        deadline=logged_deadline(values, _submission(run)),
        account=intern(values.get("account", "")),
        project=intern(values.get("project", "")),
        requested_qos=intern(logged_qos(values)),
        requested_partition=intern(logged_partition(values)),
        name=intern(array_name(run.id, values.get("jobname", ""))),
        gpus=gpus,
        node_count=node_count,
        gres=intern(values.get("Resource_List.gres", "")),
        topology=intern(values.get("Resource_List.topology") or extensions.get("x.topology", "")),
        min_walltime=bounds[0] if bounds is not None else 0,
        alternatives=() if unknown_shape else alternatives,
        reservation=intern(read_advres(asked)),
        own_resources=_own_resources(values),
        ignored=(
            *(name for name in _IGNORED if f"{_RESOURCE}{name}" in values or extensions.get(f"x.{name}")),
            *(("trl",) if unknown_shape else ()),
        ),
    )


def _own_resources(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The requested resources of the site, without those of all servers. Equal ones are one object."""
    found = tuple(
        (name, value)
        for key, value in values.items()
        if key.startswith(_RESOURCE) and (name := key.removeprefix(_RESOURCE).lower()) not in _OF_ALL_SERVERS
    )
    return _share(found) if found else ()


@lru_cache(maxsize=1 << 16)
def _share(one: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return the first of equal values."""
    return one


def _submission(run: EndedRun) -> int:
    """Return the time of submission; if it is unknown, the time at which the job became eligible."""
    created = run.values.get("ctime", "").partition(".")[0]
    return int(created) if created.isdecimal() else run.eligible


def _stated(parse: Callable[[str], int], values: Mapping[str, str], key: str) -> int:
    """What `parse` reads from the value of `key`; 0 for none or one without an amount, such as UNLIMITED."""
    try:
        return parse(values[key])
    except (KeyError, RequestError):
        return 0


def _mem_per_proc(values: Mapping[str, str], procs: int) -> int | None:
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
