"""Job priority: a sum of named, weighted terms, each pure and shown with the sum.

The terms of waiting, deadline, licences and short jobs follow the local scheduler of Pasquali, Baraglia,
Capannini, Ricci and Laforenza (multilevel.md §3: Aging, Deadline, Licences, Wait minimisation).
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from math import floor
from typing import Literal

from pydantic import Field

from schedd.policy.protocol import Applicant, Breakdown, JobOwner, Shares, Term
from schedd.wire.section import Name, Names, Section, Weight
from schedd.wire.times import Hours

_HOUR = 3600


class JobClass(Section):
    """A class of jobs, matched by its lists. If several classes match, the most points count."""

    points: Weight
    """Value of the term `class`."""
    users: Names = ()
    """Users: their jobs belong to the class. One match in these lists is sufficient."""
    groups: Names = ()
    """Groups: their jobs belong to the class."""
    accounts: Names = ()
    """Accounts (`qsub -A`): their jobs belong to the class."""
    projects: Names = ()
    """Projects (OpenPBS): their jobs belong to the class."""
    queues: Names = ()
    """Queues: their jobs belong to the class."""
    breaks_promises: bool = False
    """Jobs of this class may delay others beyond their promises; each broken promise is recorded and
    shown."""

    @cached_property
    def _members(self) -> tuple[frozenset[str], ...]:
        lists = (self.users, self.groups, self.accounts, self.projects, self.queues)
        return tuple(map(frozenset, lists))

    def takes(self, job: JobOwner) -> bool:
        """Return whether the job belongs to this class; one match is enough."""
        users, groups, accounts, projects, queues = self._members
        return (
            job.owner.partition("@")[0] in users
            or job.group in groups
            or job.account in accounts
            or job.project in projects
            or job.queue in queues
        )


class PrioritySettings(Section):
    """Weights of the terms of a job's priority, which is their sum; 0 disables the term."""

    queue: Weight = 1.0
    """Multiplies the priority of the job's queue."""
    class_: Weight = Field(default=1.0, alias="class")
    """Multiplies the points of the job's class."""
    qos: Weight = 1.0
    """Multiplies the priority of the job's QOS (`[qos.levels.NAME]`)."""
    wish: Weight = 0.0
    """Multiplies the owner's own `qsub -p`, -1024 to 1023."""
    waiting: Weight = 0.0
    """Points for each hour since the job became eligible."""
    size: Weight = 0.0
    """Points for each requested cpu; negative: small jobs go first."""
    deadline: Weight = 0.0
    """Multiplies the pressure of the job's deadline, `deadline_least` to `deadline_most`."""
    fair_share: Weight = 0.0
    """Multiplies the fair-share factor: 1 without use, 0.5 at the target, going to 0."""
    licences: Weight = 0.0
    """Multiplies the pressure of the requested licences: requested copies over existing copies, more if there
    are too few."""
    short: Weight = 0.0
    """Multiplies the shortest waiting walltime divided by the job's own."""
    waiting_most: Hours = Field(default=0.0, ge=0, le=1e6, allow_inf_nan=False)
    """Waiting beyond this earns no more points; 0: no bound."""
    deadline_lead: float = Field(default=2.0, gt=0, le=1000, allow_inf_nan=False)
    """A job's deadline begins to press this many walltimes before its latest start."""
    deadline_least: Weight = 0.1
    """Pressure of a distant deadline."""
    deadline_most: Weight = 20.0
    """Pressure at the latest start that meets the deadline."""
    deadline_lost: Literal["demote", "keep", "hold"] = "demote"
    """A job that can no longer meet its deadline falls back to `deadline_least` (`demote`), keeps
    `deadline_most` (`keep`), or is not started until its deadline or its walltime is altered (`hold`)."""
    mode: Literal["full", "light"] = "full"
    """`full`: priorities are calculated again every `priority_every`. `light`: a job keeps the priority of
    its submission, until it is altered or the policy changes; this costs less, and its
    place does not change as it waits."""
    queues: dict[Name, Weight] = Field(default_factory=dict)
    """Priorities of queues instead of the server's: `{ urgent = 500 }`; `"*"` is for all others."""


class SiteWeights(PrioritySettings):
    """The weights of the site's priorities, with the classes of jobs."""

    classes: Mapping[str, JobClass] = {}

    @property
    def active(self) -> bool:
        """Whether priorities may differ though the server's queues are all equal."""
        terms = (
            self.wish,
            self.waiting,
            self.size,
            self.deadline,
            self.fair_share,
            self.licences,
            self.short,
        )
        return any(terms) or bool(self.queue and self.queues) or bool(self.class_ and self.classes)

    @cached_property
    def weighted_terms(self) -> "tuple[tuple[str, float, TermFinder], ...]":
        """The terms with a weight: name, weight, and the function that finds the value."""
        found = [
            (name, self.class_ if name == "class" else getattr(self, name), find)
            for name, find in TERMS.items()
        ]
        return tuple(one for one in found if one[1])

    def breaks_promises(self, job: Applicant) -> bool:
        """Whether the job may displace others beyond their promises."""
        return any(one.breaks_promises and one.takes(job) for one in self.classes.values())


