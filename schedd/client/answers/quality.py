"""Accuracy of start estimates; users, priorities, fair shares, licences.

Written by ``make docs`` from the API's description, which says what each field means.
"""

from typing import Literal, TypedDict

__all__ = [
    "AccuracyFigures",
    "AccuracyView",
    "ClusterReport",
    "ClusterReports",
    "FairShareEntry",
    "FairShareHistory",
    "FairShareView",
    "FormulaValue",
    "HorizonAccuracy",
    "LicenceReport",
    "LicenceUse",
    "LicencesView",
    "PriorityView",
    "QueueReport",
    "ShareCourseView",
    "StartErrorView",
    "Term",
    "UserSummary",
    "UsersView",
]


class StartErrorView(TypedDict):
    """Errors of start estimates: actual minus estimated, in seconds; positive is later than estimated."""

    lead: int
    count: int
    mean: float
    median_absolute: float
    p90_absolute: float


class AccuracyFigures(TypedDict):
    """Accuracy of start estimates. Times in seconds, shares in 0..1; None: no data."""

    count: int
    p90_coverage: float | None
    p50_coverage: float | None
    median_error: float | None
    plan_median_error: float | None
    error_ratio: float | None
    pinball_50: float | None
    pinball_90: float | None
    sharpness: float | None


class HorizonAccuracy(TypedDict):
    """How right expected starts of one horizon were."""

    kind: Literal["submission", "waiting", "hour"]
    lead: int | None
    figures: AccuracyFigures


class AccuracyView(TypedDict):
    """Accuracy of start estimates."""

    kept: bool
    overall: StartErrorView | None
    by_lead: list[StartErrorView]
    expected: list[HorizonAccuracy]
    breaches: int | None
    planned_since: int | None
    expected_since: int | None


class UserSummary(TypedDict):
    """Job counts of one user."""

    user: str
    running: int
    planned: int
    without_start: int
    cpus: int
    cpus_planned: int
    cpu_seconds_planned: int
    next_start: int | None
    last_end: int | None
    longest_wait: int


class UsersView(TypedDict):
    """Each user's jobs, counted."""

    as_of: int
    generation: int
    stale: str
    users: list[UserSummary]


class Term(TypedDict):
    """One term of a sum: ``points`` after weighting, ``value`` before."""

    name: str
    weight: float
    value: float
    points: float


class FormulaValue(TypedDict):
    """A name in a priority formula, with its value for a job."""

    name: str
    value: float | str


class PriorityView(TypedDict):
    """A job's priority now."""

    as_of: int
    generation: int
    stale: str
    job: str
    total: float
    rank: float
    terms: list[Term]
    formula: str
    formula_source: str
    values: list[FormulaValue]
    threshold: float | None
    failing: str
    breaks_promises: bool


class FairShareEntry(TypedDict):
    """One place of the fair-share tree."""

    path: str
    user: str
    share: float
    target: float
    used: float
    usage: float
    effective_usage: float
    factor: float
    waited: float


class FairShareView(TypedDict):
    """Target and received shares of the site's tree."""

    as_of: int
    generation: int
    stale: str
    levels: list[str]
    places: list[FairShareEntry]


class ShareCourseView(TypedDict):
    """Target and received share of one place over time."""

    path: str
    user: str
    target: list[float | None]
    received: list[float | None]


class FairShareHistory(TypedDict):
    """Fair shares over time. One sample an hour is kept, of the 300 largest places."""

    times: list[int]
    places: list[ShareCourseView]


class LicenceUse(TypedDict):
    """A resource of the whole cluster, and how far it is in use."""

    name: str
    copies: int
    held: int
    wanted: int
    counted: int | None


class LicencesView(TypedDict):
    """Licences and other resources of the whole cluster."""

    as_of: int
    generation: int
    stale: str
    licences: list[LicenceUse]


class LicenceReport(TypedDict):
    """One licence of a cluster."""

    name: str
    copies: int
    used: float
    share: float | None


class QueueReport(TypedDict):
    """One queue of a cluster."""

    queue: str
    ended: int
    with_deadline: int
    late: int
    mean_wait: float | None
    longest_wait: int | None
    waiting: int
    longest_waiting: int


class ClusterReport(TypedDict):
    """One cluster over the period."""

    cluster: str
    kept: bool
    cpus: float
    cpus_used: float
    processors: float | None
    work: float
    share: float | None
    optimal: float | None
    ended: int
    with_deadline: int
    late: int
    slowdown: float | None
    licences: list[LicenceReport]
    queues: list[QueueReport]


class ClusterReports(TypedDict):
    """Clusters over a period."""

    since: int
    until: int
    clusters: list[ClusterReport]
