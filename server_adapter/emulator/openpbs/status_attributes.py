"""Objects as OpenPBS's status replies have them: names and their order (section 5, and the captures)."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from server_adapter.dis import Attribute
from server_adapter.emulator.dependencies import parse_depend, write_depend
from server_adapter.emulator.jobs import BEING_REQUEUED, Job, JobState, Queue
from server_adapter.emulator.openpbs import select_statements
from server_adapter.emulator.openpbs.state import PbsCluster, Reservation, Scheduler
from server_adapter.emulator.openpbs.vnodes import Vnode
from server_adapter.emulator.principal import Principal
from server_adapter.emulator.status_attributes import used_by
from server_adapter.openpbs.notation import format_amount

_ORDER = (
    *("Job_Name", "Job_Owner", "resources_used", "job_state", "queue", "server", "Account_Name"),
    *("Checkpoint", "ctime", "depend", "Error_Path", "exec_host", "exec_vnode", "Execution_Time"),
    *("group_list", "Hold_Types", "Join_Path", "Keep_Files", "Mail_Points", "Mail_Users", "mtime"),
    *("Output_Path", "Priority", "qtime", "Rerunable", "Resource_List", "schedselect", "stime", "obittime"),
    *("session_id", "Shell_Path_List", "sandbox", "jobdir", "substate", "User_List", "Variable_List"),
    *("euser", "egroup", "hashname", "hop_count", "queue_rank", "queue_type", "comment", "etime"),
    *("reserve_ID", "umask", "block", "run_count", "sample_starttime", "Exit_status"),
    *("Submit_arguments", "executable", "argument_list", "array", "array_id", "array_index"),
    *("array_state_count", "array_indices_submitted", "array_indices_remaining", "estimated"),
    *("history_timestamp", "project", "run_version", "topjob_ineligible", "Submit_Host", "max_run_subjobs"),
)
_SERVER_ORDER = (
    *("server_state", "server_host", "scheduling", "max_running", "max_queued", "max_queued_res", "max_run"),
    *("max_run_res", "max_run_soft", "max_run_res_soft", "max_user_run", "max_group_run", "total_jobs"),
    *("state_count", "acl_host_enable", "acl_hosts", "acl_user_enable", "acl_users", "acl_roots", "managers"),
    *("operators", "default_queue", "log_events", "mailer", "mail_from", "query_other_jobs"),
    *("resources_available", "resources_default", "default_chunk", "resources_max", "resources_assigned"),
    *("scheduler_iteration", "comment", "flatuid", "resv_enable", "node_fail_requeue", "max_array_size"),
    *("node_group_enable", "node_group_key", "default_qdel_arguments", "default_qsub_arguments"),
    *("resend_term_delay", "pbs_version", "job_sort_formula", "eligible_time_enable", "job_history_enable"),
    *("job_history_duration", "max_concurrent_provision", "backfill_depth", "job_requeue_timeout"),
    *("clear_topjob_estimates_enable", "power_provisioning", "max_job_sequence_id", "has_runjob_hook"),
)
_QUEUE_ORDER = (
    *("queue_type", "Priority", "max_queuable", "total_jobs", "state_count", "max_running", "max_queued"),
    *("max_queued_res", "acl_host_enable", "acl_hosts", "acl_user_enable", "acl_users", "from_route_only"),
    *("resources_max", "resources_min", "resources_default", "max_array_size", "comment"),
    *("acl_group_enable", "acl_groups", "default_chunk", "resources_available", "resources_assigned"),
    *("kill_delay", "max_user_run", "max_group_run", "max_run", "max_run_res", "max_run_soft", "hasnodes"),
    *("node_group_key", "backfill_depth", "route_destinations", "enabled", "started", "partition"),
)
_RANK = {name: rank for rank, name in enumerate(_ORDER)}
_SERVER_RANK = {name: rank for rank, name in enumerate(_SERVER_ORDER)}
_QUEUE_RANK = {name: rank for rank, name in enumerate(_QUEUE_ORDER)}
_LAST = 1000
_OF_MANAGERS = frozenset({"hashname", "queue_rank", "queue_type"})
_OF_SERVERS = frozenset({"hop_count", "sample_starttime"})
_HIDDEN = frozenset({"topjob", "nodect", "submit_host"})
_SUBSTATES = {
    JobState.QUEUED: 10,
    JobState.HELD: 20,
    JobState.WAITING: 30,
    JobState.RUNNING: 42,
    JobState.EXITING: 51,
    JobState.COMPLETE: 92,
    JobState.TRANSIT: 2,
    JobState.SUSPENDED: 43,
}
_KILLED_BY_WALLTIME = {-11: -29}
"""Exit status of the simulation's programs that ran into their limit, as this family says it."""

