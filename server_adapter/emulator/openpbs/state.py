"""State of the emulated OpenPBS server: cluster with vnodes, schedulers, reservations and resources."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.jobs import Job, JobOrder, JobOutcome, Queue
from server_adapter.emulator.nodes import NodeSpec
from server_adapter.emulator.openpbs.vnodes import Vnode
from server_adapter.emulator.state import Cluster, Timing, usual_outcome
from server_adapter.emulator.versions import VERSIONS
from server_adapter.openpbs.codes import OpenPBSCommand, OpenPBSErrorCode, ReservationCode
from server_adapter.torque.codes import SchedulerCommand
from server_adapter.torque.notation import seconds

VERSION: Final = replace(VERSIONS["6.1"], name="openpbs", pbs_version="23.06.06", reruns_queued=False)
"""What the parts that both families share ask of a version."""

HISTORY: Final = "336:00:00"  # default retention of finished jobs, if the history is enabled

_COMMANDS: Final = {
    SchedulerCommand.NEW: OpenPBSCommand.NEW,
    SchedulerCommand.TERM: OpenPBSCommand.TERM,
    SchedulerCommand.CMD: OpenPBSCommand.CMD,
}


@dataclass(slots=True)
class Scheduler:
    """A scheduler of the server, with its pending commands.

    `urgent` are jobs of `qrun` requests, `first` commands of a registration, `command` the only slot for all
    other commands (the last one wins). `cycling`: a command was sent and its cycle has not ended. `altered`
    are jobs that were altered in this cycle after the scheduler had read the jobs (`reads`).
    """

    name: str
    attributes: dict[str, str]
    command: OpenPBSCommand | None = None
    urgent: deque[str] = field(default_factory=deque)
    first: deque[OpenPBSCommand] = field(default_factory=deque)
    registered: bool = False
    cycling: bool = False
    reads: bool = False
    altered: set[str] = field(default_factory=set)
    notified_at: float = 0.0

    @property
    def scheduling(self) -> bool:
        """Whether this scheduler may start jobs."""
        return self.attributes.get("scheduling") == "True"

    @property
    def state(self) -> str:
        """The `state` attribute."""
        if not self.registered:
            return "down"
        return "scheduling" if self.cycling else "idle"

    def next(self) -> tuple[OpenPBSCommand, str] | None:
        """Remove and return the next command, with the job id that belongs to it."""
        if not self.registered or self.cycling:
            return None
        if self.urgent:
            return OpenPBSCommand.RUN_JOB, self.urgent.popleft()
        if self.first:
            return self.first.popleft(), ""
        command, self.command = self.command, None
        return None if command is None else (command, "")

    def end(self) -> None:
        """Its cycle is over."""
        self.cycling = self.reads = False
        self.altered.clear()


@dataclass(slots=True)
class Reservation:
    """A reservation. Times are epoch seconds; `nodes` is its `resv_nodes`, once a scheduler has confirmed it.

    A standing reservation has `times` (the starts of all occurrences), `index` (of the current occurrence)
    and `places` (the vnodes of all occurrences as one text). `reverts` are the values before an alteration,
    until a scheduler has answered it; `first` are the values of a standing reservation before its next
    occurrence was altered; `resumes` is the state before the alteration.
    """

    id: str
    owner: str
    attributes: dict[str, str]
    start: int
    end: int
    created: float
    state: ReservationCode = ReservationCode.UNCONFIRMED
    nodes: str = ""
    partition: str = ""
    modified: float = 0.0
    times: tuple[int, ...] = ()
    index: int = 0
    places: str = ""
    resumes: ReservationCode | None = None
    reverts: dict[str, str] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    @property
    def recurring(self) -> bool:
        """Whether it comes again."""
        return bool(self.times)

    @property
    def substate(self) -> ReservationCode:
        """Its `reserve_substate`: during an alteration, the state before it."""
        return self.state if self.resumes is None else self.resumes

    @property
    def queue(self) -> str:
        return self.id.partition(".")[0]


@dataclass(slots=True)
class PbsCluster(Cluster):
    """State of the emulated OpenPBS server, in addition to the common state.

    `resources` are custom resources: type and flag by name. `fresh`: no scheduler has registered since the
    start of the server.
    """

    schedulers: dict[str, Scheduler] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    resources: dict[str, tuple[str, str]] = field(default_factory=dict)
    fresh: bool = True

    @property
    def retention_s(self) -> float:
        """Retention of finished jobs in the server's history, in seconds."""
        if self.attributes.get("job_history_enable") != "True":
            return 0.0
        return float(seconds(self.attributes.get("job_history_duration", HISTORY)))

    def poke(self, command: SchedulerCommand) -> None:
        """Set the command for every scheduler, replacing a pending one."""
        self.notify_schedulers(_COMMANDS[command])

    def notify_schedulers(self, command: OpenPBSCommand, *, always: bool = False) -> None:
        """Set an OpenPBS command for every scheduler; with `always` also while scheduling is off."""
        for scheduler in self.schedulers.values():
            if always or (self.scheduling and scheduler.scheduling):
                scheduler.command = command

    def vnode(self, name: str) -> Vnode:
        """A vnode. Raises the refusal 15062."""
        node = self.nodes.get(name)
        if not isinstance(node, Vnode):
            raise RefusalError(OpenPBSErrorCode.UNKNODE, "Unknown node ")
        return node

    def vnodes(self) -> list[Vnode]:
        return [node for node in self.nodes.values() if isinstance(node, Vnode)]

    def reservation(self, name: str) -> Reservation:
        """Return a reservation by its id, with or without the server's name. Raises refusal 15084."""
        found = self.reservations.get(name) or self.reservations.get(f"{name}.{self.server}")
        if found is None:
            raise RefusalError(OpenPBSErrorCode.UNKRESVID, "Unknown Reservation Id")
        return found

    def exists(self, job: Job) -> bool:
        """Return whether the server has an object for a job; of an array, only subjobs that have run."""
        return job.array is None or job.start_count > 0 or job.active or job.finished


