"""What differs between the emulated versions: notations, orders, what is shown (protocol document, 8)."""

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
"""Where each job attribute stands in a status reply: one order for all versions."""


@dataclass(frozen=True, slots=True)
class Version:
    """One line of servers."""

    name: str
    pbs_version: str
    ranges: bool  # exec_host and node jobs as ranges, exec_port once per node
    sorted_resources: bool
    job_extras: tuple[str, ...]  # attributes that this version alone shows
    server_only: tuple[tuple[str, str], ...]
    hidden_limit_hold: bool  # the hold by an array's slot limit has no letter
    two_step_submission: bool  # QueueJob2, JobScript2: the script commits
    power_state: bool

    def exec_host(self, held: Slots) -> str:
        """`n1/0-1+n2/0` or `n1/0+n1/1+n2/0`."""
        if self.ranges:
            return "+".join(f"{name}/{_ranges(slots)}" for name, slots in held)
        return "+".join(f"{name}/{slot}" for name, slots in held for slot in slots)

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
        return ",".join(f"{slot}/{job}" for slot, job in pairs)

    def node_status(self, report: Mapping[str, str]) -> str:
        """The mom's report in this version's order."""
        order = _STATUS_61 if self.ranges else _STATUS_42
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


VERSIONS: Mapping[str, Version] = {
    "4.2": Version(
        name="4.2",
        pbs_version="4.2.10",
        ranges=False,
        sorted_resources=True,
        job_extras=(),
        server_only=(),
        hidden_limit_hold=True,
        two_step_submission=False,
        power_state=False,
    ),
    "6.1": Version(
        name="6.1",
        pbs_version="6.1-dev",
        ranges=True,
        sorted_resources=False,
        job_extras=("init_work_dir", "request_version"),
        server_only=(
            ("timeout_for_job_delete", "120"),
            ("timeout_for_job_requeue", "120"),
            ("note_append_on_error", "True"),
        ),
        hidden_limit_hold=False,
        two_step_submission=True,
        power_state=True,
    ),
}
