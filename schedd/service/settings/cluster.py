"""Settings of one cluster: its engine, and the site's policy."""

import json
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from schedd.engine import (
    SITE_PUBLISH_HOLD,
    SITE_PUBLISH_PAUSE,
    SITE_SLACK,
    SITE_SLACK_SHARE,
    SITE_START_RATE,
    SITE_START_RATE_NODE,
    EngineSettings,
)
from schedd.engine.facts.slack import Slack
from schedd.service.settings.site import SiteSettings
from schedd.wire.section import Section
from schedd.wire.times import AllowedValues, FloatSeconds, Seconds, Step, Whole

__all__ = ["ClusterSettings"]

QueueName = Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]{1,255}$")]
SlackText = Annotated[
    str,
    BeforeValidator(lambda value: str(Slack.parse(value if isinstance(value, str) else json.dumps(value)))),
    AllowedValues("time, share of the wait (`0.5w`), their sum, or `off`"),
]
_DEFAULTS = EngineSettings()
_MOVED: Final = {
    "mode": "mode in pbs-adapter.toml says it, for both; remove it here",
    "tell": "comment, start_time and planned in [tell] of pbs-adapter.toml say what is written; remove it "
    "here",
    "tell_threshold": "it is called publish_threshold now",
    "tell_pause": "it is called publish_pause now",
    "tell_rate": "it is called publish_rate now",
    "weights": "write it as criteria in [clusters.NAME.site]",
    "slack_share": 'write it into slack, such as slack = "1h+0.5w"',
}
"""Settings that were moved or renamed: docs/developers/decisions/011."""


