"""A client of a federation: jobs handed to it, its clusters, and where a job would start first."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypedDict, cast
from urllib.parse import quote

from schedd.client.endpoint import Endpoint
from schedd.client.http import HttpConnection

__all__ = [
    "AttemptRow",
    "BagOfferRow",
    "BagRow",
    "ClusterRow",
    "FederatedBookingRow",
    "FederationClient",
    "JobRow",
    "WhatIfRow",
]


class AttemptRow(TypedDict):
    """A copy of a job at one cluster. Times are seconds since the epoch."""

    number: int
    cluster: str
    user: str
    phase: str
    since: int
    start: int | None
    end: int | None
    why: str
    server_job: str
    release_requested: bool
    text: str
    state: str
    planned_start: int | None
    planned_end: int | None
    promised_start: int | None


class TasksRow(TypedDict):
    """Number of tasks of an array by state. ``first_end`` and ``last_end``: when the first has ended, or ends
    as planned, and when the last of the ended ones ended.
    """

    tasks: int
    planned: int
    running: int
    ended: int
    failed: int
    deleted: int
    first_end: int | None
    last_end: int | None


class JobRow(TypedDict):
    """A job of the federation."""

    id: str
    owner: str
    name: str
    resources: dict[str, str]
    submitted: int
    cluster: str
    server_job: str
    over: Literal["", "ended", "deleted", "cancelled", "refused"]
    over_at: int | None
    exit_status: int | None
    cancelled: bool
    moves: int
    bag: str
    """The bag to which it belongs; empty: none."""
    booking: str
    """The booking in which it runs; empty: none."""
    tasks: str
    """Of an array, and of a bag's share, which is one: its indices, first and last; empty: it is none."""
    standing: TasksRow | None
    """For an array: its tasks by state at its cluster; null if unknown."""
    text: str
    attempts: list[AttemptRow]


class ClusterRow(TypedDict):
    """A cluster of the federation; undisclosed values are null.

    ``load`` (cpu-seconds) and ``count`` are of the federation's own jobs that wait there: by priority from 0
    on, those of this or a higher one.
    """

    name: str
    away: str
    since: int
    trouble: str
    disclosure: str
    cpus: int | None
    jobs: dict[str, int] | None
    ours: int
    running: int
    load: list[int]
    count: list[int]


class WhatIfRow(TypedDict):
    """What one cluster's plan says of a job; ``late_by``: by how many seconds it ends after its deadline,
    null without one, or without an end.
    """

    cluster: str
    start: int | None
    end: int | None
    cost: float | None
    why: str
    late_by: int | None


class OfferedRow(TypedDict):
    """A cluster's offer: this number of tasks would end by this time."""

    provider: str
    tasks: int
    end: int


class SplitRow(TypedDict):
    """How tasks are shared, by cluster; ``met``: all end by the deadline."""

    shares: dict[str, int]
    end: int
    met: bool


class BagOfferRow(TypedDict):
    """An offer for a bag of tasks, valid until it ``expires``."""

    id: str
    expires: int
    tasks: int
    deadline: int
    offers: list[OfferedRow]
    split: SplitRow | None
    plans: dict[str, int]
    why: dict[str, str]
    """By cluster: why it offers nothing."""


class ShareRow(TypedDict):
    """An array of a bag's tasks at one cluster."""

    job: str
    cluster: str
    server_job: str
    array: str
    tasks: int
    phase: str
    state: str
    planned_start: int | None
    published_end: int
    end: int | None
    first_end: int | None
    """When the first of its tasks ended, or ends as planned; null: that is not known, or not disclosed."""
    stretch_s: int | None
    waiting: int
    running: int
    ended: int
    failed: int
    deleted: int
    over: str
    text: str


