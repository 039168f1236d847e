"""Checks of a transferred job on a server of either family."""

from collections.abc import Sequence

from server_adapter.bridge.facts import Values
from server_adapter.bridge.transfers import JobRunsError


def is_array(job: str) -> bool:
    """Return whether the id belongs to an array: `7[].server`."""
    return "[]" in job


def demand_none_ran(array: str, ran: int, found: int, *, may_have_run: bool) -> None:
    """Check an array after the deletion of its waiting jobs. Raises JobRunsError."""
    if ran:
        raise JobRunsError(f"{ran} of the {found} jobs that the server has of {array} run or have run")
    if not found and may_have_run:
        raise JobRunsError(f"{array} is gone, and its jobs may have run")


def submission_fault(found: Sequence[Values], user: str, hold: str) -> str:
    """Return the reason why a submitted job must not stay: it does not belong to ``user``, or lacks this
    ``hold``; empty if it is correct. ``found`` has the values of the job, or of each job of an array.
    """
    if not found:
        return "the server does not show the job that it took"
    return next((why for values in found if (why := _job_fault(values, user, hold))), "")


def _job_fault(values: Values, user: str, hold: str) -> str:
    owner = values.get("Job_Owner", "")
    if owner.partition("@")[0] != user:
        return f"the server made the job {owner}'s and not {user}'s"
    if hold not in values.get("Hold_Types", ""):
        return "the server did not keep the job's hold"
    return ""