_LIMITS = frozenset(
    f"{limit}{suffix}"
    for limit in ("max_run", "max_run_res", "max_queued", "max_queued_res", "queued_jobs_threshold")
    for suffix in ("", "_soft", "_res")
)
"""Settings with a list of entries such as `[u:ann=1]` as value."""

_LIMIT_ENTRY = re.compile(r"\[[^\]]*\]")

_STATE_NAMES = ("Transit", "Queued", "Held", "Waiting", "Running", "Exiting", "Begun")


def letter(job: Job, *, subjob: bool = False) -> str:
    """The job's state; a subjob that is over is expired."""
    if job.finished:
        return "M" if job.moved else "X" if subjob else "F"
    return job.state.value


def job_attributes(cluster: PbsCluster, job: Job) -> list[Attribute]:
    """All attributes of a job, or of a subjob that has an object, in the server's order."""
    return _sorted(_entries(cluster, job))


def array_attributes(cluster: PbsCluster, members: Sequence[Job]) -> list[Attribute]:
    """Return the attributes of an array, from its subjobs; settings are those of the first waiting subjob."""
    waiting = [job for job in members if not cluster.exists(job)]
    first = waiting[0] if waiting else members[0]
    states = Counter(letter(job, subjob=True) for job in members)
    begun = len(waiting) < len(members)
    over = all(job.finished for job in members)
    state = "F" if over else "B" if begun else first.state.value
    count = " ".join(
        f"{name}:{number}"
        for name, number in (
            ("Queued", sum(states[one] for one in "QHW")),
            ("Running", states["R"]),
            ("Exiting", states["E"]),
            ("Expired", states["X"]),
        )
    )
    own = {"exec_host", "exec_vnode", "session_id", "stime", "run_count", "run_version", "Exit_status"}
    own |= {"array_id", "array_index", "obittime", "resources_used", "job_state", "substate", "hashname"}
    entries = [entry for entry in _entries(cluster, first, index="^array_index^") if entry.name not in own]
    entries += [
        Attribute("job_state", state),
        Attribute("substate", "70" if state == "B" else "92" if over else str(_SUBSTATES[first.state])),
        Attribute("array", "True"),
        Attribute("array_state_count", count),
        Attribute("array_indices_submitted", first.order.array),
        Attribute("array_indices_remaining", _ranges([job.index or 0 for job in waiting])),
    ]
    return _sorted(entries)