def latest_start(deadline: int, walltime: int) -> int:
    """When a job must start at the latest to end by ``deadline``; all in seconds."""
    return deadline - walltime


def deadline_value(
    now: int,
    deadline: int,
    walltime: int,
    *,
    lead: float = 2.0,
    least: float = 0.1,
    most: float = 20.0,
    keep_lost: bool = False,
) -> float:
    """Return the pressure of a deadline (multilevel.md §3.2): ``least`` far before it, rising linearly to
    ``most`` at the latest start that can meet it, and ``least`` after that, so that lost deadlines displace
    no other job.
    """
    laxity = latest_start(deadline, walltime) - now
    if laxity < 0:
        return most if keep_lost else least
    ahead = lead * walltime
    if laxity >= ahead:
        return least
    return most - (most - least) * laxity / ahead


def licence_value(licences: tuple[tuple[str, int], ...], shares: Shares) -> float:
    """Return the pressure of the requested licences (multilevel.md §3.3).

    A licence in excess demand outweighs all others together: its jobs end sooner, which relieves the
    shortage.
    """
    pressures = [shares.pressure(name) for name, _ in licences]
    relaxed = sum(pressure for pressure in pressures if pressure <= 1)
    critical = sum(pressure for pressure in pressures if pressure > 1)
    return relaxed + max(1, shares.relaxed) * critical


def short_value(walltime: int, shortest: int) -> float:
    """1 for the shortest waiting job, less for longer ones in proportion (multilevel.md §3.4)."""
    return shortest / walltime if walltime > 0 else 0.0


# ---- the terms ----------------------------------------------------------------------------------


def _queue(job: Applicant, _now: int, _shares: Shares, site: SiteWeights) -> float:
    return site.queues.get(job.queue, site.queues.get("*", job.queue_priority))


def _class(job: Applicant, _now: int, _shares: Shares, site: SiteWeights) -> float:
    return max((one.points for one in site.classes.values() if one.takes(job)), default=0.0)


def best_class(job: Applicant, site: SiteWeights) -> str:
    """Return the name of the job's class with the most points; empty: it has none."""
    points = {name: one.points for name, one in site.classes.items() if one.takes(job)}
    return max(points, key=points.__getitem__, default="")


def _qos(job: Applicant, _now: int, _shares: Shares, _site: SiteWeights) -> float:
    return job.label_points


def _owner_priority(job: Applicant, _now: int, _shares: Shares, _site: SiteWeights) -> float:
    return job.priority


def _waiting(job: Applicant, now: int, _shares: Shares, site: SiteWeights) -> float:
    hours = max(0, now - job.eligible) / _HOUR if job.eligible is not None else 0.0
    return min(hours, site.waiting_most) if site.waiting_most else hours


def _size(job: Applicant, _now: int, _shares: Shares, _site: SiteWeights) -> float:
    return job.cpus


def _deadline(job: Applicant, now: int, _shares: Shares, site: SiteWeights) -> float:
    if job.deadline is None:
        return 0.0
    return deadline_value(
        now,
        job.deadline,
        job.walltime,
        lead=site.deadline_lead,
        least=site.deadline_least,
        most=site.deadline_most,
        keep_lost=site.deadline_lost == "keep",
    )


def _fair_share(job: Applicant, _now: int, shares: Shares, _site: SiteWeights) -> float:
    return 1.0 - shares.usage(job)


def _licences(job: Applicant, _now: int, shares: Shares, _site: SiteWeights) -> float:
    return licence_value(job.licences, shares)


def _short(job: Applicant, _now: int, shares: Shares, _site: SiteWeights) -> float:
    return short_value(job.walltime, shares.shortest)


TermFinder = Callable[[Applicant, int, Shares, "SiteWeights"], float]
TERMS: Mapping[str, TermFinder] = {
    "queue": _queue,
    "class": _class,
    "qos": _qos,
    "wish": _owner_priority,
    "waiting": _waiting,
    "size": _size,
    "deadline": _deadline,
    "fair_share": _fair_share,
    "licences": _licences,
    "short": _short,
}
"""By name: what each term finds; its weight is the field of the same name in ``SiteWeights``."""


def total_priority(job: Applicant, now: int, shares: Shares, weights: SiteWeights) -> float:
    """Return the total of ``priority``, without its terms."""
    if weights.mode == "light":
        now = job.submitted
    total = 0.0
    for _, weight, find in weights.weighted_terms:
        total += weight * find(job, now, shares, weights)
    return float(floor(total + 0.5))


def priority(job: Applicant, now: int, shares: Shares, weights: SiteWeights) -> Breakdown:
    """Return the sum of all weighted terms, rounded to whole points (halves up), and the terms.

    In the light mode, the priority at the job's submission. Pure: equal arguments give an equal breakdown.
    """
    if weights.mode == "light":
        now = job.submitted
    terms = []
    for name, weight, find in weights.weighted_terms:
        value = find(job, now, shares, weights)
        if name == "qos" and not value:
            continue  # most sites have none
        terms.append(Term(name, weight, value, weight * value))
    return Breakdown(total_priority(job, now, shares, weights), tuple(terms))
