"""Reasons why a member cluster cannot be used, for all users: without names of hosts."""

from schedd.client import ClientError, Refused, Unreachable
from schedd.client.answers import ClusterView
from schedd.start_sentence import format_utc


def describe_failure(error: ClientError) -> str:
    """Return why a cluster gave no answer."""
    if isinstance(error, Unreachable):
        return error.reason
    if isinstance(error, Refused) and error.kind == "not-ready":
        return error.detail.partition(": ")[
            0
        ]  # details, such as errors of its database, are on the cluster's own pages
    if isinstance(error, Refused):
        return f"it refuses the federation: {error}"
    return str(error)


def describe_unusable(view: ClusterView) -> str:
    """Return why a cluster that answers takes no jobs now; empty if it takes some."""
    if view.stale:
        starts = view.job_starts
        known = starts.since is not None and " since " not in starts.words
        since = f" since {format_utc(starts.since)}" if known and starts.since is not None else ""
        return f"its plan may be out of date; job starts: {starts.words}{since}"
    if not view.nodes:
        return "its adapter has not read the server yet"
    if view.mode != "scheduler":
        return f"its schedd starts no jobs: it is in {view.mode} mode"
    return ""
