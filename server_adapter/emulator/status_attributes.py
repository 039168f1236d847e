"""Objects as they appear in status replies: names and order per version (protocol document, section 6)."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from server_adapter.dis import Attribute
from server_adapter.emulator.dependencies import parse_depend, reverse_condition
from server_adapter.emulator.jobs import BEING_REQUEUED, STATE_NAMES, SUBSTATE, Job, JobState, Queue
from server_adapter.emulator.nodes import EmulatedNode
from server_adapter.emulator.settings import QUEUE_RANK, SERVER_RANK
from server_adapter.emulator.state import Cluster
from server_adapter.emulator.versions import JOB_RANK
from server_adapter.torque.notation import seconds

_PRIVILEGED = frozenset({"substate", "hashname", "queue_rank", "sched_hint", "exec_port"})
_UNAME = "Linux localhost 6.1.0 #1 SMP PREEMPT_DYNAMIC x86_64"
_LAST = 10_000
_NOT_IN_ALL = ("init_work_dir", "request_version", "exec_port", "job_radix")


def job_attributes(cluster: Cluster, job: Job, *, privileged: bool) -> list[Attribute]:
    """A job's attributes in the version's order; some are shown to managers only."""
    entries = list(_job_entries(cluster, job))
    if not privileged:
        entries = [
            entry for entry in entries if entry.name not in _PRIVILEGED and entry.resource != "neednodes"
        ]
    entries.sort(key=lambda entry: JOB_RANK.get(entry.name, _LAST))
    return entries


def summarize(entries: Iterable[Attribute], members: Sequence[Job]) -> list[Attribute]:
    """An array as one job, from its first sub-job's attributes: for clients that ask for a summary."""
    first = members[0]
    states = {job.state for job in members}
    order = (
        JobState.RUNNING,
        JobState.EXITING,
        JobState.QUEUED,
        JobState.WAITING,
        JobState.HELD,
        JobState.COMPLETE,
    )
    state = next(state for state in order if state in states)
    replaced = {"Job_Name": first.order.name, "job_state": state.value}
    own = {"job_array_id", "exec_host", "exec_port", "session_id", "hashname", "exit_status", "Walltime"}
    found = [
        Attribute(entry.name, replaced.get(entry.name, entry.value), entry.resource)
        for entry in entries
        if entry.name not in own
    ]
    found.append(Attribute("job_array_request", first.order.array))
    return sorted(found, key=lambda entry: JOB_RANK.get(entry.name, _LAST))


def _job_entries(cluster: Cluster, job: Job) -> Iterator[Attribute]:
    order, version = job.order, cluster.version
    number = job.id.partition(".")[0].partition("[")[0]
    suffix = "" if job.index is None else f"-{job.index}"
    home = job.attributes.get("init_work_dir", f"/home/{order.user}")
    text = {
        "Job_Name": order.name + suffix,
        "Job_Owner": job.owner,
        "job_state": job.state.value,
        "queue": job.queue,
        "server": cluster.server,
        "ctime": str(int(job.created)),
        "Error_Path": f"{order.host}:{home}/{order.name}.e{number}{suffix}",
        "mtime": str(int(job.modified)),
        "Output_Path": f"{order.host}:{home}/{order.name}.o{number}{suffix}",
        "Priority": str(job.priority),
        "qtime": str(int(job.queued)),
        "Rerunable": str(order.rerunnable),
        "substate": str(BEING_REQUEUED if job.requeueing and job.active else SUBSTATE[job.state]),
        "euser": order.user,
        "egroup": order.group or order.user,
        "queue_rank": str(job.rank),
        "queue_type": "E",
        "submit_args": "",
        "submit_host": order.host,
        "init_work_dir": home,
        "request_version": "1",
    }
    text.update(job.attributes)
    text.pop("slot_limit", None)
    array_id = "" if job.index is None else f"PBS_ARRAYID={job.index},"
    text["Variable_List"] = f"{array_id}PBS_O_QUEUE={job.queue}" + (
        f",{order.variables}" if order.variables else ""
    )
    letters = "".join(
        letter for letter in "uos" if letter in job.holds or (letter == "s" and "d" in job.holds)
    )
    if letters or (job.index is None and "l" not in job.holds):
        text["Hold_Types"] = letters or "n"
    elif "l" in job.holds:
        text["Hold_Types"] = "" if version.hidden_limit_hold else "l"
    if not text["submit_args"]:
        del text["submit_args"]
    depend = _depend(cluster, job)
    moments = {
        "etime": job.eligible,
        "Execution_Time": job.not_before,
        "start_time": job.start_time,
        "comp_time": job.completed,
    }
    text |= {name: str(int(moment)) for name, moment in moments.items() if moment is not None}
    optional = {
        "depend": depend,
        "exec_host": job.exec_host,
        "exec_port": job.exec_port,
        "exec_gpus": job.exec_gpus,
        "session_id": "" if job.session is None else str(job.session),
        "hashname": "" if not job.start_count else job.id.replace("[", "-").replace("]", ""),
        "job_array_id": "" if job.index is None else str(job.index),
        "start_count": str(job.start_count) if job.start_count else "",
        "exit_status": "" if job.exit_status is None else str(job.exit_status),
        "total_runtime": "" if job.runtime is None else f"{job.runtime:.6f}",
    }
    text |= {name: value for name, value in optional.items() if value}
    for extra in _NOT_IN_ALL:
        if extra not in version.job_extras:
            text.pop(extra, None)
    for name, value in text.items():
        yield _setting(name, value) if name.startswith("req_information.") else Attribute(name, value)
    resources: Iterable[tuple[str, str]] = job.resources.items()
    for resource, value in sorted(resources) if version.sorted_resources else resources:
        yield Attribute("Resource_List", value, resource)
    yield from _used(cluster, job)
    if job.state is JobState.RUNNING and job.ends is not None and job.started is not None:
        limit = job.resources.get("walltime")
        if limit is not None:
            left = int(job.started + seconds(limit) - cluster.now)
            yield Attribute("Walltime", str(max(0, left)), "Remaining")


