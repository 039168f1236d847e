"""Differences between the emulated versions: notations, orders, shown attributes (protocol document, 8)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

Slots = Sequence[tuple[str, tuple[int, ...]]]

_JOB_ORDER = [
    "Job_Name",
    "Job_Owner",
    "resources_used",
    "job_state",
    "queue",
    "server",
    "Account_Name",
    "Checkpoint",
    "ctime",
    "depend",
    "Error_Path",
    "exec_host",
    "exec_port",
    "exec_gpus",
    "Execution_Time",
    "group_list",
    "Hold_Types",
    "Join_Path",
    "Keep_Files",
    "Mail_Points",
    "Mail_Users",
    "mtime",
    "Output_Path",
    "Priority",
    "qtime",
    "Rerunable",
    "Resource_List",
    "req_information",
    "session_id",
    "Shell_Path_List",
    "substate",
    "User_List",
    "Variable_List",
    "euser",
    "egroup",
    "hashname",
    "queue_rank",
    "queue_type",
    "sched_hint",
    "comment",
    "etime",
    "alt_id",
    "exit_status",
    "submit_args",
    "job_array_id",
    "array_slot_limit",
    "job_array_request",
    "start_time",
    "checkpoint_name",
    "Walltime",
    "start_count",
    "fault_tolerant",
    "comp_time",
    "job_radix",
    "total_runtime",
    "node_exclusive",
    "submit_host",
    "init_work_dir",
    "reservation_id",
    "login_property",
    "external_nodes",
    "nppcu",
    "request_version",
    "x",
]
JOB_RANK: Mapping[str, int] = {name: rank for rank, name in enumerate(_JOB_ORDER)}
"""Position of each job attribute in a status reply, equal for all versions."""

JOB_NAMES = frozenset(JOB_RANK) - {"array_slot_limit", "Walltime"} | frozenset(
    [
        *("exec_gpus", "exec_mics", "node_exclusive", "interactive", "stagein", "stageout", "umask"),
        *("proxy_user", "jobtype", "inter_cmd", "system_start_time", "req_information", "job_id"),
        *("login_node_id", "idle_slot_limit", "multi_req_alps", "user_kill_delay", "checkpoint_dir"),
        *("checkpoint_time", "checkpoint_restart_status", "cpuset_string", "memset_string"),
    ]
)
"""Job attributes permitted in a status request of some version."""


@dataclass(frozen=True, slots=True)
class Version:
    """One line of servers."""

    name: str
    pbs_version: str
    protocol: int  # version digit of requests and replies
    ranges: bool  # exec_host and node jobs as ranges, exec_port once per node
    descending: bool  # a job's slots on a node, the highest first
    sorted_resources: bool
    job_extras: tuple[str, ...]  # attributes that not all versions show
    job_unknown: frozenset[str]  # attributes that a request of this version may not name
    server_only: tuple[tuple[str, str], ...]
    server_lacks: tuple[str, ...]
    hidden_limit_hold: bool  # the hold by an array's slot limit has no letter
    power_state: bool
    mom_ports: bool  # of nodes; without, the number of gpus is shown
    counts_complete: bool  # in state_count
    runs_in_stopped_queue: bool
    reruns_queued: bool  # qrerun of a queued job is no error
    plain_destination: bool  # no node twice, and no slot numbers
    keeps_command_socket: bool  # open for the scheduler's requests; then RECYC, and FIRST is not lost
    answers_async_twice: bool  # AsyncModifyJob
    no_job: str  # the text of code 15001 with a detail

    def exec_host(self, held: Slots) -> str:
        """`n1/0-1+n2/0` or `n1/0+n1/1+n2/0`."""
        if self.ranges:
            return "+".join(f"{name}/{_ranges(slots)}" for name, slots in held)
        step = -1 if self.descending else 1
        return "+".join(f"{name}/{slot}" for name, slots in held for slot in slots[::step])

    def exec_port(self, held: Slots, ports: Mapping[str, int]) -> str:
        """The moms' manager ports, once per node or once per slot."""
        if self.ranges:
            return "+".join(str(ports[name]) for name, _ in held)
        return "+".join(str(ports[name]) for name, slots in held for _ in slots)

    def node_jobs(self, held: Mapping[str, tuple[int, ...]]) -> str:
        """The `jobs` attribute of a node."""
        if self.ranges:
            return ",".join(f"{_ranges(slots)}/{job}" for job, slots in held.items())
        pairs = sorted((slot, job) for job, slots in held.items() for slot in slots)
        return (", " if self.descending else ",").join(f"{slot}/{job}" for slot, job in pairs)

    def node_status(self, report: Mapping[str, str]) -> str:
        """The mom's report in this version's order."""
        order = _STATUS_61 if self.ranges else _STATUS_42  # 2.5 as 4.2
        return ",".join(f"{key}={report[key]}" for key in order if key in report)


