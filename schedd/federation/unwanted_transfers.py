"""Copies that a cluster has though the log wants none of them there: compared at every look.

A cluster may have told a wrong phase for a while, or the log may be older than the cluster. Such a copy is
asked back, unforced: one on hold or waiting goes, and one that runs goes on.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from schedd.federation.coallocation.coallocations import CoAllocations
from schedd.federation.routing.cluster_status import TransferStatus
from schedd.federation.routing.jobs import FederationJobs

__all__ = ["find_unwanted", "is_unwanted"]

_ON_HOLD: Final = ("submitting", "held", "releasing")
_AT_WORK: Final = (*_ON_HOLD, "released")
_DONE_ATTEMPT: Final = ("refused", "withdrawn", "ended")
_DONE_COPY: Final = ("withdrawn", "refused", "ended")


def find_unwanted(
    jobs: FederationJobs, groups: CoAllocations, name: str, rows: Mapping[str, TransferStatus]
) -> Iterator[str]:
    """Those of the transfers that are find_unwanted; ``name`` begins the names of the federation's own."""
    return (transfer for transfer, seen in rows.items() if is_unwanted(jobs, groups, name, transfer, seen))


def is_unwanted(
    jobs: FederationJobs, groups: CoAllocations, name: str, transfer: str, seen: TransferStatus
) -> bool:
    """Whether the cluster has this copy though the log says that nothing of it is left there.

    Of a job that the log does not know, a copy that was released is left alone: it may run.
    """
    whose, _, rest = transfer.partition(".")
    number, _, copy = rest.partition(".")
    if whose != name or seen.end or seen.phase not in _AT_WORK or not copy.isdecimal():
        return False
    at = int(copy) - 1
    job, group = jobs.by_id.get(number), groups.by_id.get(number)
    if job is not None and 0 <= at < len(job.attempts):
        return job.attempts[at].phase in _DONE_ATTEMPT
    if group is not None and 0 <= at < len(group.component_jobs):
        return group.component_jobs[at].phase in _DONE_COPY
    return seen.phase in _ON_HOLD