def _entries(cluster: PbsCluster, job: Job, index: str = "") -> Iterator[Attribute]:
    """Yield the attributes of a job. `index` replaces the subjob's index in file names."""
    order = job.order
    number = job.id.partition(".")[0].partition("[")[0]
    suffix = number if job.index is None else f"{number}.{index or job.index}"
    text = {
        "Job_Name": order.name,
        "Job_Owner": job.owner,
        "job_state": letter(job, subjob=job.array is not None),
        "queue": job.moved or job.queue,
        "server": cluster.server,
        "ctime": str(int(job.created)),
        "Error_Path": f"{order.host}:/home/{order.user}/{order.name}.e{suffix}",
        "Hold_Types": _holds(job),
        "mtime": str(int(job.modified)),
        "Output_Path": f"{order.host}:/home/{order.user}/{order.name}.o{suffix}",
        "Priority": str(job.priority),
        "qtime": str(int(job.queued)),
        "Rerunable": str(order.rerunnable),
        "schedselect": select_statements.schedselect(cluster, job.resources["select"]),
        "substate": str(_substate(job)),
        "euser": order.user,
        "egroup": order.group or order.user,
        "hop_count": "1",
        "queue_rank": str(int(job.created * 1_000_000) + job.rank),
        "queue_type": "R" if _is_route(cluster, job.queue) else "E",
        "Submit_Host": order.host,
    }
    plain = {name: value for name, value in job.attributes.items() if "." not in name}
    text |= {name: value for name, value in plain.items() if name not in _HIDDEN}
    variables = f"PBS_O_QUEUE={job.queue},PBS_O_HOST={order.host}"
    text["Variable_List"] = f"{order.variables},{variables}" if order.variables else variables
    ran = job.start_time is not None or job.start_count > 0
    optional = {
        "depend": _depend(cluster, job),
        "exec_host": job.exec_host,
        "hashname": job.id if ran else "",
        "run_count": str(cluster.runs.get(job.id, 0) or ""),
        "run_version": str(cluster.runs.get(job.id, 0) or ""),
        "session_id": "" if job.session is None else str(job.session),
        "Exit_status": ""
        if job.exit_status is None
        else str(_KILLED_BY_WALLTIME.get(job.exit_status, job.exit_status)),
        "array_id": job.array or "",
        "array_index": "" if job.index is None else str(job.index),
    }
    moments = {
        "etime": job.eligible,
        "sample_starttime": job.eligible,
        "Execution_Time": job.not_before,
        "stime": job.start_time,
        "obittime": job.completed if ran and job.exec_host else job.run_ended,
        "history_timestamp": job.completed,
    }
    optional |= {name: str(int(moment)) for name, moment in moments.items() if moment is not None}
    text |= {name: value for name, value in optional.items() if value}
    if not job.exec_host:
        text.pop("exec_vnode", None)
    if job.array is not None and not index:
        text.pop("max_run_subjobs", None)  # only the array shows it
    for name, value in text.items():
        yield Attribute(name, value)
    for resource, value in sorted(job.resources.items()):
        yield Attribute("Resource_List", value, resource)
    for resource, value in used_by(cluster, job):
        yield Attribute("resources_used", value, resource)
    for key, value in sorted(job.attributes.items()):
        name, dot, resource = key.partition(".")
        if dot:
            yield Attribute(name, value, resource)


def _substate(job: Job) -> int:
    if job.moved:
        return 94
    if job.requeueing and job.active:
        return BEING_REQUEUED
    if job.wants_to_go_on and job.state is JobState.SUSPENDED:
        return 45
    return 22 if "d" in job.holds and job.state is JobState.HELD else _SUBSTATES[job.state]


def _is_route(cluster: PbsCluster, queue: str) -> bool:
    found = cluster.queues.get(queue)
    return found is not None and found.attributes.get("queue_type", "").lower().startswith("r")


def _holds(job: Job) -> str:
    letters = "".join(one for one in "uos" if one in job.holds or (one == "s" and "d" in job.holds))
    return letters or "n"


def _depend(cluster: PbsCluster, job: Job) -> str:
    """What the job waits for; a condition on an array is one word inside, and the usual one outside."""
    del cluster
    return write_depend(parse_depend(job.depend)).replace("array:", ":")


def _sorted(entries: Iterable[Attribute]) -> list[Attribute]:
    return sorted(entries, key=lambda entry: _RANK.get(entry.name, _LAST))


def is_shown(name: str, who: Principal) -> bool:
    """Whether this attribute is shown to them: some only to managers, some only to servers and schedulers."""
    return who.server_write or not (name in _OF_SERVERS or (name in _OF_MANAGERS and not who.manager))


