"""What is done with bags, as events: taken, shared out, taken back. Each is kept as a whole or not at all."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from schedd.federation.bag_events import BagCancelled, BagFailed, BagSubmitted
from schedd.federation.bags.bag import Bag, Range, array_of, count, cut, missing
from schedd.federation.bags.told import BagAsked
from schedd.federation.events import Cancelled, Event, Submitted
from schedd.federation.roof import Roof

__all__ = ["BusyError", "cancel", "fail", "share_out", "submit"]

_SETTLING_S: Final = 30
"""For so long after a share was let go its cluster may not have planned it yet."""


class BusyError(Exception):
    """Offers are void: a share of another bag is on its way to that cluster, and not in its plan yet."""


def submit(
    roof: Roof,
    owner: str,
    submission: Mapping[str, Any],
    asked: BagAsked,
    shares: Mapping[str, int],
    ends: Mapping[str, int],
    key: str = "",
    *,
    alone: bool = False,
) -> Bag:
    """Takes a bag with its shares, by cluster how many tasks; ``ends``: when these were said to end. With a
    ``key`` that was used before it is that bag. ``alone``: not while another bag's share is on its way to
    one of the clusters. Raises BusyError and StoreError.
    """
    made: list[str] = []

    def make(now: int, number: int) -> Sequence[Event]:
        known = roof.bags.by_key.get((owner, key)) if key else None
        if known is not None:
            made.append(known)
            return []
        if alone:
            _demand_quiet(roof, shares, now)
        made.append(str(number))
        bag = BagSubmitted(
            job=str(number),
            time=now,
            owner=owner,
            submission=submission,
            tasks=asked.tasks,
            deadline=asked.deadline,
            told=max(ends.values()),
            clusters=asked.clusters,
            balance=asked.balance,
            key=key,
        )
        parts = cut([(0, asked.tasks)], shares)
        return [bag, *_shares(roof, bag.job, owner, submission, parts, ends, now, number + 1)]

    roof.take_bag(make)
    return roof.bags[made[0]]


def share_out(
    roof: Roof, name: str, tasks: Sequence[Range], shares: Mapping[str, int], ends: Mapping[str, int]
) -> None:
    """Gives tasks that have no share to other clusters; what has changed meanwhile is left for the next time.
    Raises StoreError.
    """

    def make(now: int, number: int) -> Sequence[Event]:
        bag = roof.bags[name]
        if bag.cancelled or bag.failed or missing(bag, roof.jobs) != tuple(tasks):
            return []
        return _shares(roof, name, bag.owner, bag.submission, cut(tasks, shares), ends, now, number)

    roof.take_bag(make)


def fail(roof: Roof, name: str, text: str) -> None:
    """Nobody takes what has no share. Raises StoreError."""

    def make(now: int, _: int) -> Sequence[Event]:
        bag = roof.bags[name]
        if bag.cancelled or bag.failed or not missing(bag, roof.jobs):
            return []
        left = count(missing(bag, roof.jobs))
        return [BagFailed(job=name, time=now, text=f"{left} tasks go nowhere: {text}")]

    roof.take_bag(make)


def cancel(roof: Roof, name: str, by: str) -> Bag:
    """Its owner does not want it any more: tasks that wait are taken back, those that run go on. Raises
    StoreError and KeyError.
    """

    def make(now: int, _: int) -> Sequence[Event]:
        bag = roof.bags[name]
        if bag.cancelled:
            return []
        jobs = (roof.jobs[one] for one in bag.shares)
        left = [one.id for one in jobs if not one.over and not one.cancelled]
        if not left and not missing(bag, roof.jobs):
            return []
        return [
            BagCancelled(job=name, time=now, by=by),
            *(Cancelled(job=one, time=now, by=by) for one in left),
        ]

    roof.take_bag(make)
    return roof.bags[name]


def _shares(
    roof: Roof,
    bag: str,
    owner: str,
    submission: Mapping[str, Any],
    parts: Iterable[tuple[str, Range]],
    ends: Mapping[str, int],
    now: int,
    number: int,
) -> list[Submitted]:
    """A job for each array; none has more tasks than the settings let one have."""
    most = roof.settings.bags.array
    found: list[Submitted] = []
    for cluster, (first, end) in parts:
        for begin in range(first, end, most):
            tasks = (begin, min(end, begin + most))
            own = {name: value for name, value in submission.items() if name != "users"}
            own |= {"array": array_of(tasks), "told": ends[cluster]}
            own["cpu_seconds"] = submission["cpu_seconds"] * (tasks[1] - tasks[0])
            found.append(
                Submitted(
                    job=str(number + len(found)),
                    time=now,
                    owner=owner,
                    submission=own,
                    clusters=(cluster,),
                    bag=bag,
                )
            )
    return found


def _demand_quiet(roof: Roof, clusters: Iterable[str], now: int) -> None:
    """Raises BusyError."""
    for cluster in clusters:
        for name, number in roof.jobs.at.get(cluster, ()):
            job = roof.jobs[name]
            attempt = job.attempts[number - 1]
            seen = roof.standing(job).get(number) if job.bag else None
            planned = seen is not None and seen.state not in ("", "waiting")
            young = attempt.phase != "out" or now - attempt.since < _SETTLING_S
            if job.bag and attempt.live and young and not planned:
                raise BusyError(
                    f"bag {job.bag} was given to {cluster} a moment ago, and is not in its plan yet"
                )
