"""Bags of tasks over several clusters in simulated time: offers of the clusters' plans, composed as the
federation composes them; after Netto, *Adaptive co-allocation of distributed resources* (2009), 6 and 7.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import merge
from itertools import islice
from typing import Any, Final, Literal

from typing_extensions import override

from research.federations.field import ClusterSpec, Field, FieldJob, FieldResult
from schedd.federation.bags.offers import ClusterOffer, SharingRule, split_tasks
from schedd.policy.slack import NONE, Slack
from schedd.replay.machine_state import ReplayDefectError
from schedd.wire import JobFacts

Sharing = Literal["none", "offers", "power", "load", "free slots"]
"""The federation's balances; with ``free slots`` all that a plan has room for is known, and the earliest of
all clusters' places are taken (the thesis' FreeTimeSlots).
"""
_LATE: Final = {"late_jobs": 1.0, "tardiness": 0.1}
"""Measures for a cluster's choice whether a job goes before others with later deadlines."""
OFFER_PERCENTAGES: Final = (10, 25, 50, 75, 100)
"""Percentages of a bag in the clusters' offers, as in the thesis."""


class _Bags(Field):
    """Jobs of one array are a bag: it is shared out. Other jobs stay at home."""

    def __init__(
        self,
        clusters: Sequence[ClusterSpec],
        jobs: Sequence[FieldJob],
        sharing: Sharing,
        site: Mapping[str, Any],
        *,
        known: bool,
        edf: bool,
    ) -> None:
        planning = {**site, "placement": "best_gap_edf", "criteria": _LATE} if edf else site
        # With promises of each planned start nothing could be displaced: the accepted deadlines bind instead.
        super().__init__(
            clusters, jobs, "home", "conservative", planning, Slack.parse("off") if edf else NONE
        )
        self._edf = edf
        self._sharing = sharing
        self._known = known

    @override
    def _facts(self, number: int, t: int) -> JobFacts:
        facts, job = super()._facts(number, t), self._jobs[number]
        # Bags by free slots do not disclose their deadline to the cluster.
        told = self._edf and not (job.array and self._sharing == "free slots")
        if told and job.deadline is not None:
            resources = {**facts.resources, "deadline": str(job.deadline + self._offset)}
            facts = replace(facts, resources=resources)
        return facts if self._known else replace(facts, array="")

    @override
    def share(self, numbers: range, t: int) -> Sequence[str]:
        job, tasks = self._jobs[numbers[0]], len(numbers)
        if not job.array:
            return super().share(numbers, t)
        facts = self._facts(numbers[0], t)
        if self._sharing == "free slots":
            known = (
                [(one.end, name) for one in self._places[name].many(facts, range(1, tasks + 1), t)]
                for name in job.clusters
            )
            shared = [name for _, name in islice(merge(*known), tasks)]
        else:
            shared = self._composed(job, tasks, facts, t)
        if len(shared) < tasks:
            raise ReplayDefectError(f"bag {job.array} has no place")
        return shared

    def _composed(self, job: FieldJob, tasks: int, facts: JobFacts, t: int) -> list[str]:
        sizes = sorted({max(1, tasks * part // 100) for part in OFFER_PERCENTAGES})
        places = {name: self._places[name] for name in job.clusters}
        offers = [
            ClusterOffer(name, one.tasks, one.end)
            for name, place in places.items()
            for one in place.many(facts, sizes, t)
        ]
        power = {name: float(place.spec.cpus) for name, place in places.items()}
        load = {name: float(place.backlog.count[0]) for name, place in places.items()}
        # Without a deadline it is to end as early as can be.
        deadline = t if job.deadline is None else job.deadline + self._offset
        split = split_tasks(offers, tasks, deadline, SharingRule(self._sharing), power, load)
        shares = split.shares if split is not None else {}
        return [name for name, share in shares.items() for _ in range(share)]


def simulate_bags(
    clusters: Sequence[ClusterSpec],
    jobs: Sequence[FieldJob],
    sharing: Sharing,
    site: Mapping[str, Any] | None = None,
    *,
    known: bool = True,
    edf: bool = False,
) -> FieldResult:
    """Divide bags among the clusters as they come, and run everything. ``site`` is the policy of every
    cluster; where ``known``, clusters know the bag of each task. With ``edf`` clusters accept or refuse
    deadlines, and place jobs before jobs with later deadlines; bags by free slots have none there. Raises
    Defect.
    """
    return _Bags(clusters, jobs, sharing, site or {}, known=known, edf=edf).run()