def new_scheduler(cluster: PbsCluster, name: str) -> Scheduler:
    """Add a scheduler like `qmgr create sched`, or the default one."""
    default = name == "default"
    suffix = "" if default else f"_{name}"
    attributes = {
        "sched_host": cluster.server,
        "sched_cycle_length": "00:20:00",
        "throughput_mode": "True",
        "job_run_wait": "runjob_hook",
        "sched_priv": f"/var/spool/pbs/sched_priv{suffix}",
        "sched_log": f"/var/spool/pbs/sched_logs{suffix}",
        "scheduling": str(default),
        "scheduler_iteration": "600",
        "preempt_queue_prio": "150",
        "preempt_prio": "express_queue, normal_jobs",
        "preempt_order": "SCR",
        "preempt_sort": "min_time_since_start",
        "log_events": "767",
        "server_dyn_res_alarm": "30",
    }
    if default:
        attributes["partition"] = "pbs-default"
    cluster.schedulers[name] = Scheduler(name, attributes, notified_at=cluster.now)
    return cluster.schedulers[name]


def new_vnode(cluster: PbsCluster, spec: NodeSpec, host: str = "") -> Vnode:
    """Add a free vnode."""
    node = Vnode(spec, mom_port=15002, host=host or spec.name, reported=int(cluster.now), changed=cluster.now)
    for word in filter(None, spec.gres.split("+")):
        name, _, amount = word.partition(":")
        node.offers[name] = amount
        cluster.resources.setdefault(name, ("long", "hnq"))
    for name in node.properties:
        node.offers[name] = "True"
        cluster.resources.setdefault(name, ("boolean", "h"))
    if spec.gpus:
        node.offers["ngpus"] = str(spec.gpus)
    cluster.nodes[spec.name] = node
    return node


def new_pbs_cluster(
    nodes: Iterable[NodeSpec],
    *,
    now: float,
    server: str = "localhost",
    queues: Iterable[str] = ("workq",),
    timing: Timing = Timing(),  # noqa: B008  (frozen)
    outcome: Callable[[JobOrder], JobOutcome] = usual_outcome,
) -> PbsCluster:
    """Return a server with free vnodes, each on its own host, empty queues, and scheduling off."""
    cluster = PbsCluster(
        version=VERSION, now=now, server=server, timing=timing, outcome=outcome, last_command=now
    )
    for spec in nodes:
        new_vnode(cluster, spec)
    for name in queues:
        settings = {"queue_type": "Execution", "enabled": "True", "started": "True"}
        cluster.queues[name] = Queue(name, settings, modified=now)
    cluster.attributes = {
        "scheduling": "False",
        "acl_roots": "root@*",
        "default_queue": next(iter(cluster.queues), ""),
        "log_events": "511",
        "mailer": "/usr/sbin/sendmail",
        "mail_from": "adm",
        "query_other_jobs": "True",
        "resources_default.ncpus": "1",
        "default_chunk.ncpus": "1",
        "scheduler_iteration": "600",
        "resv_enable": "True",
        "node_fail_requeue": "310",
        "max_array_size": "10000",
        "resend_term_delay": "5",
        "eligible_time_enable": "False",
        "job_history_enable": "True",
        "max_concurrent_provision": "5",
        "backfill_depth": "1",
        "clear_topjob_estimates_enable": "False",
        "power_provisioning": "False",
        "max_job_sequence_id": "9999999",
    }
    new_scheduler(cluster, "default")
    return cluster
