"""What a server of either family made of a job that was handed over to it."""

from server_adapter.bridge.facts import Values

__all__ = ["what_is_wrong"]


def what_is_wrong(values: Values | None, user: str, hold: str) -> str:
    """Why a job that was submitted for ``user`` must not stay: it is not the user's, or not on this ``hold``.
    Empty where all is well; ``values`` are None where the server does not show the job.
    """
    if values is None:
        return "the server does not show the job that it took"
    owner = values.get("Job_Owner", "")
    if owner.partition("@")[0] != user:
        return f"the server made the job {owner}'s and not {user}'s"
    if hold not in values.get("Hold_Types", ""):
        return "the server did not keep the job's hold"
    return ""