def vnode_attributes(cluster: PbsCluster, node: Vnode) -> list[Attribute]:
    found = {
        "Mom": node.host,
        "Port": str(node.mom_port),
        "pbs_version": cluster.version.pbs_version,
        "ntype": "PBS",
        "state": node.state,
    }
    entries = [Attribute(name, value) for name, value in found.items()]
    jobs = ", ".join(f"{job}/{number}" for number, job in enumerate(node.charged))
    if jobs:
        entries.append(Attribute("jobs", jobs))
    held = [one.id for one in cluster.reservations.values() if f"({node.name}:" in one.nodes]
    if held:
        entries.append(Attribute("resv", ", ".join(held)))
    available = {
        "arch": "linux",
        "host": node.host,
        "mem": select_statements.written_size(node.spec.memory),
        "ncpus": str(node.slots),
        "vnode": node.name,
        **node.offers,
    }
    entries += [Attribute("resources_available", value, name) for name, value in sorted(available.items())]
    for name, amount in sorted(node.assigned().items()):
        text = format_amount(name, amount, select_statements.resource_types(cluster))
        entries.append(Attribute("resources_assigned", text, name))
    shared = sum(other.host == node.host for other in cluster.vnodes()) > 1
    rest = {
        **{name: node.settings[name] for name in ("queue", "Priority") if name in node.settings},
        **({"comment": node.note} if node.note else {}),
        "resv_enable": "True",
        "sharing": node.sharing,
        **({"in_multivnode_host": "1"} if shared else {}),
        "license": "l",
        **({"partition": node.settings["partition"]} if "partition" in node.settings else {}),
        "last_state_change_time": str(int(node.changed)),
    }
    return entries + [Attribute(name, value) for name, value in rest.items()]


def queue_attributes(cluster: PbsCluster, queue: Queue) -> list[Attribute]:
    """All attributes of a queue: the kind, the counts, its settings, and whether it is open at the end."""
    jobs = [job for job in cluster.jobs.values() if job.queue == queue.name]
    settings = {"queue_type": "Execution", "enabled": "False", "started": "False"} | queue.attributes
    entries = [entry for key, value in settings.items() for entry in _setting(key, value)]
    entries += _counts(cluster, jobs)
    entries += _assigned(cluster, jobs) if queue.used else []
    return sorted(entries, key=lambda entry: _QUEUE_RANK.get(entry.name, _LAST))


def server_attributes(cluster: PbsCluster) -> list[Attribute]:
    jobs = list(cluster.jobs.values())
    default = cluster.schedulers["default"]
    if not cluster.scheduling:
        state = "Idle"
    else:
        state = "Scheduling" if default.cycling else "Active"
    entries = [entry for key, value in cluster.attributes.items() for entry in _setting(key, value)]
    entries += _counts(cluster, jobs)
    entries += _assigned(cluster, jobs) if any(queue.used for queue in cluster.queues.values()) else []
    entries += [
        Attribute("server_state", state),
        Attribute("server_host", cluster.server),
        Attribute("pbs_version", cluster.version.pbs_version),
    ]
    return sorted(entries, key=lambda entry: _SERVER_RANK.get(entry.name, _LAST))


def scheduler_attributes(scheduler: Scheduler) -> list[Attribute]:
    """All attributes of a scheduler's object."""
    return [Attribute(name, value) for name, value in scheduler.attributes.items()] + [
        Attribute("state", scheduler.state)
    ]


