"""Clients of the emulated server and their rights (protocol document, sections 3 and 6)."""

from dataclasses import dataclass

from server_adapter.emulator.errors import refusal
from server_adapter.emulator.jobs import STATE_NAMES, Job, JobState
from server_adapter.emulator.state import Cluster
from server_adapter.torque.errors import TorqueErrorCode


@dataclass(frozen=True, slots=True)
class Principal:
    """A user on a host. A privileged port gives `server_write` and `manager`, the server's list `manager`."""

    user: str
    host: str
    server_write: bool = False
    manager: bool = False


def make_principal(cluster: Cluster, user: str, *, privileged: bool) -> Principal:
    """Return the client's rights: by a privileged port, or as manager or operator."""
    listed = f"{cluster.attributes.get('managers', '')},{cluster.attributes.get('operators', '')}"
    names = {entry.partition("@")[0] for entry in listed.split(",") if entry}
    return Principal(user, cluster.server, privileged, privileged or user in names)


def demand_manager(who: Principal, words: str = "operation not permitted") -> None:
    """Raise refusal 15007 with this text unless the client is manager or operator."""
    if not who.manager:
        raise refusal(TorqueErrorCode.PERM, words)


def demand_owner(who: Principal, job: Job) -> None:
    """Raise refusal 15007 unless the client owns the job or is manager or operator."""
    if not who.manager and who.user != job.order.user:
        raise refusal(TorqueErrorCode.PERM, "operation not permitted")


def demand_live(job: Job) -> None:
    """Raise refusal 15018 if the job is ending or has ended."""
    if job.state in (JobState.EXITING, JobState.COMPLETE):
        raise refusal(TorqueErrorCode.BADSTATE, f"invalid state for job - {STATE_NAMES[job.state].upper()}")


def is_job_visible(cluster: Cluster, who: Principal, job: Job) -> bool:
    """Return whether this user's status replies include the job."""
    return who.manager or who.user == job.order.user or cluster.attributes.get("query_other_jobs") == "True"
