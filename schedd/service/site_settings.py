"""The site's policy in schedd.toml: what stands below ``[clusters.NAME.site]``."""

from datetime import date, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from schedd.choice.objectives import weights_of
from schedd.plan.evaluate import Weights, by_name
from schedd.policy.accounts import AccountRules
from schedd.policy.bookings import BookingRules
from schedd.policy.choosing import Choosing
from schedd.policy.fair_share import FairShare, Level
from schedd.policy.power import PowerSaving
from schedd.policy.priority import SiteWeights
from schedd.policy.reliability import Reliability
from schedd.policy.site import STALE, site_policy
from schedd.policy.thrift import Thrift
from schedd.service.section import Section
from schedd.wire.times import Hours, Whole

__all__ = [
    "AccountsSettings",
    "BookingSettings",
    "ChooseSettings",
    "ClassSettings",
    "CriteriaWeights",
    "FairShareSettings",
    "LicenceSettings",
    "NodeSetSettings",
    "PowerCapSettings",
    "PowerSavingSettings",
    "PowerSettings",
    "PriceSettings",
    "PrioritySettings",
    "ReliabilitySettings",
    "SiteLimitSettings",
    "SiteReservationSettings",
    "SiteSettings",
    "ThriftSettings",
]

_WEIGHTS = SiteWeights()
_TREE = FairShare()
_BOOKINGS = BookingRules()
_SAVING = PowerSaving()
_ACCOUNTS = AccountRules()
_CHOOSING = Choosing()
_RELIABILITY = Reliability()
_THRIFT = Thrift()

Weight = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]


def _known_criteria(weights: dict[str, float]) -> dict[str, float]:
    Weights(by_name(weights))  # says what is wrong
    return weights


def _known_objectives(weights: dict[str, float]) -> dict[str, float]:
    weights_of(weights)
    return weights


ObjectiveWeights = Annotated[dict[str, float], AfterValidator(_known_objectives)]
CriteriaWeights = Annotated[dict[str, float], AfterValidator(_known_criteria)]
Name = Annotated[str, Field(pattern=r"^[^\s/\x00-\x1f]{1,255}$")]
Names = tuple[Name, ...]
_RULE = r"^[A-Za-z0-9=;,+-]*$"


def _zoneless(moment: datetime) -> datetime:
    if moment.tzinfo is not None:
        raise ValueError(f"{moment.isoformat()}: a time on the clock of the site's zone, without an offset")
    return moment


LocalTime = Annotated[datetime, AfterValidator(_zoneless)]


class PrioritySettings(Section):
    """Weights of the terms whose sum is a job's priority; a weight of 0 leaves the term out."""

    queue: Weight = _WEIGHTS.queue
    """Times the priority of the job's queue."""
    class_: Weight = Field(default=_WEIGHTS.class_, alias="class")
    """Times the points of the job's class."""
    wish: Weight = _WEIGHTS.wish
    """Times the owner's own `qsub -p`, -1024 to 1023."""
    waiting: Weight = _WEIGHTS.waiting
    """For each hour since the job became eligible."""
    size: Weight = _WEIGHTS.size
    """For each cpu asked for; below 0 small jobs go first."""
    deadline: Weight = _WEIGHTS.deadline
    """Times the pressure of the job's deadline, `deadline_least` to `deadline_most`."""
    fair_share: Weight = _WEIGHTS.fair_share
    """Times the fair-share factor: 1 without use, 0.5 at the target, going to 0."""
    licences: Weight = _WEIGHTS.licences
    """Times the pressure of the licences asked for: copies asked for over copies there are, more so where
    there are too few."""
    short: Weight = _WEIGHTS.short
    """Times the shortest walltime that waits over the job's own."""
    waiting_most: Hours = Field(default=_WEIGHTS.waiting_most, ge=0, le=1e6, allow_inf_nan=False)
    """Waiting beyond this gains no more points; 0: no bound."""
    deadline_lead: float = Field(default=_WEIGHTS.deadline_lead, gt=0, le=1000, allow_inf_nan=False)
    """How many times its walltime before its latest start a job begins to be pressed."""
    deadline_least: Weight = _WEIGHTS.deadline_least
    """The pressure of a deadline that is far."""
    deadline_most: Weight = _WEIGHTS.deadline_most
    """The pressure at the latest start that meets it."""
    deadline_lost: Literal["demote", "keep"] = _WEIGHTS.deadline_lost
    """A job that cannot meet its deadline any more falls back to `deadline_least`, or keeps
    `deadline_most`."""
    queues: dict[Name, Weight] = Field(default_factory=dict)
    """Priorities of queues that go before the server's: `{ urgent = 500 }`; `"*"` is of all not named."""