def reservation_attributes(cluster: PbsCluster, one: Reservation) -> list[Attribute]:
    given = dict(one.attributes)
    user = one.owner.partition("@")[0]
    resources = {key.partition(".")[2]: value for key, value in given.items() if key.startswith("Resource_L")}
    found = {
        "Reserve_Name": given.get("Reserve_Name", "NULL"),
        "Reserve_Owner": one.owner,
        "reserve_state": str(int(one.state)),
        "reserve_substate": str(int(one.substate)),
        "reserve_start": str(one.start),
        "reserve_end": str(one.end),
        "reserve_duration": str(one.end - one.start),
        "queue": one.queue,
    }
    entries = [Attribute(name, value) for name, value in found.items()]
    order = sorted(resources, key=lambda name: "select " if name == "place" else name)  # place behind select
    entries += [Attribute("Resource_List", resources[name], name) for name in order]
    rest = {"schedselect": select_statements.schedselect(cluster, resources["select"])}
    if one.nodes:
        rest["resv_nodes"] = one.nodes
    rest |= {
        "Authorized_Users": given.get("Authorized_Users", one.owner),
        "server": cluster.server,
        "ctime": str(int(one.created)),
        "mtime": str(int(one.modified or one.created)),
        "hop_count": "1",
        **({"Variable_List": given["Variable_List"]} if "Variable_List" in given else {}),
        "euser": user,
        "egroup": user,
        **(_standing_attributes(one) if one.recurring else {"reserve_count": "1"}),
        "Submit_Host": cluster.server,
    }
    if one.reverts or one.first:
        rest["schedselect_orig"] = rest["schedselect"]
    if one.partition:
        rest["partition"] = one.partition
    entries += [Attribute(name, value) for name, value in rest.items()]
    for name, before in (("reserve_alter_revert", one.reverts), ("reserve_standing_revert", one.first)):
        entries += [Attribute(name, value, resource) for resource, value in before.items()]
    return entries


def _standing_attributes(one: Reservation) -> dict[str, str]:
    found = {"reserve_standing": "1", "reserve_rrule": one.attributes["reserve_rrule"]}
    if one.places:
        found["reserve_index"] = str(one.index + 1)
    found["reserve_count"] = str(len(one.times))
    if one.places:
        found["reserve_execvnodes"] = one.places
    return found | {"reserve_timezone": one.attributes.get("reserve_timezone", "UTC")}


def _counts(cluster: PbsCluster, jobs: list[Job]) -> list[Attribute]:
    arrays = {job.array for job in jobs if job.array is not None}
    known = [job for job in jobs if cluster.exists(job)]
    count = Counter(_name(job) for job in known if not job.finished)
    for array in arrays:
        members = list(cluster.arrays.get(array or "", {}).values())
        if all(job.finished for job in members):
            continue
        begun = any(cluster.exists(job) for job in members)
        count["Begun" if begun else _name(members[0])] += 1
    states = "".join(f"{name}:{count[name]} " for name in _STATE_NAMES)
    return [Attribute("total_jobs", str(len(known) + len(arrays))), Attribute("state_count", states)]


def _name(job: Job) -> str:
    return {
        "T": "Transit",
        "S": "Running",
        "Q": "Queued",
        "H": "Held",
        "W": "Waiting",
        "R": "Running",
        "E": "Exiting",
    }[job.state.value]


def _assigned(cluster: PbsCluster, jobs: list[Job]) -> list[Attribute]:
    """Return the resources of running jobs, by their requests."""
    active = [job for job in jobs if job.active and job.state is not JobState.SUSPENDED]
    total = {"mem": 0, "ncpus": 0, "nodect": 0}
    for job in active:
        for name, amount in select_statements.amounts(cluster, job.resources).items():
            if name in total:
                total[name] += amount
    return [
        Attribute(
            "resources_assigned",
            select_statements.written_size(amount) if name == "mem" else str(amount),
            name,
        )
        for name, amount in total.items()
    ]


def _setting(key: str, value: str) -> list[Attribute]:
    """A setting as the server sends it: each entry of a limit is an attribute of its own."""
    name, dot, resource = key.partition(".")
    values = (_LIMIT_ENTRY.findall(value) if name in _LIMITS else []) or [value]
    return [Attribute(name, one, resource if dot else None) for one in values]


def _ranges(numbers: Sequence[int]) -> str:
    """`1,3-5`; `-` for none."""
    parts: list[tuple[int, int]] = []
    for number in numbers:
        if parts and parts[-1][1] + 1 == number:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    return ",".join(f"{a}-{b}" if a < b else str(a) for a, b in parts) or "-"
