"""What a client asks: one method for each question."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, cast

from schedd.client.answers import (
    AccountReport,
    AccountsView,
    AccuracyView,
    AlertsView,
    AlertView,
    AlternativesView,
    ArrayView,
    Bar,
    BookingsView,
    BookingView,
    CapacityStep,
    ClusterReports,
    ClustersView,
    ClusterView,
    EvaluationSample,
    EvaluationView,
    Explanation,
    FairShareHistory,
    FairShareView,
    Gap,
    GapsView,
    HoldsView,
    HoldView,
    JobColumns,
    JobCostView,
    JobPage,
    JobView,
    LedgerView,
    LicencesView,
    LicenceUse,
    MeView,
    NodePage,
    NodeView,
    ObjectivesView,
    PartitionsView,
    PartitionView,
    PlanPage,
    PlanUpdate,
    PolicyView,
    PortalJobs,
    PortalJobView,
    PowerView,
    PriorityView,
    ReservationsView,
    ReservationView,
    RunTimeView,
    SearchesView,
    SearchView,
    StartHistory,
    TighterWalltime,
    TighterWalltimeAnswer,
    TighterWalltimesView,
    TighterWalltimeView,
    TransferResult,
    TransfersView,
    TransferView,
    UserSummary,
    UsersView,
    WhatIfResult,
)
from schedd.client.endpoint import Endpoint, find_endpoint
from schedd.client.errors import ClientError, Unreachable
from schedd.client.http import HttpConnection, Query
from schedd.client.http_stream import quote_segment

_PAGE = 10_000
_SEARCHES = 100
Resources = Mapping[str, str]
State = Literal["running", "starting", "planned", "waiting", "never"]


class ReadClient:
    """All that asks and changes nothing."""

    def __init__(
        self, endpoint: Endpoint, *, timeout: float = 30.0, connection: HttpConnection | None = None
    ) -> None:
        """Connect to a daemon with this timeout, or over a given ``connection``. Raises ConfigError."""
        self._http = connection or HttpConnection(endpoint, timeout)
        self._cluster = endpoint.cluster

    @classmethod
    def from_environment(cls, *, timeout: float = 30.0) -> Self:
        """With the endpoint that environment and files name: see ``schedd.client.endpoint``."""
        return cls(find_endpoint(), timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def set_timeout(self, seconds: float) -> None:
        """Wait this long for the data of each later response."""
        self._http.set_timeout(seconds)

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()

    # ---- clusters --------------------------------------------------------------------------------

    def version(self) -> str:
        """Of the daemon's program; needs no token."""
        return str(self._http.request("GET", "/healthz")["version"])

    def clusters(self) -> Sequence[ClusterView]:
        """All clusters of the daemon, and how each is doing."""
        found: ClustersView = self._http.request("GET", "/v1/clusters")
        return found.clusters

    def cluster(self) -> ClusterView:
        """The cluster that this client asks about. Raises ClientError when it is not said which."""
        if self._cluster:
            return cast("ClusterView", self._get(""))
        found = self.clusters()
        if len(found) != 1:
            names = ", ".join(one.name for one in found)
            raise ClientError(
                f"which cluster? There is {names}; set SCHEDD_CLUSTER, or cluster in client.toml"
            )
        self._cluster = found[0].name
        return found[0]

    def _path(self, rest: str) -> str:
        if not self._cluster:
            self.cluster()
        return f"/v1/clusters/{quote_segment(self._cluster)}{rest}"

    def _get(self, path: str, query: Query | None = None) -> Any:
        return self._http.request("GET", self._path(path), query)

    def _pages(self, path: str, query: Query) -> Iterator[Any]:
        cursor: str | None = None
        while True:
            page = self._get(path, {"limit": _PAGE, **query, "cursor": cursor})
            yield page
            cursor = page["next"]
            if cursor is None:
                return

    # ---- all clusters ----------------------------------------------------------------------------

    def me(self) -> MeView:
        """The caller: its name, role, clusters, counts of own jobs, and the next likely start."""
        return cast("MeView", self._http.request("GET", "/v1/me"))

    def my_tighter_walltimes(self) -> Sequence[TighterWalltimeView]:
        """The gains of tighter walltimes for the caller's latest waiting jobs, with the risk."""
        found = cast("TighterWalltimesView", self._http.request("GET", "/v1/me/walltimes"))
        return found.walltimes

    def all_jobs(
        self,
        *,
        user: str | None = None,
        cluster: str | None = None,
        state: State | None = None,
        moves: int = 1,
    ) -> Iterator[PortalJobView]:
        """Jobs of all clusters by cluster and submission, page by page, each with its latest ``moves``.
        ``user``: only of this user; ``me``: only the caller's own.
        """
        query: Query = {"user": user, "cluster": cluster, "state": state, "moves": moves, "limit": 1_000}
        cursor: str | None = None
        while True:
            page: PortalJobs = self._http.request("GET", "/v1/jobs", {**query, "cursor": cursor})
            yield from page.jobs
            cursor = page.next
            if cursor is None:
                return

    def my_jobs(self, *, moves: int = 1) -> Iterator[PortalJobView]:
        """The caller's own jobs on all clusters; an iterator, to be read once."""
        return self.all_jobs(user="me", moves=moves)

    # ---- jobs ------------------------------------------------------------------------------------

    def job(self, job_id: str) -> JobView:
        """One job; `123` is enough where no other job has this number."""
        return cast("JobView", self._get(f"/jobs/{quote_segment(job_id)}"))

    def explain(self, job_id: str, *, details: bool = False) -> Explanation:
        """Why a job does not start sooner; with ``details`` also the job and its moves in the same plan."""
        query = {"details": "true"} if details else None
        return cast("Explanation", self._get(f"/jobs/{quote_segment(job_id)}/explain", query))

    def explained_job(self, job_id: str) -> tuple[JobView, Explanation]:
        """A job and why it does not start sooner, both in the same plan."""
        found = self.explain(job_id, details=True)
        if found.view is None:
            raise Unreachable("the daemon is older than this program: it gives no details of a job")
        return found.view, found

    def history(self, job_id: str, *, limit: int = 100) -> StartHistory:
        """How a job's planned start moved, the newest change first."""
        return cast("StartHistory", self._get(f"/jobs/{quote_segment(job_id)}/history", {"limit": limit}))

    def jobs(
        self,
        *,
        state: State | None = None,
        user: str | None = None,
        queue: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Iterator[JobView]:
        """All jobs by start, page by page; with ``fields``, only these of each."""
        only = ",".join(fields) if fields is not None else None
        page: JobPage
        for page in self._pages("/jobs", {"state": state, "user": user, "queue": queue, "fields": only}):
            yield from page.jobs

    def job_columns(
        self,
        fields: Sequence[str],
        *,
        state: State | None = None,
        user: str | None = None,
        queue: str | None = None,
    ) -> dict[str, list[Any]]:
        """The same jobs as columns: by field, the values in order. Quicker where there are thousands."""
        query = {"state": state, "user": user, "queue": queue, "fields": ",".join(fields), "form": "columns"}
        found: dict[str, list[Any]] = {field: [] for field in fields}
        page: JobColumns
        for page in self._pages("/jobs", query):
            for field, values in page.jobs.items():
                found[field] += values
        return found

    def users(self) -> Sequence[UserSummary]:
        """Number of jobs by user; only the caller's if no other jobs are visible."""
        found: UsersView = self._get("/users")
        return found.users

    def cost(self, job_id: str) -> JobCostView:
        """What a job costs and draws as it runs or is planned."""
        return cast("JobCostView", self._get(f"/jobs/{quote_segment(job_id)}/cost"))

    # ---- priorities ------------------------------------------------------------------------------

    def priority(self, job_id: str) -> PriorityView:
        """A job's priority now, term by term."""
        return cast("PriorityView", self._get(f"/jobs/{quote_segment(job_id)}/priority"))

    def fair_share(self) -> FairShareView:
        """Target and received shares of the site's tree."""
        return cast("FairShareView", self._get("/fair-share"))

    def fair_share_history(
        self, *, since: int, until: int | None = None, path: str | None = None
    ) -> FairShareHistory:
        """Target and received shares in ``[since, until)``, of all places or of one."""
        query: Query = {"since": since, "until": until, "path": path}
        return cast("FairShareHistory", self._get("/fair-share/history", query))

    def licences(self) -> Sequence[LicenceUse]:
        """Resources of the whole cluster by name, and how far each is in use."""
        found: LicencesView = self._get("/licences")
        return found.licences

    # ---- the plan --------------------------------------------------------------------------------

    def nodes(self, *, state: Literal["up", "drain", "down"] | None = None) -> Iterator[NodeView]:
        """All nodes by name, or only those in this state."""
        page: NodePage
        for page in self._pages("/nodes", {"state": state}):
            yield from page.nodes

    def bars(self, *, begin: int | None = None, end: int | None = None) -> Iterator[Bar]:
        """What runs or is planned at any time in ``[begin, end)``, by start."""
        page: PlanPage
        for page in self._pages("/plan", {"begin": begin, "end": end}):
            yield from page.jobs

    def gaps(
        self, *, begin: int | None = None, end: int | None = None, cpus: int = 1, from_begin: bool = False
    ) -> Iterator[Gap]:
        """Gaps in ``[begin, end)`` by node, with a minimum number of cpus. ``from_begin``: only gaps that are
        free from ``begin`` on without a break.
        """
        only = "true" if from_begin else None
        page: GapsView
        for page in self._pages("/gaps", {"begin": begin, "end": end, "cpus": cpus, "from_begin": only}):
            yield from page.gaps

    def free_capacity(self, *, begin: int | None = None, end: int | None = None) -> Sequence[CapacityStep]:
        """Free capacity of all usable nodes together over ``[begin, end)``, step by step."""
        found: GapsView = self._get("/gaps", {"begin": begin, "end": end, "limit": 1})
        return found.totals

    def reservations(self) -> Sequence[ReservationView]:
        """All that are in force or to come."""
        found: ReservationsView = self._get("/reservations")
        return found.reservations

    def bookings(self) -> Sequence[BookingView]:
        """The caller's bookings, or all for callers that see all jobs, by start."""
        found: BookingsView = self._get("/bookings")
        return found.bookings

    def holds(self) -> Sequence[HoldView]:
        """All held nodes and queues."""
        found: HoldsView = self._get("/holds")
        return found.holds

    def partitions(self) -> Sequence[PartitionView]:
        """Partitions with their free capacity and jobs."""
        found: PartitionsView = self._get("/partitions")
        return found.partitions

    def power(self) -> PowerView:
        """Nodes that are switched off or on their way, and what that saves."""
        return cast("PowerView", self._get("/power"))

    def accounts(self) -> AccountsView:
        """Balances of the accounts that the caller may use or see."""
        return cast("AccountsView", self._get("/accounts"))

    def ledger(
        self,
        *,
        account: str = "",
        user: str = "",
        since: int | None = None,
        until: int | None = None,
        before: int | None = None,
        limit: int = 200,
    ) -> LedgerView:
        """What changed on accounts, newest first; in ``[since, until)``, with numbers below ``before``."""
        query = {"account": account or None, "user": user or None, "since": since, "until": until}
        return cast("LedgerView", self._get("/accounts/ledger", {**query, "before": before, "limit": limit}))

    def account_report(
        self,
        *,
        by: str = "month,account,user",
        account: str = "",
        user: str = "",
        since: int | None = None,
        until: int | None = None,
    ) -> AccountReport:
        """Charges in ``[since, until)``, summed ``by`` some of month, account and user."""
        query = {"account": account or None, "user": user or None, "since": since, "until": until}
        return cast("AccountReport", self._get("/accounts/report", {**query, "by": by}))

    def policy(self) -> PolicyView:
        """The site's policy in force."""
        return cast("PolicyView", self._get("/policy"))

    def alerts(self) -> Sequence[AlertView]:
        """Open alerts, oldest first."""
        found: AlertsView = self._get("/alerts")
        return found.alerts

    def follow(
        self, *, user: str | None = None, job: str | None = None, last: str = ""
    ) -> Generator[tuple[str, Literal["reset", "changes"], PlanUpdate], None, None]:
        """The plan as it changes, as (id, kind, news), until the daemon ends; use a client of its own.

        ``last`` is the id of the last event of an earlier connection. Set a timeout above 15 s: while nothing
        changes, that often a sign of life comes.
        """
        events = self._http.events(self._path("/stream"), {"user": user, "job": job}, last)
        return cast("Generator[tuple[str, Literal['reset', 'changes'], PlanUpdate], None, None]", events)

    # ---- questions -------------------------------------------------------------------------------

    def job_transfers(self, since: int = 0, *, after: int | None = None) -> Sequence[TransferView]:
        """Transfers, except transfers that ended before ``since``; with ``after``, only transfers that may
        have changed after this generation, which was read at ``since``.
        """
        found: TransfersView = self._get("/transfers", {"since": since, "after": after})
        return found.transfers

    def job_transfer(self, name: str) -> TransferView:
        """One transfer."""
        found: TransferResult = self._get(f"/transfers/{quote_segment(name)}")
        return found.transfer

    def what_if(
        self,
        request: str | None = None,
        *,
        resources: Resources | None = None,
        job: str | None = None,
        queue: str = "",
        owner: str = "",
        not_before: int | None = None,
        start_by: int | None = None,
        array: str = "",
        depend: str = "",
        group: str = "",
        account: str = "",
        project: str = "",
        extensions: str = "",
        bookings: Sequence[str] = (),
        for_booking: bool = False,
        variants: Sequence[str | Resources] = (),
        windows: int = 0,
        changes: bool = False,
        sooner: bool = False,
        cheapest_by: int | None = None,
        tasks: Sequence[int] = (),
    ) -> WhatIfResult:
        """When a job would start: one of ``request`` (as `qsub -l` takes it), ``resources`` and ``job``.

        ``array``, ``depend``, ``group``, ``account``, ``project`` and ``extensions`` are as for `qsub -t`,
        `-W depend=`, `-W group_list=`, `-A`, `-P` and `-W x=`. ``changes`` are the smallest ones
        for a start at once, or by ``start_by``; with ``sooner`` there are ``sooner_changes`` for a start
        before the planned one. With ``cheapest_by`` also where it costs least and ends by that second, with
        ``tasks`` when this number of such jobs would have ended. The cores of the caller's ``bookings`` count
        as free; ``for_booking``: it is about cores to book.
        """
        question = {
            "request": request,
            "resources": dict(resources) if resources is not None else None,
            "job": job,
            "queue": queue,
            "owner": owner,
            "not_before": not_before,
            "start_by": start_by,
            "array": array or None,
            "depend": depend or None,
            "group": group or None,
            "account": account or None,
            "project": project or None,
            "extensions": extensions or None,
            "bookings": list(bookings) or None,
            "for_booking": for_booking or None,
            "variants": [
                {"request": one} if isinstance(one, str) else {"resources": dict(one)} for one in variants
            ],
            "windows": windows,
            "changes": changes,
            "sooner": sooner,
            "cheapest_by": cheapest_by,
            "tasks": list(tasks) or None,
        }
        body = {name: value for name, value in question.items() if value is not None}
        return cast("WhatIfResult", self._http.request("POST", self._path("/what-if"), body=body))

    def run_time(self, job: str) -> RunTimeView:
        """A job's predicted run time, its source, and the accuracy of such predictions."""
        return cast("RunTimeView", self._get(f"/jobs/{quote_segment(job)}/run-time"))

    def tighter_walltime(self, job: str) -> TighterWalltime | None:
        """How much sooner a waiting job would start with a tighter walltime, and the risk; None: not."""
        path = f"/jobs/{quote_segment(job)}/tighter-walltime"
        return cast("TighterWalltimeAnswer", self._get(path)).gain

    def array(self, array: str) -> ArrayView:
        """A job array as a whole: `123[].server`, or `123`."""
        return cast("ArrayView", self._get(f"/arrays/{quote_segment(array)}"))

    # ---- what the plan is worth ------------------------------------------------------------------

    def evaluation(self) -> EvaluationView:
        """What the present plan is worth by each criterion."""
        return cast("EvaluationView", self._get("/plan/evaluation"))

    def objectives(self) -> ObjectivesView:
        """What the present plan is worth by each objective."""
        return cast("ObjectivesView", self._get("/plan/objectives"))

    def alternatives(self) -> AlternativesView:
        """The latest alternatives to the live plan that were sought."""
        return cast("AlternativesView", self._get("/alternatives"))

    def evaluations(
        self, *, since: int, until: int | None = None, every: int = 1
    ) -> Iterator[EvaluationSample]:
        """What the plan was worth in ``[since, until)``, in order; the last of each ``every`` seconds."""
        begin: int | None = since
        while begin is not None:
            query: Query = {"since": begin, "until": until, "every": every}
            page = self._get("/plan/evaluation/history", query)
            yield from page["evaluations"]
            begin = page["next"]

    def searches(self) -> Iterator[SearchView]:
        """Searches for a better plan, newest first."""
        page: SearchesView
        for page in self._pages("/searches", {"limit": _SEARCHES}):
            yield from page.searches

    def accuracy(
        self, *, since: int | None = None, until: int | None = None, queue: str = "", user: str = ""
    ) -> AccuracyView:
        """Accuracy of planned and expected starts published in ``[since, until)``, by default the last 30
        days; of jobs in a queue, of a user, if given.
        """
        query: Query = {"since": since, "until": until, "queue": queue or None, "user": user or None}
        return cast("AccuracyView", self._get("/accuracy", query))

    def quality_report(
        self, *, since: int | None = None, until: int | None = None, cluster: str = ""
    ) -> ClusterReports:
        """Reports of all visible clusters, or of one, over ``[since, until)``: by default the last day."""
        query: Query = {"since": since, "until": until, "cluster": cluster or None}
        return cast("ClusterReports", self._http.request("GET", "/v1/report", query))