class ClassSettings(Section):
    """A class of jobs: those that one of its lists names. Of several classes the most points count."""

    points: Weight
    """What the term `class` finds."""
    users: Names = ()
    """Users whose jobs belong to the class."""
    groups: Names = ()
    """Groups whose jobs do."""
    accounts: Names = ()
    """Accounts (`qsub -A`) whose jobs do."""
    projects: Names = ()
    """Projects (OpenPBS) whose jobs do."""
    queues: Names = ()
    """Queues whose jobs do."""
    breaks_promises: bool = False
    """Jobs of this class may push others past what they were promised; each breach is recorded and told."""


class FairShareSettings(Section):
    """What was used of late (cpu-seconds held, by windows of time) against what is meant for each."""

    levels: tuple[Level, ...] = _TREE.levels
    """The tree, from the top: of `account`, `project`, `group`, `user`, `queue`."""
    shares: dict[str, Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """Shares relative to those of the same parent: `{ physics = 3, "physics/ann" = 2 }`."""
    unlisted: float = Field(default=_TREE.unlisted, ge=0, le=1e9, allow_inf_nan=False)
    """The share of each that is not listed."""
    interval: Whole = Field(default=_TREE.interval, ge=60, le=366 * 86_400)
    """Length of a window."""
    decay: float = Field(default=_TREE.decay, ge=0, le=1)
    """What is left of a window's usage with each window that follows."""
    depth: int = Field(default=_TREE.depth, ge=1, le=1000)
    """Windows that count."""
    accounting: Annotated[str, Field(pattern=r"^[^\x00-\x1f]*$", max_length=4096)] = ""
    """The server's accounting logs, a file or a directory of daily ones (`server_priv/accounting`): read at
    the first start, so that what was used before counts."""


class _Window(Section):
    first: LocalTime | None = None
    """Begin of the first window in which this holds, on the clock of `zone`: `2026-01-05T08:00:00`. Without
    it, it holds always."""
    last: LocalTime | None = None
    """End of the first window."""
    rule: Annotated[str, Field(pattern=_RULE, max_length=500)] = ""
    """How the window comes again, as a rule of RFC 5545: `FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR`. Empty: it does
    not."""
    without: tuple[date, ...] = ()
    """Days on which the window does not begin: `[2026-12-24, 2026-12-25]`."""

    @model_validator(mode="after")
    def _be_whole(self) -> Self:
        if (self.first is None) != (self.last is None):
            raise ValueError("first and last are needed together")
        if self.first is None and (self.rule or self.without):
            raise ValueError("rule and without need first and last")
        return self


class SiteLimitSettings(_Window):
    """At most so much in use at once, at every moment of the plan; the server's run limits hold beside it."""

    amount: int = Field(ge=0, le=1 << 48)
    """How much; memory in KiB."""
    what: Name = "jobs"
    """`jobs`, `cpus`, `nodes`, `gpus`, `mem`, `walltime` (seconds asked for by all of them together),
    `cpu_seconds` (the same times their cpus), or a generic resource."""
    who: Literal["all", "user", "group", "account", "project"] = "all"
    """Of all jobs together, or of each user, group, account or project."""
    name: Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]{0,255}$")] = ""
    """Of this one alone, for whom it replaces what holds for each."""
    queue: Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]{0,255}$")] = ""
    """In this queue alone."""

    @model_validator(mode="after")
    def _name_someone(self) -> Self:
        if self.name and self.who == "all":
            raise ValueError(f"name {self.name!r} needs who: user, group, account or project")
        return self


