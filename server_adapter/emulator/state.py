"""State of the emulated server, without I/O: jobs, queues, nodes, attributes, time."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from server_adapter.emulator.errors import RefusalError, refusal
from server_adapter.emulator.faults import Faults
from server_adapter.emulator.jobs import Job, JobOrder, JobOutcome, Queue
from server_adapter.emulator.nodes import EmulatedNode, NodeSpec
from server_adapter.emulator.timers import Timers
from server_adapter.emulator.versions import VERSIONS, Version
from server_adapter.torque.codes import SchedulerCommand
from server_adapter.torque.errors import TorqueErrorCode
from server_adapter.torque.notation import seconds

_SLEEP = re.compile(r"\bsleep\s+[\"']?(?:(\d+(?:\.\d+)?)|\$\{?(\w+)(?::-(\d+)\})?)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_EXIT = re.compile(r"\bexit\s+(\d+)")


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in simulated seconds."""

    obit: float = 0.2  # from a job's end until its slots are free
    kill: float = 2.0  # from a deletion until the program is dead
    refused: float = 0.3  # from an asynchronous run until its refusal by the mom
    check_poll: float = 45.0  # between two checks of walltimes by a mom; 0: killed at once
    report: float = 45.0  # between two reports of a mom
    node_check: float = 150.0  # from a mom's death until the server notices


def usual_outcome(order: JobOrder) -> JobOutcome:
    """Return the default behaviour of a job: the sum of the script's sleeps, else 60 % of its walltime.

    `sleep 5`, `sleep $T` and `sleep ${T:-5}` are understood, with variables from `qsub -v T=60`.
    """
    given = dict(word.partition("=")[::2] for word in order.variables.split(","))
    words = (plain or given.get(name) or default for plain, name, default in _SLEEP.findall(order.script))
    sleeps = [float(word) for word in words if _NUMBER.fullmatch(word)]
    exits = _EXIT.findall(order.script)
    walltime = order.resources.get("walltime")
    guess = 0.6 * seconds(walltime) if walltime else 60.0
    return JobOutcome(sum(sleeps) if sleeps else guess, int(exits[-1]) if exits else 0)