_STATUS_61 = [
    "opsys",
    "uname",
    "sessions",
    "nsessions",
    "nusers",
    "idletime",
    "totmem",
    "availmem",
    "physmem",
    "ncpus",
    "loadave",
    "gres",
    "netload",
    "state",
    "varattr",
    "cpuclock",
    "version",
    "rectime",
    "jobs",
]
_STATUS_42 = [
    "rectime",
    "varattr",
    "jobs",
    "state",
    "netload",
    "gres",
    "loadave",
    "ncpus",
    "physmem",
    "availmem",
    "totmem",
    "idletime",
    "nusers",
    "nsessions",
    "sessions",
    "uname",
    "opsys",
]


def _ranges(slots: Sequence[int]) -> str:
    parts = []
    for _, group in groupby(enumerate(slots), lambda pair: pair[1] - pair[0]):
        run = [slot for _, slot in group]
        parts.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]))
    return ",".join(parts)


_NEW_IN_61 = frozenset(
    {"request_version", "req_information", "idle_slot_limit", "user_kill_delay", "cpuset_string"}
)

VERSIONS: Mapping[str, Version] = {
    "2.5": Version(
        name="2.5",
        pbs_version="2.5.13",
        protocol=1,
        ranges=False,
        descending=True,
        sorted_resources=True,
        job_extras=("init_work_dir",),
        job_unknown=_NEW_IN_61 | {"exec_port", "job_radix"},
        server_only=(),
        server_lacks=("job_stat_rate", "poll_jobs", "down_on_error", "moab_array_compatible", "nppcu"),
        hidden_limit_hold=True,
        power_state=False,
        mom_ports=False,
        counts_complete=False,
        runs_in_stopped_queue=True,
        reruns_queued=False,
        plain_destination=True,
        keeps_command_socket=True,
        answers_async_twice=True,
        no_job="Unknown Job Id",
    ),
    "4.2": Version(
        name="4.2",
        pbs_version="4.2.10",
        protocol=2,
        ranges=False,
        descending=False,
        sorted_resources=True,
        job_extras=("exec_port", "job_radix"),
        job_unknown=_NEW_IN_61,
        server_only=(),
        server_lacks=("down_on_error",),
        hidden_limit_hold=True,
        power_state=False,
        mom_ports=True,
        counts_complete=True,
        runs_in_stopped_queue=False,
        reruns_queued=False,
        plain_destination=False,
        keeps_command_socket=False,
        answers_async_twice=False,
        no_job="Unknown Job Id Error",
    ),
    "6.1": Version(
        name="6.1",
        pbs_version="6.1-dev",
        protocol=2,
        ranges=True,
        descending=False,
        sorted_resources=False,
        job_extras=("exec_port", "job_radix", "init_work_dir", "request_version"),
        job_unknown=frozenset(),
        server_only=(
            ("timeout_for_job_delete", "120"),
            ("timeout_for_job_requeue", "120"),
            ("note_append_on_error", "True"),
        ),
        server_lacks=(),
        hidden_limit_hold=False,
        power_state=True,
        mom_ports=True,
        counts_complete=True,
        runs_in_stopped_queue=False,
        reruns_queued=True,
        plain_destination=False,
        keeps_command_socket=False,
        answers_async_twice=False,
        no_job="Unknown Job Id Error",
    ),
}