class SiteReservationSettings(Section):
    """Nodes kept free of jobs in windows that come again, or kept for those that are named here."""

    first: LocalTime
    """Begin of the first window, on the clock of `zone`: `2026-01-05T08:00:00`."""
    last: LocalTime
    """End of the first window."""
    rule: Annotated[str, Field(pattern=_RULE, max_length=500)] = ""
    """How the window comes again, as a rule of RFC 5545: `FREQ=MONTHLY;BYDAY=1TU`. Empty: it does not."""
    without: tuple[date, ...] = ()
    """Days on which the window does not begin."""
    nodes: Names = ()
    """These nodes,"""
    features: Names = ()
    """or those that have all of these properties,"""
    everywhere: bool = False
    """or all nodes. One of the three must be set."""
    users: Names = ()
    """Jobs of these users may use the nodes all the same,"""
    groups: Names = ()
    """of these groups,"""
    accounts: Names = ()
    """of these accounts,"""
    queues: Names = ()
    """of these queues,"""
    shorter: Whole = Field(default=0, ge=0, le=366 * 86_400)
    """and those whose walltime is no longer than this: `"30m"`; 0: length lets nobody in."""
    reason: Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    """Shown to those who ask why a job waits."""

    @model_validator(mode="after")
    def _be_about_nodes(self) -> Self:
        if bool(self.nodes) + bool(self.features) + self.everywhere != 1:
            raise ValueError("one of nodes, features and everywhere must be set, and only one")
        return self


Watts = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Money = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class PowerSettings(Section):
    """Watts of a node, by its name or by a property of it; `"*"` stands for all nodes that are not named. Its
    own name goes before its properties, of which the first in this order counts.
    """

    idle: Watts
    """Watts while it is on, whatever runs."""
    core: Watts = 0.0
    """More for each core that a job holds."""
    gpu: Watts = 0.0
    """More for each gpu that a job holds."""
    off: Watts = 0.0
    """Watts while it is off: what a node that is down is taken to draw."""


class PowerSavingSettings(Section):
    """Idle nodes are switched off, and on again ahead of the next job that is planned on them; by commands
    that the adapter's `[power]` names. See docs/power.md.
    """

    mode: Literal["off", "dry", "on"] = _SAVING.mode
    """`on`, or `dry`: nothing is switched, but `schedd power` says which nodes would be."""
    idle: Whole = Field(default=_SAVING.idle, ge=0, le=30 * 86_400)
    """A node is switched off when nothing ran on it for so long,"""
    min_up: Whole = Field(default=_SAVING.min_up, ge=0, le=30 * 86_400)
    """it is up for so long,"""
    min_off: Whole = Field(default=_SAVING.min_off, ge=0, le=30 * 86_400)
    """and the plan needs it no earlier than this after it could be back."""
    delay: Whole = Field(default=_SAVING.delay, ge=0, le=86_400)
    """A job waits up to so much longer for nodes that are on before one is switched on for it."""
    boot_time: Whole = Field(default=_SAVING.boot_time, ge=1, le=86_400)
    """From the order until the server shows the node up, for nodes of a kind that was not seen to boot yet;
    then the longest of the last ten boots counts."""
    stop_time: Whole = Field(default=_SAVING.stop_time, ge=1, le=86_400)
    """From the order until the server shows the node down."""
    at_once: int = Field(default=_SAVING.at_once, ge=1, le=100_000)
    """So many nodes at most are on their way up, and as many on their way down."""
    retry: Whole = Field(default=_SAVING.retry, ge=10, le=86_400)
    """What failed is tried again after this, doubling, up to a day."""
    spares: dict[Name, Annotated[int, Field(ge=0, le=100_000)]] = Field(default_factory=dict)
    """So many free nodes of a property stay on, `"*"` of all: `{ "*" = 2, gpu = 1 }`."""
    never: Names = ()
    """Names or properties of nodes that are never switched."""


