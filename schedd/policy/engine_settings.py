"""Settings of the engine, with their defaults."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, create_model

from schedd.plan.criteria import DEFAULT_WEIGHTS, PATIENCE
from schedd.policy.feature_settings import cluster_fields
from schedd.policy.site import SitePolicy, site_policy
from schedd.policy.site_tables import QueueName
from schedd.policy.slack import Slack
from schedd.wire.section import Section
from schedd.wire.times import AllowedValues, FloatSeconds, Seconds, Step, Whole

SITE_SLACK: Final = Slack(3_600, 0.5)  # default slack of a site: docs/developers/decisions/007
SITE_START_RATE: Final = 50
"""Default limit of job starts per second: the load that a server can take along with its other work."""
SITE_START_RATE_NODE: Final = 10  # and on one node
SITE_PUBLISH_PAUSE: Final = 60
"""Default pause in seconds between two published starts of one job: a plan in motion settles within it."""
SITE_PUBLISH_HOLD: Final = 600
"""Default time in seconds for which the optimiser keeps a published start: decision 162."""

StartRate = Annotated[int, Field(ge=0, le=100_000)]
SlackText = Annotated[
    str,
    BeforeValidator(lambda value: str(Slack.parse(str(value)))),
    AllowedValues("time, share of the wait (`0.5w`), their sum, or `off`"),
]


ParsedSite = Annotated[
    SitePolicy,
    PlainValidator(lambda value: value if isinstance(value, SitePolicy) else site_policy(value)),
    PlainSerializer(lambda site: dict(site.plain)),
]


class KernelPlanningSettings(Section):
    """Settings of a cluster that the engine reads, with values of the file. The file's defaults for a site
    differ for a few: ``ClusterSettings``.
    """

    policy: str = "conservative"
    """`conservative` plans every job, fills gaps and repairs; the others are queue policies for comparison,
    which plan no starts."""
    slack: SlackText = "0"
    """Maximum delay of a job after its first planned start: a time, a share of its planned wait, or both.
    With
    `1h+0.5w` a job with a planned wait of 4 hours is promised to wait at most 7. With `0` no published start
    ever moves back, and priorities and searches can do very little. With `off` jobs have planned starts but
    no
    promises. Priorities and searches leave `end_allowance` of it, or a quarter of a fixed time, to late ends
    and starts of jobs ahead."""
    alone: bool = True
    """In the mode `scheduler`, stop starting jobs when another scheduler seems to start jobs, too."""
    alone_starts: int = Field(default=3, ge=1, le=100_000)
    """Number of unexplained starts within `alone_within` that count as another scheduler's."""
    alone_within: Step = 600
    """Period over which `alone_starts` are counted."""
    start_rate: StartRate = 0
    """Maximum job starts per second; 0: no limit."""
    start_rate_node: StartRate = 0
    """Maximum job starts per second on one node; 0: no limit."""
    queue_slack: dict[QueueName, SlackText] = Field(default_factory=dict)
    """Slack of single queues: `{ short = "10m", long = "4h+1w", scratch = "off" }`."""
    end_allowance: Seconds = 120
    """How long a running job still holds its resources after its walltime, until the server has ended it."""
    overrun_step: Step = 60
    """After the allowance, its end is expected this far ahead, doubling each time."""
    overrun_most: Step = 3600
    """The longest such step."""
    overrun_blocked: Seconds = 6 * 3600
    """After this overrun the nodes count as blocked, and an alert opens."""
    default_walltime: Step = 24 * 3600
    """Walltime of jobs that request none, if neither queue nor server has a default; every answer says so."""
    node_grace: Seconds = 300
    """Time after which planned jobs are moved off a node that is down."""
    hole_failures: int = Field(default=5, ge=0, le=100_000)
    """A node is closed after this many early failures or refusals of jobs in a row; 0: never."""
    hole_users: int = Field(default=2, ge=1, le=100_000)
    """Least number of users to whom the jobs of `hole_failures` must belong."""
    hole_within: Seconds = 60
    """A failure is early within this time of the job's start."""
    adapter_silence: int = Field(default=60, ge=5, le=3600)
    """Without contact with the adapter for this long, every answer and page says that the plan may be out of
    date, and an alert is open until contact is back. In seconds."""
    clock_apart: Step = 2
    """An alert is open while the clocks of daemon, adapter and server differ by more than this: starts are
    early or late by the difference."""
    decision_expiry: Step = 60
    """A run decision without an answer becomes void after this."""
    answer_grace: Seconds = 30
    """A run decision with unknown outcome counts as never carried out this long after its expiry."""
    start_wait: Step = 3600
    """An accepted run that does not start is given up after this."""
    busy_wait: Step = 1
    """A start refused as "busy for now" is retried on the same nodes after this."""
    busy_retries: int = Field(default=5, ge=0, le=1000)
    """Number of such retries; then it counts as any other refusal."""
    check_wait: Step = 5
    """First wait after a refusal by the adapter's own check, doubling each time."""
    refusal_wait: Step = 30
    """First wait after a start that the server refused, doubling each time."""
    refusal_most: Step = 3600
    """Longest such wait."""
    hook_refusal_most: Step = 120
    """Longest wait after a refusal by a `runjob` hook, which may accept the same start a moment later."""
    returns_most: int = Field(default=3, ge=1, le=1000)
    """A job that returned to its queue this often after an accepted start is set aside."""
    returns_within: Seconds = 60
    """A run shorter than this that ends in the queue again counts as a return, a longer one as a requeue."""
    server_grace: Seconds = 180
    """Nodes that have not reported to a restarted server keep their planned jobs for this long; a large loss
    of jobs or nodes is believed after it."""
    snapshot_loss: float = Field(default=0.2, ge=0, le=1)
    """A snapshot that loses more than this share of the jobs or nodes at once is rejected."""
    publish_threshold: Seconds = 60
    """A new start of a job is published to users and the server only if it moved by more than this. The
    attributes written on the server are set in pbs-adapter.toml."""
    publish_pause: Seconds = 0
    """Minimum time between two published starts of a job, so that starts do not flicker. Jobs that are now
    planned to start within 10 minutes, and jobs that lost their start, are updated at once, but jobs with
    such a published start at most twice a minute. A start within seconds is not published."""
    publish_hold: Seconds = 0
    """Time after the publication of a start in which searches and backfilling delay it by no more than
    `publish_threshold`. Jobs of higher priority or with an earlier deadline and outages may. 0: only promises
    limit delays."""
    publish_rate: int = Field(default=500, ge=0, le=100_000)
    """Maximum number of starts published to the server per second; 0: none."""
    node_rule: Literal["exact", "pack"] = "exact"
    """Requests of the form `nodes=`: with `exact` every unit gets a node of its own, with `pack` units may
    share nodes."""
    mem_per_core: int = Field(default=0, ge=0, le=1 << 40)
    """KiB per core planned for jobs that request no memory; 0: none."""
    backfill: Literal["oldest", "shortest"] = "oldest"
    """Backfilling: `oldest` gives free capacity to the oldest fitting job, `shortest` to the job with the
    shortest expected run time, bounded by age and promises (docs/developers/optimisation.md)."""
    search_every: Whole = Field(default=300, ge=0, le=86_400)
    """Time between two searches for a better plan, if the plan changed; 0: no searches of any kind."""
    search_pause: Whole = Field(default=30, ge=1, le=86_400)
    """The same, if capacity was freed meanwhile."""
    search_newcomers: Whole = Field(default=5, ge=0, le=86_400)
    """Time after the last search until new jobs, and jobs that fit into room freed early, are tried in front
    of others; 0: never."""
    search_seconds: FloatSeconds = Field(default=2.0, gt=0, le=600)
    """Maximum duration of a search; events are handled meanwhile."""
    search_threads: int = Field(default=1, ge=1, le=16)
    """Number of searches at the same time; the best is taken: better plans of a long queue. Each
    uses a core while it runs, and takes memory for another copy of the plan. The planner needs a core,
    too."""
    search_patience: Seconds = PATIENCE
    """Searches move back no job that has waited this long, except by up to a twelfth of it
    (docs/developers/optimisation.md)."""
    repair_slice: int = Field(default=16_000, ge=1, le=10**9)
    """Work between two checks for new events; the default is about half a millisecond."""
    priority_every: Whole = Field(default=300, ge=1, le=86_400)
    """How often the priorities of all jobs are calculated again."""
    priority_tries: int = Field(default=1000, ge=0, le=10**6)
    """Maximum number of jobs that are then tried in front of jobs of lower priority, the highest first."""
    batch_limit: int = Field(default=30, ge=0, le=86_400)
    """A batch of events that takes more than this many seconds of processor time is skipped; large batches
    get more. 0: never."""
    log_batches: int = Field(default=10_000, ge=1, le=10**7)
    """Batches of events kept in memory for `schedd rerun`."""
    log_weight: int = Field(default=200_000, ge=1, le=10**9)
    """Maximum number of events, and of jobs and nodes of snapshots, kept there."""
    validate_: bool = Field(default=False, alias="validate")
    """Check all invariants after every batch: for tests, much too slow for production."""

    def predicts(self, queue: str) -> bool:  # noqa: ARG002  # as in the feature that replaces it
        """Whether the run times of a queue's jobs are predicted, and their starts expected."""
        return False