def _depend(cluster: Cluster, job: Job) -> str:
    parts = [job.depend] if job.depend else []
    for name in sorted(job.waiters & cluster.dependents):
        other = cluster.jobs.get(name)
        if other is not None:
            conditions = parse_depend(other.depend)
            parts += [
                reverse_condition(condition, other.id) or ""
                for condition in conditions
                if condition.job == job.id
            ]
    return ",".join(filter(None, parts))


def _used(cluster: Cluster, job: Job) -> Iterator[Attribute]:
    used = dict(used_by(cluster, job))
    if used and not cluster.version.sorted_resources:
        used["energy_used"] = "0"
    for resource, value in sorted(used.items()) if cluster.version.sorted_resources else used.items():
        yield Attribute("resources_used", value, resource)


def used_by(cluster: Cluster, job: Job) -> Iterator[tuple[str, str]]:
    """What a job has used, as its mom reports it from time to time, and at the end."""
    if job.started is None or (job.completed is None and cluster.now - job.started < 45):
        return
    spent = job.runtime if job.runtime is not None else cluster.now - job.started
    memory = random.Random(job.id).randrange(4_000, 900_000)
    yield "cput", "00:00:00"
    yield "vmem", f"{2 * memory}kb"
    yield "walltime", clock(spent)
    yield "mem", f"{memory}kb"


def node_attributes(cluster: Cluster, node: EmulatedNode) -> list[Attribute]:
    """A node's attributes in the version's order."""
    entries = [Attribute("state", node.state)]
    if cluster.version.power_state:
        entries.append(Attribute("power_state", "Running"))
    entries.append(Attribute("np", str(node.slots)))
    if node.properties:
        entries.append(Attribute("properties", ",".join(node.properties)))
    entries.append(Attribute("ntype", "cluster"))
    held = node.held()
    if held:
        entries.append(Attribute("jobs", cluster.version.node_jobs(held)))
    entries.append(Attribute("status", cluster.version.node_status(_report(cluster, node, held))))
    if node.note:
        entries.append(Attribute("note", node.note))
    if cluster.version.mom_ports:
        entries.append(Attribute("mom_service_port", str(node.mom_port)))
        entries.append(Attribute("mom_manager_port", str(node.mom_port + 1)))
    if node.spec.gpus or not cluster.version.mom_ports:
        entries.append(Attribute("gpus", str(node.spec.gpus)))
    if node.spec.gpus and node.spec.gpu_product:
        entries.append(Attribute("gpu_status", _gpu_status(node)))
    return entries


