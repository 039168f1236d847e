"""Settings of the site's policy: ``[clusters.NAME.site]``."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, create_model, model_validator

from schedd.alternatives.objective_weights import ObjectiveWeights
from schedd.plan.criteria import check_weights, parse_criteria
from schedd.policy.feature_settings import feature_settings, site_fields
from schedd.policy.priority import JobClass, PrioritySettings
from schedd.policy.reliability import Reliability
from schedd.policy.site import site_policy
from schedd.wire.section import Name, Names, Section, SettingConflictError
from schedd.wire.times import Whole


def _known_criteria(weights: dict[str, float]) -> dict[str, float]:
    check_weights(parse_criteria(weights))
    return weights


CriteriaWeights = Annotated[dict[str, float], AfterValidator(_known_criteria)]


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
            raise ValueError("set either wait (how long) or strict (forever), not both")
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
    speeds: dict[Name, Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """Relative speed of nodes (default 1), by name or property: `{ epyc = 2.5, node17 = 0.5 }`, a boolean
    resource of OpenPBS as `"epyc=True"`. The largest counts. Fair share multiplies cpu-seconds by it,
    predicted run times are divided by it, and `placement` may prefer fast nodes; jobs hold nodes for their
    walltime all the same, except with `normalised_walltimes`."""
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
    reliability: Reliability | None = None
    """Long jobs avoid nodes that fail: `[clusters.main.site.reliability]`."""

    @model_validator(mode="after")
    def _make_sense(self) -> Self:
        if self.priority.deadline_least > self.priority.deadline_most:
            words = "it must not be more than deadline_most"
            raise SettingConflictError(("priority", "deadline_least"), words)
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
        """The rules with the settings of all features."""

else:
    SiteSettings = create_model(
        "SiteSettings",
        __base__=(*(one.model for one in site_fields()), KernelSiteSettings),
        __doc__=KernelSiteSettings.__doc__,
        __module__=__name__,
        **{
            one.table: (dict[Name, one.model], Field(default_factory=dict, description=one.about))
            if one.entry
            else (tuple[one.model, ...], Field(default=(), description=one.about))
            if one.listed
            else (one.model | None, Field(default=None, description=one.about))
            for one in feature_settings()
        },
    )