class PowerCapSettings(_Window):
    """At most so many watts are drawn by all nodes together, at every moment of the plan, as their watts say
    (`[clusters.NAME.site.power.NODES]`). Of several that hold at once the least counts. See docs/power.md.
    """

    watts: Watts
    """With what idle nodes draw, all of them taken to be on."""


class AccountsSettings(Section):
    """Which account a job uses, and what becomes of jobs whose account is empty. The accounts themselves are
    made by `schedd account set`. See docs/accounts.md.
    """

    by: Literal["account", "project", "group", "user"] = _ACCOUNTS.by
    """What of a job names its account: `account` is that of `qsub -A`, `project` that of `qsub -P`."""
    otherwise: Annotated[str, Field(pattern=r"^[^\s/\x00-\x1f]{0,255}$")] = _ACCOUNTS.otherwise
    """The account of jobs that name none; empty: they are not charged."""
    unknown: Literal["run", "wait"] = _ACCOUNTS.unknown
    """Jobs that name an account that there is not, or none at all, run uncharged, or wait."""
    empty: Literal["wait", "last"] = _ACCOUNTS.empty
    """Jobs whose account has too little for them wait, or have the lowest priority."""
    gpu: Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False)] = _ACCOUNTS.gpu
    """An hour of a gpu counts as so many core-hours."""
    logs: Annotated[str, Field(max_length=4096)] = _ACCOUNTS.logs
    """The server's accounting logs, where the daemon can read them: a file, or the directory of the daily
    ones (`/var/spool/torque/server_priv/accounting`). Runs that ended while nobody looked are charged by
    them."""


class ChooseSettings(Section):
    """Alternative plans are sought by themselves, and the best by `objectives` is put in force. See
    docs/choices.md.
    """

    every: Whole = Field(default=_CHOOSING.every, ge=0, le=7 * 86_400)
    """So often; 0: never."""
    seconds: float = Field(default=_CHOOSING.seconds, ge=0.1, le=50)
    """Each time it takes so long, in seconds."""
    gain: float = Field(default=_CHOOSING.gain, ge=0, le=1)
    """A plan is taken only where it is better than the live one by this share, by the weights."""
    tolerance: float = Field(default=_CHOOSING.tolerance, ge=0, le=1)
    """And not where more than this share of the jobs came, went or moved since it was found."""
    limits: ObjectiveWeights = Field(default_factory=dict)
    """A plan that is beyond one of these is not taken, unless it is no worse there than the live one, by
    objective, in its unit: `{ wait_max = 86400 }`."""


class ReliabilitySettings(Section):
    """Long jobs avoid nodes that fail often, by what was seen of them. See docs/choices.md."""

    avoid: Whole = Field(default=_RELIABILITY.avoid, ge=0, le=3650 * 86_400)
    """Jobs with this walltime or a longer one go, of the nodes that are free at their start, to those that
    fail least; 0: none does."""
    half_life: Whole = Field(default=_RELIABILITY.half_life, ge=3600, le=3650 * 86_400)
    """What was seen of a node counts half after so long."""


class ThriftSettings(Section):
    """Jobs go to nodes that draw less. See docs/choices.md."""

    prefer: bool = _THRIFT.prefer
    """Of the nodes that are free at its start a job goes to those that draw least for its work."""
    urgent: Whole = Field(default=_THRIFT.urgent, ge=0, le=3650 * 86_400)
    """But one that would end less than this before its deadline to the fastest."""


class PriceSettings(_Window):
    """What time on nodes costs, always or in windows that come again. Of several that hold at once for a node
    the last in the list counts; where none does, time is free.
    """

    core_hour: Money
    """Price of an hour of one core, in `currency`."""
    gpu_hour: Money = 0.0
    """Price of an hour of one gpu."""
    nodes: Names = ()
    """On the nodes of these names or properties; empty: on all."""


