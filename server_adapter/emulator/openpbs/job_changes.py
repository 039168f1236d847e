"""Changes to jobs by qalter and by the scheduler, with the rights that each attribute needs (section 4)."""

from collections.abc import Iterable

from server_adapter.dis import Attribute, Operation
from server_adapter.emulator.dependencies import parse_depend, register
from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.job_changes import set_holds
from server_adapter.emulator.jobs import Job, JobState
from server_adapter.emulator.lifecycle import follow_walltime, release_dependents, settle
from server_adapter.emulator.openpbs import select_statements, submission
from server_adapter.emulator.openpbs.runs import FINISHED
from server_adapter.emulator.openpbs.state import PbsCluster
from server_adapter.emulator.principal import Principal, demand_owner
from server_adapter.openpbs.codes import OpenPBSErrorCode

_ESTIMATED = frozenset({"start_time", "exec_vnode", "soft_walltime"})
_MANAGERS_ONLY = frozenset({"comment"})
_SERVER_ONLY = frozenset({"topjob", "topjob_ineligible", "accrue_type", "eligible_time", "sched_preempted"})
_PLAIN = frozenset(
    [
        *("Job_Name", "Account_Name", "Checkpoint", "Error_Path", "Output_Path", "group_list", "Join_Path"),
        *("Keep_Files", "Mail_Points", "Mail_Users", "Rerunable", "Shell_Path_List", "User_List", "umask"),
        *("Variable_List", "project", "max_run_subjobs", "stagein", "stageout", "sandbox", "block"),
    ]
)
_WHILE_RUNNING = frozenset({"walltime", "cput", "min_walltime", "max_walltime", "soft_walltime"})


def alter(cluster: PbsCluster, jobs: Iterable[Job], changes: Iterable[Attribute], who: Principal) -> None:
    """ModifyJob: nothing is changed unless all changes are allowed.

    Raises refusals 15002, 15003, 15004, 15007, 15014, 15015, 15016, 15035, 15054, 15139.
    """
    jobs, changes = list(jobs), list(changes)
    for job in jobs:
        demand_owner(who, job)
        if job.finished:
            raise RefusalError(OpenPBSErrorCode.HISTJOBID, FINISHED)
        if job.state is JobState.TRANSIT:
            raise RefusalError(OpenPBSErrorCode.BADSTATE, "Request invalid for state of job")
        for change in changes:
            _allow(cluster, job, change, who)
    for job in jobs:
        for change in changes:
            _apply(cluster, job, change)
        follow_walltime(cluster, job)
        job.touch(cluster.now)
        settle(cluster, job)
        asked = any(change.name == "Resource_List" for change in changes)
        for scheduler in cluster.schedulers.values():
            if asked and scheduler.reads and not who.server_write:  # the scheduler knows its own changes
                scheduler.altered.add(job.id)


def _read_only(change: Attribute) -> RefusalError:
    text = f"Cannot set attribute, read only or insufficient permission  {change.key}"
    return RefusalError(OpenPBSErrorCode.ATTRRO, text)


def _allow(cluster: PbsCluster, job: Job, change: Attribute, who: Principal) -> None:
    name, gone = change.name, change.operation is Operation.UNSET
    if name == "estimated":
        if change.resource not in _ESTIMATED:
            raise RefusalError(OpenPBSErrorCode.UNKRESC, f"Unknown resource {change.key}")
        if not who.manager:
            raise _read_only(change)
    elif (name in _MANAGERS_ONLY and not who.manager) or (name in _SERVER_ONLY and not who.server_write):
        raise _read_only(change)
    elif name == "Resource_List" and change.resource is not None:
        if not gone:
            submission.check_value(cluster, change.resource, change.value)
        if change.resource == "soft_walltime" and not who.manager:
            raise _read_only(change)
        if job.active and (change.resource not in _WHILE_RUNNING or not who.manager):
            raise RefusalError(OpenPBSErrorCode.MODATRRUN, "Cannot modify attribute while job running ")
    elif name in ("Priority", "Execution_Time") and not gone:
        if not change.value.lstrip("-").isdecimal():
            raise RefusalError(OpenPBSErrorCode.BADATVAL, f"Illegal attribute or resource value {name}")
    elif name == "Hold_Types" and set(change.value) & set("os") and not who.manager:
        raise RefusalError(OpenPBSErrorCode.PERM, "Unauthorized Request ")
    elif name == "depend" and not gone:
        if any(condition.job not in cluster.jobs for condition in parse_depend(change.value)):
            raise RefusalError(OpenPBSErrorCode.BADDEPEND, "Invalid Job Dependency")
    elif name not in (*_PLAIN, "Hold_Types", "depend", "Priority", *_MANAGERS_ONLY, *_SERVER_ONLY):
        raise _read_only(change)


def _apply(cluster: PbsCluster, job: Job, change: Attribute) -> None:
    gone = change.operation is Operation.UNSET
    match change.name:
        case "estimated":
            if gone and change.resource == "exec_vnode":
                job.attributes.pop(change.key, None)
            else:  # a number cannot be unset: it becomes 0
                job.attributes[change.key] = "0" if gone else change.value
        case "topjob":
            job.attributes["topjob"] = change.value
            clearing = cluster.attributes.get("clear_topjob_estimates_enable") == "True"
            if clearing and change.value.lower() in ("false", "0", "f"):
                for key in [key for key in job.attributes if key.startswith("estimated.")]:
                    del job.attributes[key]
        case "Resource_List" if change.resource is not None:
            _set_resource(cluster, job, change.resource, None if gone else change.value)
        case "Hold_Types":
            set_holds(job, change)
        case "Priority":
            job.priority = 0 if gone else int(change.value)
        case "Execution_Time":
            job.not_before = None if gone else int(change.value)
        case "depend":
            job.depend = "" if gone else change.value
            register(job, cluster.jobs)
            job.holds.add("d")
            cluster.dependents.add(job.id)
            release_dependents(cluster)
        case name if gone:
            job.attributes.pop(name, None)
        case name:
            job.attributes[name] = change.value


def _set_resource(cluster: PbsCluster, job: Job, name: str, value: str | None) -> None:
    if value is None:
        job.resources.pop(name, None)
        return
    job.resources[name] = submission.written(name, value)
    if name in ("select", "ncpus", "mem"):
        try:
            if name != "select":
                job.resources["select"] = select_statements.complete(
                    cluster, {key: job.resources[key] for key in ("ncpus", "mem") if key in job.resources}, {}
                )["select"]
            job.resources |= select_statements.sums(
                cluster, select_statements.schedselect(cluster, job.resources["select"])
            )
        except ValueError:
            text = "Illegal attribute or resource value Resource_List.select"
            raise RefusalError(OpenPBSErrorCode.BADATVAL, text) from None