@dataclass(slots=True)
class Cluster:
    """State of the emulated server. Only `lifecycle.advance` moves `now`.

    `command` is the only slot for a command to the scheduler: a newer command replaces an older one. `runs`
    counts accepted runs by job, for comparison with `start_count` in tests; `returned` counts the runs that
    no mom accepted.
    """

    version: Version
    now: float
    server: str = "localhost"
    timing: Timing = Timing()
    outcome: Callable[[JobOrder], JobOutcome] = usual_outcome
    faults: Faults = field(default_factory=Faults)
    nodes: dict[str, EmulatedNode] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    arrays: dict[str, dict[str, Job]] = field(default_factory=dict)  # the sub-jobs among them, by array
    attributes: dict[str, str] = field(default_factory=dict)
    timers: Timers = field(default_factory=Timers)
    command: SchedulerCommand | None = None
    contacted: bool = False
    stopping: bool = False  # set by qterm
    cycling: bool = False  # a scheduler works on the socket that its command came through
    last_command: float = 0.0
    next_number: int = 0
    next_rank: int = 1
    next_session: int = 20000
    runs: dict[str, int] = field(default_factory=dict)
    returned: dict[str, int] = field(default_factory=dict)
    dependents: set[str] = field(default_factory=set)  # ids of jobs that wait for other jobs
    on_complete: Callable[[bool], None] = lambda _: None  # called at the end of each job, with whether it ran

    @property
    def scheduling(self) -> bool:
        """Whether the server calls its scheduler."""
        return self.attributes.get("scheduling") == "True"

    @property
    def retention_s(self) -> float:
        """Retention of finished jobs, in seconds."""
        return float(self.attributes.get("keep_completed", "0"))

    def poke(self, command: SchedulerCommand) -> None:
        """Set the command for the scheduler, replacing a pending one."""
        if self.scheduling:
            self.command = command

    def pop_command(self) -> SchedulerCommand | None:
        """Return the command to send: TIME after an idle iteration, FIRST after a start; or None."""
        if not self.scheduling:
            self.command = None
            return None
        if self.cycling:
            return None
        command, self.command = self.command, None
        iteration = float(self.attributes.get("scheduler_iteration", "600"))
        if command is None and self.now - self.last_command >= iteration:
            command = SchedulerCommand.TIME
        if command is None:
            return None
        self.last_command = self.now
        if not self.contacted:
            self.contacted = True
            return SchedulerCommand.FIRST
        return command

    def job(self, name: str) -> Job:
        """Return the job of that id; a bare number refers to this server. Raises refusal 15001."""
        job = self.jobs.get(name) or self.jobs.get(f"{name}.{self.server}")
        if job is None:
            raise RefusalError(TorqueErrorCode.UNKJOBID)
        return job

    def array(self, name: str) -> list[Job]:
        """Return the subjobs of an array `9[].srv`. Raises refusal 15001."""
        members = self.arrays.get(name)
        if not members:
            raise RefusalError(TorqueErrorCode.UNKJOBID)
        return list(members.values())

    def named(self, name: str) -> list[Job]:
        """Return the jobs of a request's id: one, or all subjobs of an array."""
        if "[]" in name:
            return self.array(name if "." in name else f"{name}.{self.server}")
        return [self.job(name)]

    def queue(self, name: str) -> Queue:
        """Return a queue. Raises refusal 15020."""
        queue = self.queues.get(name)
        if queue is None:
            raise RefusalError(TorqueErrorCode.UNKQUE)
        return queue

    def node(self, name: str) -> EmulatedNode:
        """Return a node. Raises refusal 15064."""
        node = self.nodes.get(name)
        if node is None:
            raise refusal(TorqueErrorCode.UNKNODE, "cannot locate specified node")
        return node

    def live_jobs(self) -> Iterator[Job]:
        """Yield unfinished jobs."""
        return (job for job in self.jobs.values() if not job.finished)


def new_cluster(
    nodes: Iterable[NodeSpec],
    *,
    version: str = "6.1",
    now: float = 1_795_255_000.0,
    server: str = "localhost",
    queues: Iterable[str] = ("batch",),
    timing: Timing = Timing(),
    outcome: Callable[[JobOrder], JobOutcome] = usual_outcome,
) -> Cluster:
    """Return a server with free nodes, empty queues (default walltime one hour) and scheduling off.

    Raises `KeyError` for a version that is not emulated.
    """
    cluster = Cluster(
        version=VERSIONS[version], now=now, server=server, timing=timing, outcome=outcome, last_command=now
    )
    for number, spec in enumerate(nodes, start=1):
        cluster.nodes[spec.name] = EmulatedNode(spec, mom_port=30_000 + 2 * number, reported=int(now))
    for name in queues:
        cluster.queues[name] = Queue(
            name,
            {
                "queue_type": "Execution",
                "resources_default.walltime": "01:00:00",
                "enabled": "True",
                "started": "True",
            },
            modified=now,
        )
    default = next(iter(cluster.queues), "")
    cluster.attributes = {
        "scheduling": "False",
        "acl_hosts": server,
        "managers": f"root@{server}",
        "operators": f"root@{server}",
        "default_queue": default,
        "log_events": "2047",
        "mail_from": "adm",
        "query_other_jobs": "True",
        "scheduler_iteration": "600",
        "node_check_rate": "150",
        "tcp_timeout": "30",
        "job_stat_rate": "300" if version == "6.1" else "45",
        "poll_jobs": "True",
        "log_level": "7",
        "down_on_error": "True",
        "mom_job_sync": "True",
        "keep_completed": "60",
        "moab_array_compatible": "True",
        "nppcu": "1",
        **dict(cluster.version.server_only),
    }
    for name in cluster.version.server_lacks:
        del cluster.attributes[name]
    return cluster