if TYPE_CHECKING:

    class PlanningSettings(KernelPlanningSettings):
        """The settings with those of all features."""

else:
    PlanningSettings = create_model(
        "PlanningSettings",
        __base__=(*(one.model for one in cluster_fields()), KernelPlanningSettings),
        __doc__=KernelPlanningSettings.__doc__,
        __module__=__name__,
    )


class EngineSettings(PlanningSettings):
    """All settings of one engine."""

    mode: Literal["scheduler", "adviser", "shadow"] = "scheduler"
    """``scheduler`` starts jobs; ``adviser`` only publishes planned starts; ``shadow`` does neither."""
    publish_starts: bool = True
    """Rules for displayed starts of jobs, for people and for the server (``facts.displayed_start``)."""
    silent: bool = False
    """Publish starts to users only, not to the server."""
    weights: Mapping[str, float] = Field(
        default_factory=lambda: {str(c): w for c, w in DEFAULT_WEIGHTS.items()}
    )
    """What a plan is judged by when a search found another: criteria of ``schedd.plan.evaluate``."""
    site: ParsedSite = Field(default_factory=lambda: site_policy({}))
    """The site's policy, parsed once; stored as the plain values from which it was parsed."""

    @property
    def criteria(self) -> Mapping[str, float]:
        """The weights in force: the site's policy goes before ``weights``."""
        return self.site.criteria or self.weights
