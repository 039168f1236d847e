"""Settings of the site's policy: ``[clusters.NAME.site]``."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, create_model, model_validator

from schedd.alternatives.objectives import ObjectiveWeights
from schedd.plan.evaluate import CriterionWeights, parse_criteria
from schedd.policy.energy_placement import EnergyPlacement
from schedd.policy.feature_settings import feature_settings
from schedd.policy.priority import JobClass, PrioritySettings
from schedd.policy.reliability import Reliability
from schedd.policy.site import site_policy
from schedd.policy.site_tables import LicenceSettings, SiteReservationSettings, WindowSettings
from schedd.wire.section import Name, Names, Section, SettingConflictError
from schedd.wire.times import Whole


def _known_criteria(weights: dict[str, float]) -> dict[str, float]:
    CriterionWeights(parse_criteria(weights))  # raises ValueError with the reason
    return weights


CriteriaWeights = Annotated[dict[str, float], AfterValidator(_known_criteria)]


class SiteLimitSettings(WindowSettings):
    """A limit on simultaneous use, at every moment of the plan; the server's run limits apply in
    addition. With `counts` it limits waiting jobs, or use over time. See docs/administrators/policy.md.
    """

    amount: Annotated[int, Field(ge=0, le=1 << 48)] | None = None
    """The limit; memory in KiB. Needed unless there is `soft`."""
    soft: Annotated[int, Field(ge=0, le=1 << 48)] | None = None
    """A lower limit: jobs beyond it are planned after all other jobs."""
    counts: Literal["running", "eligible", "submitted", "used"] = "running"
    """`running`: the amount in use at once. `eligible`: waiting jobs that are planned (Maui's `MAXIJOB`);
    further jobs wait without a planned start. `submitted`: waiting and running jobs. `used`: use over time,
    with `period` or `half_life`."""
    period: Whole = Field(default=0, ge=0, le=366 * 86_400)
    """Use is forgotten this long after the end of its run. With neither `period` nor `half_life` it counts
    for ever."""
    half_life: Whole = Field(default=0, ge=0, le=3660 * 86_400)
    """Half-life of past use."""
    what: Name = "jobs"
    """`jobs`, `cpus`, `nodes`, `gpus`, `mem`, `walltime` (sum of requested seconds), `cpu_seconds`,
    `gpu_seconds` or `node_seconds` (planned seconds times cpus, gpus or nodes: also those assumed for a job
    without a walltime), or a generic resource. Use over time counts only amounts in seconds."""
    who: Literal["all", "user", "group", "account", "project"] = "all"
    """For all jobs together, or for each user, group, account or project."""
    name: Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]{0,255}$")] = ""
    """Only for this one, instead of the limit for each."""
    queue: Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]{0,255}$")] = ""
    """Only in this queue; with `*` at the end (`np_*`) in all queues whose names begin so."""
    qos: Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]{0,255}$")] = ""
    """Only the jobs of this QOS (`[qos.levels.NAME]`)."""
    partition: Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]{0,255}$")] = ""
    """Only the jobs in this partition (`[partitions.sets.NAME]`); not together with `qos`."""

    @model_validator(mode="after")
    def _name_someone(self) -> Self:
        if self.name and self.who == "all":
            raise ValueError(f"name {self.name!r} needs who: user, group, account or project")
        return self

    @model_validator(mode="after")
    def _count_something(self) -> Self:
        if self.amount is None and self.soft is None:
            raise ValueError("amount or soft must be set")
        if self.amount is not None and self.soft is not None and self.soft > self.amount:
            raise ValueError(f"soft ({self.soft}) must not be more than amount ({self.amount})")
        if self.soft is not None and self.counts != "running":
            raise ValueError(f"soft is for counts = running, not {self.counts}")
        if self.first is not None and (self.counts != "running" or self.soft is not None):
            raise ValueError("a limit with first and last counts what is running, and has no soft")
        seconds = self.what in ("walltime", "cpu_seconds", "gpu_seconds", "node_seconds")
        if self.counts == "used" and not seconds:
            units = "cpu_seconds, gpu_seconds, node_seconds or walltime"
            raise ValueError(f"use over time is counted in {units}, not {self.what}")
        if self.counts in ("eligible", "submitted") and self.what not in ("jobs", "cpus", "nodes", "gpus"):
            raise ValueError(f"counts = {self.counts} is for jobs, cpus, nodes or gpus, not {self.what}")
        if self.counts != "used" and (self.period or self.half_life):
            raise ValueError("period and half_life are for counts = used")
        if self.period and self.half_life:
            raise ValueError("one of period and half_life must be set, not both")
        return self


Watts = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Money = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class PowerSettings(Section):
    """Watts of a node, by its name or a property; `"*"` is for all other nodes. Its name goes before its
    properties, the first in this order counting.
    """

    idle: Watts
    """Watts while it is on and idle."""
    core: Watts = 0.0
    """Additional watts per core that a job holds."""
    gpu: Watts = 0.0
    """Additional watts per gpu that a job holds."""
    off: Watts = 0.0
    """Watts while it is off; also used for nodes that are down."""


class PowerCapSettings(WindowSettings):
    """Maximum power of all nodes together, at every moment of the plan, calculated from their watts
    (`[clusters.NAME.site.power.NODES]`). If several apply at once, the lowest counts. See
    docs/administrators/power.md.
    """

    watts: Watts
    """Watts, including idle nodes; all nodes are assumed to be on."""


class PriceSettings(WindowSettings):
    """Prices of node time, always or in recurring windows. If several apply to a node at once, the last in
    the list counts; without any, time is free.
    """

    core_hour: Money
    """Price of one core-hour, in `currency`."""
    gpu_hour: Money = 0.0
    """Price of one gpu-hour."""
    nodes: Names = ()
    """Names or properties of the nodes; empty: all."""


class NodeSetSettings(Section):
    """Sets of nodes, such as those on one switch; a job is kept on one set if possible."""

    by: Annotated[str, Field(pattern=r"^[^\s=\x00-\x1f]{0,255}$")] = ""
    """A text resource of the nodes (OpenPBS): each value makes a set. Or:"""
    sets: dict[Name, Annotated[Names, Field(min_length=1)]] = Field(default_factory=dict)
    """Nodes or properties of each set: `{ east = ["rack1", "rack2"], west = ["rack3"] }`."""
    wait: Whole = Field(default=0, ge=0, le=366 * 86_400)
    """How much later a job may start to be on one set."""
    strict: bool = False
    """A job that some set could hold when empty is never spread over several, however long it waits."""

    @model_validator(mode="after")
    def _be_known(self) -> Self:
        if bool(self.by) == bool(self.sets):
            raise ValueError("one of by and sets must be set, and only one")
        if self.strict and self.wait:
            raise ValueError("wait says how long, strict that it is forever: only one of them can be set")
        return self


class KernelSiteSettings(Section):
    """Rules of the site beyond the server's."""

    zone: str = "UTC"
    """Time zone of all local times below, by IANA name: `Europe/Prague`."""
    priority: PrioritySettings = Field(default_factory=PrioritySettings)
    """Weights of the terms of a job's priority."""
    criteria: CriteriaWeights | None = None
    """Weights of the criteria used by searches and `placement` to compare plans
    (docs/developers/optimisation.md).
    Default: `wait`, `bounded_slowdown`, `wait_rms` and `wait_max`, 1 each."""
    placement: Literal["first_gap", "best_gap", "best_gap_edf"] = "first_gap"
    """Which gap a new job takes: the earliest on any nodes; the best by `criteria` of the earliest gaps on
    ever faster nodes; or the same, and in front of jobs with later deadlines if that is better."""
    spare_scarce: bool = True
    """Choice among nodes with the same start: `true`, the node that wastes the least scarce resources (gpus,
    memory, generic resources, properties) not requested by the job; `false`, the node left with the fewest
    cpus. See docs/developers/plan.md."""
    coordinate_arrays: bool = False
    """Order of repair after an early end: `false`, the oldest job first; `true`, the job with the earliest
    planned end, where a job of an array counts as ending with the array's last job. See
    docs/administrators/policy.md."""
    classes: dict[Name, JobClass] = Field(default_factory=dict)
    """Classes of jobs, by name: `[clusters.main.site.classes.gold]`."""
    limits: tuple[SiteLimitSettings, ...] = ()
    """Limits on simultaneous use: `[[clusters.main.site.limits]]`."""
    licences: dict[Name, LicenceSettings] = Field(default_factory=dict)
    """Licences, by name: `[clusters.main.site.licences.matlab]`."""
    reservations: dict[Name, SiteReservationSettings] = Field(default_factory=dict)
    """Standing reservations, by name: `[clusters.main.site.reservations.maintenance]`."""
    speeds: dict[Name, Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """Relative speed of nodes (default 1), by name or property: `{ epyc = 2.5, node17 = 0.5 }`. The largest
    counts. Fair share multiplies cpu-seconds by it, predicted run times are divided by it, and `placement`
    may prefer fast nodes; jobs hold nodes for their walltime all the same."""
    throughput: dict[Name, dict[str, Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]]] = Field(
        default_factory=dict
    )
    """Units of work a second of an application's process, by node or property; `*`: on all other nodes, times
    their speed: `{ emo = { epyc = 10.87, "*" = 5.8 } }`. Run times of jobs that name it are predicted by it;
    walltimes remain decisive for the plan."""
    node_sets: NodeSetSettings | None = None
    """Sets of nodes; a job of several units is kept on one set if possible."""

    objectives: ObjectiveWeights | None = None
    """Weights of the objectives for alternative plans (`schedd alternatives`); none is offered that is worse
    than the live one by all of them together: `{ wait = 1, energy = 2 }`. Default: `wait`, `makespan`,
    `energy` and `cost`, 1 each if known."""
    power: dict[Name, PowerSettings] = Field(default_factory=dict)
    """Watts of nodes, by name or property: `[clusters.main.site.power.epyc]`. The plan's energy is known if
    every node has watts."""
    power_caps: tuple[PowerCapSettings, ...] = ()
    """Power caps, always or in windows: `[[clusters.main.site.power_caps]]`."""
    reliability: Reliability | None = None
    """Long jobs avoid nodes that fail: `[clusters.main.site.reliability]`."""
    thrift: EnergyPlacement | None = None
    """Jobs prefer nodes that draw less power: `[clusters.main.site.thrift]`."""
    prices: tuple[PriceSettings, ...] = ()
    """Prices of node time: `[[clusters.main.site.prices]]`. A user's limit is `-W x=cost_limit:2.50`."""
    cost_limits: Literal["soft", "hard"] = "soft"
    """What `-W x=cost_limit:2.50` means: with `soft` a job that costs more is planned and marked; with `hard`
    it is planned and started only where it costs no more."""
    currency: Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]{1,16}$")] = "EUR"
    """Currency of the prices, for display."""

    @model_validator(mode="after")
    def _make_sense(self) -> Self:
        if self.priority.deadline_least > self.priority.deadline_most:
            words = "it must not be more than deadline_most"
            raise SettingConflictError(("priority", "deadline_least"), words)
        if self.power_caps and not self.power:
            raise SettingConflictError(("power_caps", 0), "power_caps need watts of nodes: a table power")
        if self.thrift is not None and self.thrift.prefer and not self.power:
            raise SettingConflictError(("thrift", "prefer"), "it needs watts of nodes: a table power")
        site_policy(self.plain)
        for feature in feature_settings():
            if feature.check is not None:
                feature.check(self.plain)
        return self

    @property
    def plain(self) -> dict[str, Any]:
        """The explicit settings, without defaults, as ``schedd.policy.site`` reads them."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


if TYPE_CHECKING:

    class SiteSettings(KernelSiteSettings):
        """The rules with the tables of all features."""

else:
    SiteSettings = create_model(
        "SiteSettings",
        __base__=KernelSiteSettings,
        __doc__=KernelSiteSettings.__doc__,
        __module__=__name__,
        **{
            one.table: (one.model | None, Field(default=None, description=one.about))
            for one in feature_settings()
        },
    )
