"""Settings of the engine, with their defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from schedd.plan.evaluate import DEFAULT_WEIGHTS
from schedd.plan.latest_starts import PATIENCE

__all__ = [
    "SITE_PUBLISH_HOLD",
    "SITE_PUBLISH_PAUSE",
    "SITE_SLACK",
    "SITE_SLACK_SHARE",
    "SITE_START_RATE",
    "SITE_START_RATE_NODE",
    "EngineSettings",
]

SITE_SLACK: Final = 3_600
"""Default slack of a site in seconds: docs/developers/decisions/007."""
SITE_SLACK_SHARE: Final = 0.5
"""And so large a share of the wait."""
SITE_START_RATE: Final = 50
"""Default limit of job starts per second: the load that a server can take along with its other work."""
SITE_START_RATE_NODE: Final = 10
"""And on one node."""
SITE_PUBLISH_PAUSE: Final = 60
"""Default pause in seconds between two published starts of one job: a plan in motion settles within it."""
SITE_PUBLISH_HOLD: Final = 600
"""Default time in seconds for which the optimiser keeps a published start: decision 162."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Seconds unless said otherwise.

    ``policy`` is ``conservative`` (plan every job, fill gaps, repair) or a queue policy of
    ``schedd.policy.queue_policies``, for comparison.
    """

    policy: str = "conservative"
    mode: Literal["scheduler", "adviser", "shadow"] = "scheduler"
    """``scheduler`` starts jobs; ``adviser`` only publishes planned starts; ``shadow`` does neither."""
    alone: bool = True
    """As scheduler, stop starting jobs after several starts of unknown origin."""
    alone_starts: int = 3
    """Number of starts of unknown origin that indicate another scheduler."""
    alone_within: int = 600
    """If they start within this."""
    start_rate: int = 0
    """Jobs started a second at most; 0: no limit."""
    start_rate_node: int = 0
    """Jobs started a second on one node at most; 0: no limit."""
    slack: int = 0
    """Added to the planned start to make the promised one; a site gets ``SITE_SLACK`` unless it chooses."""
    slack_share: float = 0.0
    """And this share of the wait that is planned then."""
    queue_slack: Mapping[str, str] = field(default_factory=dict)
    """Instead of both, for the jobs of some queues: see ``Slack.parse``."""
    end_allowance: int = 120
    """A running job that has not ended by its walltime holds its resources this long, taken step by step."""
    overrun_step: int = 60
    """Later extensions of the assumed end in seconds, doubled each time."""
    overrun_most: int = 3600
    overrun_blocked: int = 6 * 3600
    """An overrun of this length blocks the nodes and raises an alert."""
    default_walltime: int = 24 * 3600
    """For a job without walltime where neither queue nor server has a default; marked assumed."""
    node_grace: int = 300
    """Planned jobs leave a node that is down only after this."""
    hole_failures: int = 5
    """A node with this many consecutive early failures gets no new jobs; 0: never."""
    hole_users: int = 2
    """Minimum number of users of these jobs."""
    hole_within: int = 60
    """And each failed within this of its start."""
    adapter_silence: int = 60
    """The plan counts as out of date after this silence of the adapter. Checked by the shell."""
    clock_apart: int = 2
    """Clocks that are further apart are an alert. The shell sees to it."""
    decision_expiry: int = 60
    answer_grace: int = 30
    """A run decision without an outcome this long after its expiry counts as not carried out."""
    start_wait: int = 3600
    """An accepted run that is not seen to start is given up after this."""
    busy_wait: int = 1
    """A start refused as "busy for now" is tried again on the same nodes after this."""
    busy_retries: int = 5
    """Number of such attempts; the next one counts as an ordinary refusal."""
    check_wait: int = 5
    """First wait after a refusal by the adapter's own check, doubling each time."""
    refusal_wait: int = 30
    """First wait after a start refused by the server, doubling each time."""
    refusal_most: int = 3600
    hook_refusal_most: int = 120
    """Longest wait after a refusal by a runjob hook: it may accept the same start a moment later."""
    returns_most: int = 3
    """A job that came back to its queue this often after a run was accepted is set aside."""
    returns_within: int = 60
    """A run of less than this that ends in the queue again counts as a return, a longer one as a requeue."""
    server_grace: int = 180
    """Nodes that have not reported to a restarted server are not given up before this time. A larger loss
    than `snapshot_loss` is believed when snapshots insist on it for as long.
    """
    snapshot_loss: float = 0.2
    """A snapshot that loses more than this share of the jobs or nodes at once is not believed."""
    publish_starts: bool = True
    """Rules for displayed starts of jobs, for people and for the server (``facts.displayed_start``)."""
    silent: bool = False
    """Publish starts to users only, not to the server."""
    publish_threshold: int = 60
    """Minimum move of a start that is published again."""
    publish_pause: int = 0
    """Minimum time between two publications for one job; a site gets ``SITE_PUBLISH_PAUSE``."""
    publish_hold: int = 0
    """Seconds after its publication in which searches and backfilling do not delay a start; a site gets
    ``SITE_PUBLISH_HOLD``.
    """
    publish_rate: int = 500
    """Maximum number of attribute writes per second."""
    node_rule: Literal["exact", "pack"] = "exact"
    """Requests by node count (``nodes=``): every unit a node of its own, or units may share."""
    mem_per_core: int = 0
    """KiB per core planned for jobs that ask for no memory; 0 plans none."""
    backfill: Literal["oldest", "shortest"] = "oldest"
    """Order of jobs that get free capacity: longest waiting first, or shortest expected run time first,
    bounded by age and promises (``plan.backfill``).
    """
    search_every: int = 300
    """Interval of searches in seconds, if the plan changed; 0: no searches of any kind."""
    search_pause: int = 30
    """One begins as early as this after the last one when room was freed."""
    search_newcomers: int = 5
    """This long after the last search, new jobs, and jobs that fit into capacity freed early, are tried
    before others; 0: never.
    """
    search_seconds: float = 2.0
    """Maximum duration of a search."""
    search_threads: int = 1
    """Number of searches at the same time, each on a core."""
    search_patience: int = PATIENCE
    """No search delays a job that has waited this long by more than a twelfth of it.

    See docs/developers/optimisation.md.
    """
    predict: bool = False
    """Learn how long jobs run, and take over when they are expected to start; a site does unless it chooses
    otherwise."""
    predict_from: str = ""
    """The server's accounting logs: where the shell finds what jobs did before the first start."""
    queue_predict: Mapping[str, bool] = field(default_factory=dict)
    """Instead of it, for the jobs of some queues."""
    weights: Mapping[str, float] = field(
        default_factory=lambda: {str(c): w for c, w in DEFAULT_WEIGHTS.items()}
    )
    """What a plan is judged by when a search found another: criteria of ``schedd.plan.evaluate``."""
    repair_slice: int = 16_000
    """Visited segments between two looks for new events: about half a millisecond."""
    priority_every: int = 300
    """Priorities of all jobs are worked out again after this."""
    priority_tries: int = 1000
    """Maximum number of jobs, by priority, that are then tried before others."""
    batch_limit: int = 30
    """Limit of the processor time of a batch; a batch beyond it is skipped. Large batches get more. 0: no
    limit."""
    log_batches: int = 10_000
    """Batches kept since the last checkpoint, for replaying an incident."""
    log_weight: int = 200_000
    """Events, and jobs and nodes of snapshots, kept in that log."""
    site: Mapping[str, Any] = field(default_factory=dict)
    """The site's policy as plain values: see ``schedd.policy.site``."""
    validate: bool = False
    """Check all invariants after every batch; costly."""

    def predicts(self, queue: str) -> bool:
        """Whether the run times of a queue's jobs are predicted, and their starts expected."""
        return self.predict and self.queue_predict.get(queue, True)

    @property
    def criteria(self) -> Mapping[str, float]:
        """The weights in force: the site's policy goes before ``weights``."""
        return self.site.get("criteria") or self.weights
