"""qalter, qhold, qrls: changes to jobs, each with its rights (protocol document, section 6)."""

from collections.abc import Iterable

from server_adapter.dis import Attribute, Operation
from server_adapter.emulator import admission
from server_adapter.emulator.dependencies import COUNTED, OF_ARRAYS, parse_depend, register
from server_adapter.emulator.errors import TEXTS, RefusalError
from server_adapter.emulator.jobs import Job
from server_adapter.emulator.lifecycle import follow_walltime, release_dependents, settle
from server_adapter.emulator.principal import Principal, demand_live, demand_owner
from server_adapter.emulator.state import Cluster
from server_adapter.emulator.submission import node_count
from server_adapter.emulator.versions import JOB_RANK
from server_adapter.torque.errors import TorqueErrorCode

_MANAGERS_ONLY = frozenset(
    {"comment", "sched_hint", "exec_host", "alt_id", "reservation_id", "login_property"}
)
_SERVER_ONLY = frozenset({"start_time", "etime", "session_id", "exit_status", "exec_port"})
_ALTERABLE_WHILE_RUNNING = frozenset({"walltime", "cput", "mem", "vmem", "pmem", "neednodes"})
_NEVER = frozenset(
    [
        "job_state",
        "ctime",
        "mtime",
        "qtime",
        "substate",
        "euser",
        "egroup",
        "hashname",
        "queue_rank",
        "queue_type",
        "server",
        "queue",
        "Job_Owner",
        "start_count",
        "comp_time",
        "total_runtime",
        "job_array_id",
        "resources_used",
        "Walltime",
    ]
)


def alter(cluster: Cluster, job: Job, changes: Iterable[Attribute], who: Principal) -> None:
    """ModifyJob: nothing is changed unless all changes are allowed.

    Raises refusals 15001..15003, 15007, 15016..15018, 15037.
    """
    demand_owner(who, job)
    demand_live(job)
    changes = list(changes)
    for change in changes:
        _allow(cluster, job, change, who)
    for change in changes:
        _apply(cluster, job, change)
    follow_walltime(cluster, job)
    job.touch(cluster.now)
    settle(cluster, job)


def _allow(cluster: Cluster, job: Job, change: Attribute, who: Principal) -> None:
    name = change.name
    if name not in JOB_RANK:
        raise RefusalError(TorqueErrorCode.NOATTR, f"Undefined attribute  {name}")
    if name in _NEVER:
        raise RefusalError(TorqueErrorCode.ATTRRO)
    if name in _SERVER_ONLY and not who.server_write:
        raise RefusalError(TorqueErrorCode.ATTRRO)
    if name in _MANAGERS_ONLY and not who.manager:
        raise RefusalError(TorqueErrorCode.ATTRRO)
    if name == "Resource_List":
        if change.resource not in admission.RESOURCES:
            raise RefusalError(TorqueErrorCode.UNKRESC)
        if change.operation is not Operation.UNSET:
            _check_value(cluster, job, change.resource, change.value, who)
        if job.active:
            _allow_while_running(job, change, who)
    if name == "Hold_Types" and set(change.value) & set("os"):
        _demand_manager(who)
    if name == "depend" and change.operation is not Operation.UNSET:
        conditions = parse_depend(change.value)
        for condition in conditions:
            known = cluster.arrays if condition.kind in OF_ARRAYS else cluster.jobs
            if condition.kind not in COUNTED and condition.job not in known:
                raise RefusalError(TorqueErrorCode.UNKJOBID, "")
    if name in ("start_time", "Execution_Time", "Priority") and change.operation is not Operation.UNSET:
        try:
            int(change.value)
        except ValueError:
            raise RefusalError(TorqueErrorCode.BADATVAL) from None


def _allow_while_running(job: Job, change: Attribute, who: Principal) -> None:
    """Allow changes of some limits of a running job; only managers may raise a limit."""
    name = change.resource or ""
    if name not in _ALTERABLE_WHILE_RUNNING:
        detail = f"{TEXTS[TorqueErrorCode.MODATRRUN]} Resource_List.{name}"
        raise RefusalError(TorqueErrorCode.MODATRRUN, detail)
    old = job.resources.get(name)
    raised = old is None or change.operation is Operation.UNSET
    if raised or admission.amount(change.value) > admission.amount(old or ""):
        _demand_manager(who)


def _demand_manager(who: Principal) -> None:
    if not who.manager:
        raise RefusalError(TorqueErrorCode.PERM)


def _check_value(cluster: Cluster, job: Job, name: str, value: str, who: Principal) -> None:
    """Check a resource value. Managers may exceed the queue's limits and request missing nodes."""
    try:
        admission.check_values({name: value})
        if not who.manager:
            if name == "nodes":
                admission.check_feasible(value, cluster.nodes)
            admission.check_amounts(cluster, cluster.queue(job.queue), {name: value})
    except RefusalError as error:
        raise RefusalError(error.code) from None  # the code's usual text, without the detail


def _apply(cluster: Cluster, job: Job, change: Attribute) -> None:
    gone = change.operation is Operation.UNSET
    match change.name:
        case "Resource_List" if change.resource is not None:
            if gone:
                job.resources.pop(change.resource, None)
                return
            job.resources[change.resource] = admission.written(change.resource, change.value)
            if change.resource == "nodes":
                job.resources["neednodes"] = change.value
                job.resources["nodect"] = str(node_count(change.value))
        case "Hold_Types":
            set_holds(job, change)
        case "Priority":
            job.priority = 0 if gone else int(change.value)
        case "Execution_Time":
            job.not_before = None if gone else int(change.value)
        case "start_time":
            job.start_time = None if gone else float(change.value)
        case "etime":
            job.eligible = None if gone else float(change.value)
        case "exec_host" if not job.active:
            job.exec_host = "" if gone else change.value
        case "depend":
            job.depend = "" if gone else change.value
            parse_depend(job.depend)
            register(job, cluster.jobs)
            job.holds.add("d")
            cluster.dependents.add(job.id)
            release_dependents(cluster)
        case name if gone:
            job.attributes.pop(name, None)
        case name:
            job.attributes[name] = change.value


def set_holds(job: Job, change: Attribute) -> None:
    """Adds or sets the letters of a Hold_Types entry; `n` or UNSET takes all user-visible ones away."""
    letters = set(change.value) & set("uos")
    if change.operation is Operation.INCR:
        job.holds |= letters
    elif change.operation is Operation.DECR:
        job.holds -= letters
    else:
        job.holds = (job.holds - set("uos")) | letters


def hold(cluster: Cluster, job: Job, letters: str, who: Principal) -> None:
    """qhold: `u` by the owner, `o` and `s` by managers. Raises refusals 15007, 15016, 15018."""
    _demand_for(letters, job, who)
    job.holds |= set(letters) & set("uos")
    job.touch(cluster.now)
    settle(cluster, job)


def release(cluster: Cluster, job: Job, letters: str, who: Principal) -> None:
    """Qrls. The last hold gone, the job is queued or waits for its time. Raises as `hold`."""
    _demand_for(letters, job, who)
    job.holds -= set(letters) & set("uos")
    job.touch(cluster.now)
    settle(cluster, job)


def _demand_for(letters: str, job: Job, who: Principal) -> None:
    if not letters or set(letters) - set("uosn"):
        raise RefusalError(TorqueErrorCode.BADATVAL)
    if set(letters) & set("os"):
        _demand_manager(who)
    demand_owner(who, job)
    demand_live(job)