class BagRow(TypedDict):
    """A bag of tasks. ``end``: expected or actual end of the last task; ``first_end``: of the first one
    known. ``stretch_s`` is the time between them; ``stretch``: its share of the response time.
    """

    id: str
    owner: str
    name: str
    resources: dict[str, str]
    submitted: int
    tasks: int
    deadline: int
    published_end: int
    end: int | None
    first_end: int | None
    stretch_s: int | None
    stretch: float | None
    deadline_kept: bool | None
    without_cluster: int
    waiting: int
    running: int
    ended: int
    failed: int
    deleted: int
    state: str
    over: Literal["", "ended", "cancelled", "incomplete"]
    over_at: int | None
    cancelled: bool
    text: str
    shares: list[ShareRow]


class BookingAttemptRow(TypedDict):
    """A booking at one cluster; ``name`` is its name there."""

    number: int
    cluster: str
    user: str
    name: str
    phase: str
    since: int
    ready: int
    deadline: int
    why: str
    text: str


class BookingMoveRow(TypedDict):
    """A move of the planned start; a start of null: there was none."""

    time: int
    before: int | None
    after: int


class BookingOptionRow(TypedDict):
    """A counter-offer of one cluster; ``stretch``: how far it is outside the window, in lengths."""

    option: int
    cluster: str
    start: int
    end: int
    stretch: float


class FederatedBookingRow(TypedDict):
    """A booking of the federation. Times are seconds since the epoch. ``away``: why its cluster does not
    answer.
    """

    id: str
    name: str
    owner: str
    state: str
    cluster: str
    away: str
    resources: dict[str, str]
    cpus: int | None
    duration: int
    ready: int
    deadline: int
    start: int | None
    end: int | None
    spare: int | None
    freezes: int | None
    clusters: list[str]
    submitted: int
    jobs: list[str]
    moves: list[BookingMoveRow]
    attempts: list[BookingAttemptRow]
    options: list[BookingOptionRow]
    cancelled: bool
    over: Literal["", "ended", "cancelled", "lost", "refused"]
    over_at: int | None
    text: str