class LicenceSettings(Section):
    """A licence, or another resource of the whole cluster, that the server does not count."""

    copies: Annotated[int, Field(ge=0, le=1 << 48)] | None = None
    """How many there are."""
    command: tuple[str, ...] = ()
    """Program with arguments that says how many there are: a whole number on its first line. With `copies`,
    the least counts."""
    every: Whole = Field(default=60, ge=5, le=86_400)
    """Time between two runs of it. It has 10 seconds to answer."""
    free: bool = False
    """What it says is how many are free, not how many there are (as for `server_dyn_res` of OpenPBS)."""
    lent: bool = False
    """A federation says how many there are for this cluster; none until it has. With `copies`, the least
    counts."""
    stale: Whole = Field(default=STALE, ge=10, le=7 * 86_400)
    """Time without an answer after which an alert says that the count is old; it holds on."""

    @model_validator(mode="after")
    def _be_known(self) -> Self:
        if self.copies is None and not self.command and not self.lent:
            raise ValueError("copies, command or lent must be set")
        if self.command and self.lent:
            raise ValueError("command and lent: only one of them says how many there are")
        return self


class NodeSetSettings(Section):
    """Sets of nodes, such as those on one switch, on one of which all of a job is kept if that can be."""

    by: Annotated[str, Field(pattern=r"^[^\s=\x00-\x1f]{0,255}$")] = ""
    """A resource of the nodes that has text as its value (OpenPBS): each value makes a set. Or:"""
    sets: dict[Name, Annotated[Names, Field(min_length=1)]] = Field(default_factory=dict)
    """By name of the set, the nodes in it, or properties of which they have one:
    `{ east = ["rack1", "rack2"], west = ["rack3"] }`."""
    wait: Whole = Field(default=0, ge=0, le=366 * 86_400)
    """So much later a job may start if one set can take it then."""
    strict: bool = False
    """A job that some set could hold when empty is never spread over several, however long it waits."""

    @model_validator(mode="after")
    def _be_known(self) -> Self:
        if bool(self.by) == bool(self.sets):
            raise ValueError("one of by and sets must be set, and only one")
        if self.strict and self.wait:
            raise ValueError("wait says how long, strict that it is forever: only one of them can be set")
        return self


class BookingSettings(Section):
    """What users may book: cores for a time, within a window. See docs/policy.md."""

    most: int = Field(default=_BOOKINGS.most, ge=0, le=10_000)
    """Bookings of one user at once that are not over; 0: users may book nothing."""
    cpus: int = Field(default=_BOOKINGS.cpus, ge=0, le=10_000_000)
    """Cores of one booking at most; 0: as many as there are."""
    longest: Whole = Field(default=_BOOKINGS.longest, ge=60, le=366 * 86_400)
    """The longest that may be booked."""
    ahead: Whole = Field(default=_BOOKINGS.ahead, ge=60, le=366 * 86_400)
    """How far ahead the end of a booking's window may lie."""
    cost: float = Field(default=_BOOKINGS.cost, ge=0, le=1000, allow_inf_nan=False)
    """What a booking costs, as a share of what a job costs on as many cores for as long; charged to the
    account when it begins. Its jobs pay as ever beside that."""
    order: Literal["edf", "lff", "bjf", "fifo"] = _BOOKINGS.order.value
    """Who goes first when bookings that may still move are planned anew: the earliest deadline, the least
    flexible, the biggest, who asked first."""