class ClusterSettings(Section):
    """One cluster: how its engine plans. Changes apply after a reload to later decisions, except `policy`,
    which needs a restart, as do clusters that are added or removed.
    """

    policy: Literal["conservative", "fcfs", "sjf", "easy", "aggressive"] = "conservative"
    """`conservative` plans every job, fills gaps and repairs; the others are queue policies for comparison,
    which plan no starts."""
    alone: bool = _DEFAULTS.alone
    """In the mode `scheduler`, stop starting jobs when another scheduler seems to start jobs, too."""
    alone_starts: int = Field(default=_DEFAULTS.alone_starts, ge=1, le=100_000)
    """Number of unexplained starts that count as another scheduler's,"""
    alone_within: Step = _DEFAULTS.alone_within
    """if they happen within this time."""
    start_rate: int = Field(default=SITE_START_RATE, ge=0, le=100_000)
    """Maximum job starts per second; 0: no limit."""
    start_rate_node: int = Field(default=SITE_START_RATE_NODE, ge=0, le=100_000)
    """Maximum job starts per second on one node; 0: no limit."""
    slack: SlackText = str(Slack(SITE_SLACK, SITE_SLACK_SHARE))
    """Maximum delay of a job after its first planned start: a time, a share of its planned wait, or both.
    With
    `1h+0.5w` a job with a planned wait of 4 hours is promised to wait at most 7. With `0` no published start
    ever moves back, and priorities and searches can do very little. With `off` jobs have planned starts but
    no
    promises."""
    queue_slack: dict[QueueName, SlackText] = Field(default_factory=dict)
    """Slack of single queues: `{ short = "10m", long = "4h+1w", scratch = "off" }`."""
    end_allowance: Seconds = _DEFAULTS.end_allowance
    """How long a running job still holds its resources after its walltime, until the server has ended it."""
    overrun_step: Step = _DEFAULTS.overrun_step
    """After the allowance, its end is expected this far ahead, doubling each time."""
    overrun_most: Step = _DEFAULTS.overrun_most
    """The longest such step."""
    overrun_blocked: Seconds = _DEFAULTS.overrun_blocked
    """After this overrun the nodes count as blocked, and an alert opens."""
    default_walltime: Step = _DEFAULTS.default_walltime
    """Walltime of jobs that request none, if neither queue nor server has a default; every answer says so."""
    node_grace: Seconds = _DEFAULTS.node_grace
    """Time after which planned jobs are moved off a node that is down."""
    hole_failures: int = Field(default=_DEFAULTS.hole_failures, ge=0, le=100_000)
    """A node gets no new jobs after this many jobs in a row failed early there, or were refused by it; 0:
    never.
    """
    hole_users: int = Field(default=_DEFAULTS.hole_users, ge=1, le=100_000)
    """They must belong to at least this many users,"""
    hole_within: Seconds = _DEFAULTS.hole_within
    """and each must have failed within this time of its start."""
    adapter_silence: int = Field(default=_DEFAULTS.adapter_silence, ge=5, le=3600)
    """Without contact with the adapter for this long, every answer and page says that the plan may be out of
    date, and an alert is open until contact is back. In seconds."""
    clock_apart: Step = _DEFAULTS.clock_apart
    """An alert is open while the clocks of daemon, adapter and server differ by more than this: starts are
    early or late by the difference."""
    decision_expiry: Step = _DEFAULTS.decision_expiry
    """A run decision without an answer becomes void after this."""
    answer_grace: Seconds = _DEFAULTS.answer_grace
    """A run decision with unknown outcome counts as never carried out this long after its expiry."""
    start_wait: Step = _DEFAULTS.start_wait
    """An accepted run that does not start is given up after this."""
    busy_wait: Step = _DEFAULTS.busy_wait
    """A start refused as "busy for now" is retried on the same nodes after this."""
    busy_retries: int = Field(default=_DEFAULTS.busy_retries, ge=0, le=1000)
    """Number of such retries; then it counts as any other refusal."""
    check_wait: Step = _DEFAULTS.check_wait
    """First wait after a refusal by the adapter's own check, doubling each time."""
    refusal_wait: Step = _DEFAULTS.refusal_wait
    """First wait after a start that the server refused, doubling each time."""
    refusal_most: Step = _DEFAULTS.refusal_most
    """Longest such wait."""
    hook_refusal_most: Step = _DEFAULTS.hook_refusal_most
    """Longest wait after a refusal by a `runjob` hook, which may accept the same start a moment later."""
    returns_most: int = Field(default=_DEFAULTS.returns_most, ge=1, le=1000)
    """A job that returned to its queue this often after an accepted start is set aside."""
    returns_within: Seconds = _DEFAULTS.returns_within
    """A run shorter than this that ends in the queue again counts as a return, a longer one as a requeue."""
    server_grace: Seconds = _DEFAULTS.server_grace
    """Nodes that have not reported to a restarted server keep their planned jobs for this long; a large loss
    of jobs or nodes is believed after it."""
    snapshot_loss: float = Field(default=_DEFAULTS.snapshot_loss, ge=0, le=1)
    """A snapshot that loses more than this share of the jobs or nodes at once is rejected."""
    publish_threshold: Seconds = _DEFAULTS.publish_threshold
    """A new start of a job is published to users and the server only if it moved by more than this. The
    attributes written on the server are set in pbs-adapter.toml."""
    publish_pause: Seconds = SITE_PUBLISH_PAUSE
    """Minimum time between two published starts of a job, so that starts do not flicker. Jobs that are now
    planned to start within 10 minutes, and jobs that lost their start, are updated at once, but jobs with
    such a published start at most twice a minute. A start within seconds is not published."""
    publish_hold: Seconds = SITE_PUBLISH_HOLD
    """Time after the publication of a start in which searches and backfilling delay it by no more than
    `publish_threshold`. Jobs of higher priority or with an earlier deadline and outages may. 0: only promises
    limit delays."""
    publish_rate: int = Field(default=_DEFAULTS.publish_rate, ge=0, le=100_000)
    """Maximum number of starts published to the server per second; 0: none."""
    node_rule: Literal["exact", "pack"] = _DEFAULTS.node_rule
    """TORQUE's `nodes=`: with `exact` every unit gets a node of its own, with `pack` units may share
    nodes."""
    mem_per_core: int = Field(default=_DEFAULTS.mem_per_core, ge=0, le=1 << 40)
    """KiB per core planned for jobs that request no memory; 0: none."""
    backfill: Literal["oldest", "shortest"] = _DEFAULTS.backfill
    """Backfilling: `oldest` gives free capacity to the oldest fitting job, `shortest` to the job with the
    shortest expected run time, bounded by age and promises (docs/developers/optimisation.md)."""
    search_every: Whole = Field(default=_DEFAULTS.search_every, ge=0, le=86_400)
    """Time between two searches for a better plan, if the plan changed; 0: no searches of any kind."""
    search_pause: Whole = Field(default=_DEFAULTS.search_pause, ge=1, le=86_400)
    """The same, if room was freed meanwhile."""
    search_newcomers: Whole = Field(default=_DEFAULTS.search_newcomers, ge=0, le=86_400)
    """Time after the last search until new jobs, and jobs that fit into room freed early, are tried in front
    of others; 0: never."""
    search_seconds: FloatSeconds = Field(default=_DEFAULTS.search_seconds, gt=0, le=600)
    """Maximum duration of a search; events are handled meanwhile."""
    search_threads: int = Field(default=_DEFAULTS.search_threads, ge=1, le=16)
    """Number of searches at the same time, from which the best is taken: better plans of a long queue. Each
    uses a core while it runs, and takes memory for another copy of the plan. The planner needs a core,
    too."""
    search_patience: Seconds = _DEFAULTS.search_patience
    """Searches move back no job that has waited this long, except by up to a twelfth of it
    (docs/developers/optimisation.md)."""
    predict: bool = True
    """Learn how long jobs run, and show when they are expected to start (P50 and P90). If off, learned data
    are deleted. Walltimes remain decisive for ending jobs and for promises in any case."""
    predict_from: Annotated[str, Field(pattern=r"^[^\x00-\x1f]*$", max_length=4096)] = ""
    """The server's accounting logs, a file or the directory of daily ones (`server_priv/accounting`), or
    the output of Slurm's `sacct --parsable2`: the jobs of the last year are read from them at the first
    start, for predictions from the beginning.
    """
    queue_predict: dict[QueueName, bool] = Field(default_factory=dict)
    """The same for single queues: `{ debug = false }`."""
    repair_slice: int = Field(default=_DEFAULTS.repair_slice, ge=1_000, le=10**9)
    """Work between two checks for new events; the default is about half a millisecond."""
    priority_every: Whole = Field(default=_DEFAULTS.priority_every, ge=1, le=86_400)
    """How often the priorities of all jobs are calculated again."""
    priority_tries: int = Field(default=_DEFAULTS.priority_tries, ge=0, le=10**6)
    """Maximum number of jobs that are then tried in front of jobs of lower priority, the highest first."""
    batch_limit: int = Field(default=_DEFAULTS.batch_limit, ge=0, le=86_400)
    """A batch of events that takes more than this many seconds of processor time is skipped; large batches
    get more. 0: never."""
    log_batches: int = Field(default=_DEFAULTS.log_batches, ge=1, le=10**7)
    """Batches of events kept in memory for `schedd rerun`."""
    log_weight: int = Field(default=_DEFAULTS.log_weight, ge=1, le=10**9)
    """Maximum number of events, and of jobs and nodes of snapshots, kept there."""
    site: SiteSettings = Field(default_factory=SiteSettings)
    """Rules of the site beyond the server's; see below."""
    validate_: bool = Field(default=_DEFAULTS.validate, alias="validate")
    """Check all invariants after every batch: for tests, much too slow for production."""

    @property
    def engine(self) -> EngineSettings:
        """The settings in the engine's form."""
        slack = Slack.parse(self.slack)
        plain = self.model_dump(by_alias=True, exclude={"site", "slack", "publish_rate"})
        return EngineSettings(
            **plain,
            slack=slack.seconds,
            slack_share=slack.share,
            silent=self.publish_rate == 0,
            publish_rate=self.publish_rate or 1,
            site=self.site.plain,
        )

    @model_validator(mode="after")
    def _validate_start_wait(self) -> Self:
        if self.start_wait < self.decision_expiry + self.answer_grace:
            least = self.decision_expiry + self.answer_grace
            raise ValueError(
                f"start_wait = {self.start_wait}: an accepted start is to be awaited at least as long as one "
                f"that was not answered, decision_expiry + answer_grace = {least}, or a job could start twice"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _refuse_moved_settings(cls, given: Any) -> Any:
        """Refuse settings that were moved, with their new place."""
        for name, words in _MOVED.items():
            if isinstance(given, dict) and name in given:
                raise ValueError(f"{name} stands elsewhere: {words}")
        return given