def _gpu_status(node: EmulatedNode) -> str:
    """Return the report on each gpu, the last one first, then that of the driver."""
    parts = []
    for number in reversed(range(node.spec.gpus)):
        prohibited = number in node.spec.prohibited
        held = node.taken_gpus.get(number)
        mode = "Prohibited" if prohibited else (held[1] if held else "default").title()
        shared = held is not None and held[1] == "default"
        state = (
            "Unavailable" if prohibited else "Shared" if shared else "Exclusive" if held else "Unallocated"
        )
        parts.append(
            f"gpu[{number}]=gpu_id=0000:{number + 2:02X}:00.0;gpu_product_name={node.spec.gpu_product};"
            f"gpu_memory_total=32480 MB;gpu_mode={mode};gpu_state={state};gpu_utilization=0%"
        )
    return ",".join([*parts, "driver_ver=450.80", "timestamp=Thu Jan  1 00:00:00 1970"])


def _report(cluster: Cluster, node: EmulatedNode, held: dict[str, tuple[int, ...]]) -> dict[str, str]:
    if node.alive:
        period = int(cluster.timing.report) or 1
        node.reported += (int(cluster.now) - node.reported) // period * period
    total = node.spec.memory + node.spec.swap
    busy = len(node.taken)
    free = node.available if node.available is not None else max(0, node.spec.memory - 800_000 - busy * 1000)
    load = node.load if node.load is not None else float(busy)
    return {
        "opsys": "linux",
        "uname": _UNAME,
        "nsessions": str(len(held)),
        "nusers": "1" if held else "0",
        "idletime": "64107",
        "totmem": f"{total}kb",
        "availmem": f"{free}kb",
        "physmem": f"{node.spec.memory}kb",
        "ncpus": str(node.spec.slots),
        "loadave": f"{load:.2f}",
        "gres": node.spec.gres,
        "netload": "0",
        "state": "free",
        "varattr": " " if cluster.version.ranges else "",
        "cpuclock": "Fixed",
        "version": cluster.version.pbs_version,
        "rectime": str(node.reported),
        "jobs": " ".join(held),
    }


def queue_attributes(cluster: Cluster, queue: Queue) -> list[Attribute]:
    """A queue's attributes: its own settings with the counts of its jobs in their place."""
    jobs = [job for job in cluster.jobs.values() if job.queue == queue.name]
    entries = [_setting(key, value) for key, value in queue.attributes.items()]
    entries += _counts(cluster, jobs)
    entries.append(Attribute("mtime", str(int(queue.modified))))
    entries += _assigned(jobs) if queue.used else []
    return sorted(entries, key=lambda entry: QUEUE_RANK.get(entry.name, _LAST))


def server_attributes(cluster: Cluster) -> list[Attribute]:
    """The server's attributes, counts and version in their recorded places."""
    jobs = list(cluster.jobs.values())
    entries = [_setting(key, value) for key, value in cluster.attributes.items()]
    entries += [
        Attribute("server_state", _server_state(cluster)),
        *_counts(cluster, jobs),
        *(_assigned(jobs) if any(queue.used for queue in cluster.queues.values()) else []),
        Attribute("pbs_version", cluster.version.pbs_version),
        Attribute("next_job_number", str(cluster.next_number)),
        Attribute("net_counter", "1 0 0"),
    ]
    return sorted(entries, key=lambda entry: SERVER_RANK.get(entry.name, _LAST))


def _server_state(cluster: Cluster) -> str:
    if cluster.cycling:
        return "Scheduling"
    return "Active" if cluster.scheduling else "Idle"


def _counts(cluster: Cluster, jobs: list[Job]) -> list[Attribute]:
    count = Counter(job.state for job in jobs)
    shown = [
        state for state in STATE_NAMES if cluster.version.counts_complete or state is not JobState.COMPLETE
    ]
    states = "".join(f"{STATE_NAMES[state]}:{count[state]} " for state in shown)
    return [Attribute("total_jobs", str(len(jobs))), Attribute("state_count", f"Transit:0 {states}")]


def _assigned(jobs: list[Job]) -> list[Attribute]:
    nodes = sum(len(job.held_slots) for job in jobs)
    return [Attribute("resources_assigned", str(nodes), "nodect")]


def _setting(key: str, value: str) -> Attribute:
    name, dot, resource = key.partition(".")
    return Attribute(name, value, resource if dot else None)


def clock(spent: float) -> str:
    """Seconds as `HH:MM:SS`."""
    minutes, second = divmod(int(spent), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours:02}:{minute:02}:{second:02}"
