"""Transfers that a cluster still has although the log has finished with them, and those that it lost.

Each poll compares the two. A cluster may have reported a wrong phase for a while, or the log may be older
than the cluster. The federation withdraws such a transfer without force: a held or waiting job is deleted, a
running job continues.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from schedd.federation.coallocation.coallocations import CoAllocations
from schedd.federation.routing.cluster_status import TransferStatus
from schedd.federation.routing.jobs import FederationJobs

_ON_HOLD: Final = ("submitting", "held", "releasing")
_AT_WORK: Final = (*_ON_HOLD, "released")
_DONE_ATTEMPT: Final = ("refused", "withdrawn", "ended")
_DONE_COPY: Final = ("withdrawn", "refused", "ended")
_PARTS: Final = (3, 4)  # of `fed.41.1`, and of a component's booking, `fed.42.r1.0`
_TAKEN: Final = ("held", "releasing", "released")  # phases of an attempt that the cluster has reported
_MAX_DIGITS: Final = 15  # of an item's number


def find_unwanted(
    jobs: FederationJobs, groups: CoAllocations, name: str, rows: Mapping[str, TransferStatus]
) -> Iterator[str]:
    """Yield the unwanted transfers. ``name`` is the prefix of this federation's own transfers."""
    return (transfer for transfer, seen in rows.items() if is_unwanted(jobs, groups, name, transfer, seen))


def find_lost(
    jobs: FederationJobs, name: str, cluster: str, rows: Mapping[str, TransferStatus]
) -> Iterator[tuple[str, int]]:
    """Yield job and number of each attempt that the cluster had, and which is not in all of its ``rows``."""
    for job, number in jobs.attempts_at.get(cluster, ()):
        if jobs[job].attempts[number - 1].phase in _TAKEN and f"{name}.{job}.{number}" not in rows:
            yield job, number


def highest_number(name: str, known: Iterable[str]) -> int:
    """Return the highest number in the names of this federation's own transfers and bookings; 0: none."""
    parts = (one.split(".") for one in known)
    numbers = (one[1] for one in parts if len(one) in _PARTS and one[0] == name and one[1].isdecimal())
    return max((int(one) for one in numbers if len(one) <= _MAX_DIGITS), default=0)


def is_unwanted(
    jobs: FederationJobs, groups: CoAllocations, name: str, transfer: str, seen: TransferStatus
) -> bool:
    """Return whether the cluster has a live transfer that the log does not want there.

    A released transfer of an unknown job is not unwanted, because the job may run.
    """
    whose, _, rest = transfer.partition(".")
    number, _, copy = rest.partition(".")
    if whose != name or seen.end or seen.phase not in _AT_WORK or not copy.isdecimal():
        return False
    at = int(copy) - 1
    job, group = jobs.by_id.get(number), groups.by_id.get(number)
    if job is not None and 0 <= at < len(job.attempts):
        return job.attempts[at].phase in _DONE_ATTEMPT
    if group is not None and 0 <= at < len(group.attempts):
        return group.attempts[at].phase in _DONE_COPY
    return seen.phase in _ON_HOLD