class SiteSettings(Section):
    """What the site wants beyond what the server knows."""

    zone: str = "UTC"
    """Time zone of all times of day below, by its IANA name: `Europe/Prague`."""
    priority: PrioritySettings = Field(default_factory=PrioritySettings)
    """How much each term of a job's priority counts."""
    criteria: CriteriaWeights | None = None
    """Weights of the criteria by which a search, and `placement`, judge a plan: see docs/optimisation.md.
    Without it `wait`, `bounded_slowdown`, `wait_rms` and `wait_max` count 1 each."""
    placement: Literal["first_gap", "best_gap", "best_gap_edf"] = "first_gap"
    """Where a job goes when it comes: the earliest gap on any nodes; of the earliest gaps on ever faster
    nodes the best by `criteria`; or the same, and before jobs with later deadlines where that is better."""
    classes: dict[Name, ClassSettings] = Field(default_factory=dict)
    """Classes of jobs, by name: `[clusters.main.site.classes.gold]`."""
    fair_share: FairShareSettings | None = None
    """Who is meant to get how much. Without this table nothing is kept of who used what."""
    limits: tuple[SiteLimitSettings, ...] = ()
    """What may be in use at once: `[[clusters.main.site.limits]]`."""
    licences: dict[Name, LicenceSettings] = Field(default_factory=dict)
    """Licences, by name: `[clusters.main.site.licences.matlab]`."""
    reservations: dict[Name, SiteReservationSettings] = Field(default_factory=dict)
    """Standing reservations, by name: `[clusters.main.site.reservations.maintenance]`."""
    bookings: BookingSettings | None = None
    """What users may book: `[clusters.main.site.bookings]`. Without it, nothing."""
    speeds: dict[Name, Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """How fast nodes are beside others (1), by name or property: `{ epyc = 2.5, node17 = 0.5 }`. Of several
    the largest counts. Fair share counts cpu-seconds times it, `placement` may prefer fast nodes; jobs
    hold nodes for their walltime all the same."""
    node_sets: NodeSetSettings | None = None
    """Sets of nodes on one of which jobs of several units are kept if that can be."""

    objectives: ObjectiveWeights | None = None
    """Weights of the objectives by which alternative plans are sought (`schedd pareto`), and none is offered
    that is worse than the live one: `{ wait = 1, energy = 2 }`. Without it `wait`, `makespan`, `energy` and
    `cost` count 1 each, as far as they are known."""
    power: dict[Name, PowerSettings] = Field(default_factory=dict)
    """Watts of nodes, by name or property: `[clusters.main.site.power.epyc]`. The plan's energy is known when
    every node has some."""
    power_saving: PowerSavingSettings | None = None
    """When idle nodes are switched off: `[clusters.main.site.power_saving]`. Without it they stay on."""
    power_caps: tuple[PowerCapSettings, ...] = ()
    """The most that may be drawn, always or in windows: `[[clusters.main.site.power_caps]]`."""
    choose: ChooseSettings | None = None
    """Another plan is chosen by itself: `[clusters.main.site.choose]`."""
    reliability: ReliabilitySettings | None = None
    """Long jobs avoid nodes that fail: `[clusters.main.site.reliability]`."""
    thrift: ThriftSettings | None = None
    """Jobs go to nodes that draw less: `[clusters.main.site.thrift]`."""
    accounts: AccountsSettings | None = None
    """Accounts and budgets: `[clusters.main.site.accounts]`."""
    prices: tuple[PriceSettings, ...] = ()
    """What time on nodes costs: `[[clusters.main.site.prices]]`. A user's limit is `-W x=cost_limit:2.50`."""
    cost_limits: Literal["soft", "hard"] = "soft"
    """What `-W x=cost_limit:2.50` means: a job that costs more is planned and marked, or, `hard`, it is
    planned and started only where it costs no more."""
    currency: Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]{1,16}$")] = "EUR"
    """Of the prices, as it is shown."""

    @model_validator(mode="after")
    def _make_sense(self) -> Self:
        if self.priority.fair_share and self.fair_share is None:
            raise ValueError("priority.fair_share has a weight, but there is no table fair_share")
        if self.priority.deadline_least > self.priority.deadline_most:
            raise ValueError("priority.deadline_least must not be more than deadline_most")
        if self.power_caps and not self.power:
            raise ValueError("power_caps need watts of nodes: a table power")
        if self.thrift is not None and self.thrift.prefer and not self.power:
            raise ValueError("thrift.prefer needs watts of nodes: a table power")
        site_policy(self.plain)
        return self

    @property
    def plain(self) -> dict[str, Any]:
        """As ``schedd.policy.site`` reads it: what is said, without what has its default."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)