class FederationClient:
    """A client for a federation. Every method raises ``Unreachable`` if no daemon answers and ``Refused`` for
    an error response.
    """

    def __init__(self, endpoint: Endpoint, *, timeout: float = 30.0) -> None:
        self._http = HttpConnection(endpoint, timeout)

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def clusters(self) -> list[ClusterRow]:
        """The clusters, and whether they answer."""
        return cast("list[ClusterRow]", self._http.request("GET", "/v1/federation/clusters")["clusters"])

    def report(self) -> dict[str, Any]:
        """Outcomes of jobs, co-allocations and bags."""
        return cast("dict[str, Any]", self._http.request("GET", "/v1/federation/report"))

    def balance(self, *, since: int | None = None, until: int | None = None) -> dict[str, Any]:
        """What each cluster was worth in ``[since, until)``, and its share of the work: the last day unless
        given.
        """
        query = {"since": since, "until": until}
        return cast("dict[str, Any]", self._http.request("GET", "/v1/federation/balance", query))

    def jobs(self, *, over: bool = True) -> list[JobRow]:
        """Jobs that the caller may see."""
        query = {"state": "all" if over else "open"}
        return cast("list[JobRow]", self._http.request("GET", "/v1/federation/jobs", query)["jobs"])

    def job(self, name: str) -> JobRow:
        """One job."""
        return cast("JobRow", self._http.request("GET", f"/v1/federation/jobs/{name}"))

    def submit(self, body: Mapping[str, Any]) -> JobRow:
        """Hand a job over: ``script``, ``request`` or ``resources``, and so on."""
        return cast("JobRow", self._http.request("POST", "/v1/federation/jobs", body=dict(body)))

    def cancel(self, name: str) -> JobRow:
        """Take a job back."""
        return cast("JobRow", self._http.request("DELETE", f"/v1/federation/jobs/{name}"))

    def coallocations(self, *, over: bool = True) -> list[dict[str, Any]]:
        """Groups that the caller may see."""
        query = {"state": "all" if over else "open"}
        return cast(
            "list[dict[str, Any]]",
            self._http.request("GET", "/v1/federation/coallocations", query)["coallocations"],
        )

    def coallocation(self, name: str) -> dict[str, Any]:
        """One of them."""
        return cast("dict[str, Any]", self._http.request("GET", f"/v1/federation/coallocations/{name}"))

    def submit_coallocation(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Hand a group over: ``parts``, and so on."""
        return cast(
            "dict[str, Any]", self._http.request("POST", "/v1/federation/coallocations", body=dict(body))
        )

    def cancel_coallocation(self, name: str) -> dict[str, Any]:
        """Take a group back."""
        return cast("dict[str, Any]", self._http.request("DELETE", f"/v1/federation/coallocations/{name}"))

    def offer_bag(self, body: Mapping[str, Any]) -> BagOfferRow:
        """What the clusters' plans offer for a bag: ``request``, ``tasks``, ``deadline`` and so on."""
        return cast("BagOfferRow", self._http.request("POST", "/v1/federation/bag-offers", body=dict(body)))

    def bags(self, *, over: bool = True) -> list[BagRow]:
        """Bags that the caller may see."""
        query = {"state": "all" if over else "open"}
        return cast("list[BagRow]", self._http.request("GET", "/v1/federation/bags", query)["bags"])

    def bag(self, name: str) -> BagRow:
        """One bag."""
        return cast("BagRow", self._http.request("GET", f"/v1/federation/bags/{name}"))

    def submit_bag(self, body: Mapping[str, Any]) -> BagRow:
        """Submit a bag: a ``script``, and an ``offer`` or the terms of the bag."""
        return cast("BagRow", self._http.request("POST", "/v1/federation/bags", body=dict(body)))

    def cancel_bag(self, name: str) -> BagRow:
        """Take back what waits of it."""
        return cast("BagRow", self._http.request("DELETE", f"/v1/federation/bags/{name}"))

    def bookings(self, *, over: bool = True) -> list[FederatedBookingRow]:
        """Bookings that the caller may see."""
        query = {"state": "all" if over else "open"}
        found = self._http.request("GET", "/v1/federation/bookings", query)
        return cast("list[FederatedBookingRow]", found["bookings"])

    def booking(self, name: str) -> FederatedBookingRow:
        """One booking."""
        return self._booking("GET", name, "")

    def book(self, name: str, what: Mapping[str, Any]) -> FederatedBookingRow:
        """Book cores: ``request`` or ``resources``, ``duration``, ``start`` or ``ready`` and ``deadline``,
        and so on. ``Refused`` of kind ``no-room`` has ``options``.
        """
        return self._booking("PUT", name, "", dict(what))

    def accept_option(self, name: str, option: int) -> FederatedBookingRow:
        """Accept a counter-offer of a refused booking."""
        return self._booking("POST", name, "/accept", {"option": option})

    def freeze_booking(self, name: str) -> FederatedBookingRow:
        """Let it stay where it is planned."""
        return self._booking("POST", name, "/freeze")

    def cancel_booking(self, name: str) -> FederatedBookingRow:
        """Give it back."""
        return self._booking("DELETE", name, "")

    def _booking(self, method: str, name: str, what: str, body: object = None) -> FederatedBookingRow:
        path = f"/v1/federation/bookings/{quote(name, safe='')}{what}"
        return cast("FederatedBookingRow", self._http.request(method, path, body=body))

    def what_if(
        self,
        request: str,
        clusters: Sequence[str] = (),
        array: str = "",
        deadline: int | None = None,
    ) -> list[WhatIfRow]:
        """Where it would start; the earliest end stands first. Of an ``array`` the last end counts."""
        body = {"request": request, "clusters": list(clusters), "array": array, "deadline": deadline}
        found = self._http.request("POST", "/v1/federation/what-if", body=body)
        return cast("list[WhatIfRow]", found["clusters"])
