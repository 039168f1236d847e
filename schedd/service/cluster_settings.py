"""What one cluster is told: how its engine plans, and what the site wants."""

import json
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from schedd.engine import EngineSettings
from schedd.engine.settings import (
    SITE_SLACK,
    SITE_SLACK_SHARE,
    SITE_START_RATE,
    SITE_START_RATE_NODE,
    SITE_TELL_PAUSE,
)
from schedd.engine.slack import Slack
from schedd.service.section import Section
from schedd.service.site_settings import SiteSettings
from schedd.wire.times import FloatSeconds, InWords, Seconds, Step, Whole

__all__ = ["ClusterSettings"]

QueueName = Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]{1,255}$")]
SlackText = Annotated[
    str,
    BeforeValidator(lambda value: str(Slack.parse(value if isinstance(value, str) else json.dumps(value)))),
    InWords("time, share of the wait (`0.5w`), their sum, or `off`"),
]
_DEFAULTS = EngineSettings()
_MOVED: Final = {
    "mode": "mode in pbs-adapter.toml says it, for both; remove it here",
    "tell": "comment, start_time and planned in [tell] of pbs-adapter.toml say what is written; remove it "
    "here",
    "weights": "write it as criteria in [clusters.NAME.site]",
    "slack_share": 'write it into slack, such as slack = "1h+0.5w"',
}
"""Settings that had two homes, or two names: docs/decisions/011."""


class ClusterSettings(Section):
    """One cluster: how its engine plans. Changes count after a reload for what is decided
    from then on, but for `policy`, which needs a restart, as do clusters that come or go.
    """

    policy: Literal["conservative", "fcfs", "sjf", "easy", "aggressive"] = "conservative"
    """`conservative` plans every job, fills gaps and repairs; the others are queue policies for comparison,
    which plan no starts."""
    alone: bool = _DEFAULTS.alone
    """As scheduler, stop starting jobs when several start that nobody here started."""
    alone_starts: int = Field(default=_DEFAULTS.alone_starts, ge=1, le=100_000)
    """So many starts that nobody is known to have made by hand are another scheduler's."""
    alone_within: Step = _DEFAULTS.alone_within
    """If they happen within so many seconds."""
    start_rate: int = Field(default=SITE_START_RATE, ge=0, le=100_000)
    """Jobs started a second at most; 0: no limit."""
    start_rate_node: int = Field(default=SITE_START_RATE_NODE, ge=0, le=100_000)
    """Jobs started a second on one node at most; 0: no limit."""
    slack: SlackText = str(Slack(SITE_SLACK, SITE_SLACK_SHARE))
    """How much later than first told a job may start: a time, a share of the wait planned then, or both. With
    `1h+0.5w` a job that is told to wait 4 hours is promised to wait no longer than 7. With `0` nothing that
    was told is ever put back, and priorities and searches have next to nothing to work with. With `off` jobs
    are told their starts, and promised nothing."""
    queue_slack: dict[QueueName, SlackText] = Field(default_factory=dict)
    """Instead of it, for the jobs of some queues: `{ short = "10m", long = "4h+1w", scratch = "off" }`."""
    end_allowance: Seconds = _DEFAULTS.end_allowance
    """A running job that has not ended by its walltime holds its resources this long, taken step by step."""
    overrun_step: Step = _DEFAULTS.overrun_step
    """After the allowance, its end is taken as this far away, doubling each time."""
    overrun_most: Step = _DEFAULTS.overrun_most
    """The largest such step."""
    overrun_blocked: Seconds = _DEFAULTS.overrun_blocked
    """An overrun this long counts the nodes as blocked and alerts the admin."""
    default_walltime: Step = _DEFAULTS.default_walltime
    """For jobs without walltime where neither queue nor server has a default; said in every answer."""
    node_grace: Seconds = _DEFAULTS.node_grace
    """Planned jobs leave a node that is down only after this."""
    hole_failures: int = Field(default=_DEFAULTS.hole_failures, ge=0, le=100_000)
    """A node on which so many jobs in a row fail soon gets no new jobs; 0: never."""
    hole_users: int = Field(default=_DEFAULTS.hole_users, ge=1, le=100_000)
    """If they are of so many users."""
    hole_within: Seconds = _DEFAULTS.hole_within
    """And each failed within this of its start."""
    adapter_silence: int = Field(default=_DEFAULTS.adapter_silence, ge=5, le=3600)
    """When the adapter is not heard of for longer, every answer and page says that the plan may be out of
    date, and an alert is open until it is heard of again."""
    clock_apart: Step = _DEFAULTS.clock_apart
    """When the clocks of the daemon, the adapter and the server are further apart, an alert is open: starts
    would be early or late by as much."""
    decision_expiry: Step = _DEFAULTS.decision_expiry
    """A run decision that nobody answered is void after this."""
    answer_grace: Seconds = _DEFAULTS.answer_grace
    """A run decision whose outcome is not known so long after its expiry is taken as never carried out."""
    start_wait: Step = _DEFAULTS.start_wait
    """An accepted run that is not seen to start is given up after this."""
    busy_wait: Step = _DEFAULTS.busy_wait
    """A start refused as "busy for now" is tried again on the same nodes after this."""
    busy_retries: int = Field(default=_DEFAULTS.busy_retries, ge=0, le=1000)
    """So many times; then it is a refusal like any other."""
    check_wait: Step = _DEFAULTS.check_wait
    """The first wait after a refusal by the adapter's own check, doubling each time."""
    refusal_wait: Step = _DEFAULTS.refusal_wait
    """The first wait after a run that the server refused, doubling each time."""
    refusal_most: Step = _DEFAULTS.refusal_most
    """The longest such wait."""
    returns_most: int = Field(default=_DEFAULTS.returns_most, ge=1, le=1000)
    """A job that came back to its queue this often after its run was accepted is set aside."""
    returns_within: Seconds = _DEFAULTS.returns_within
    """A run of less than this that ends in the queue again counts as a return, a longer one as a requeue."""
    server_grace: Seconds = _DEFAULTS.server_grace
    """A snapshot of a server that is up for less is not believed."""
    snapshot_loss: float = Field(default=_DEFAULTS.snapshot_loss, ge=0, le=1)
    """Nor is one that loses more than this share of the jobs or of the nodes at once."""
    tell_threshold: Seconds = _DEFAULTS.tell_threshold
    """People are shown another start of a job, and the server is told it, only when it moved by more; what is
    written at the server, the adapter's settings say."""
    tell_pause: Seconds = SITE_TELL_PAUSE
    """And so long after the last time, so that a plan in motion is not seen to flicker; of a job that starts
    within 10 minutes at once."""
    tell_rate: int = Field(default=_DEFAULTS.tell_rate, ge=0, le=100_000)
    """The server is told at most so many a second, and people see what it was told; 0: people alone are
    told."""
    node_rule: Literal["exact", "pack"] = _DEFAULTS.node_rule
    """TORQUE's `nodes=`: `exact` gives every unit a node of its own, `pack` lets units share nodes."""
    mem_per_core: int = Field(default=_DEFAULTS.mem_per_core, ge=0, le=1 << 40)
    """KiB per core planned for jobs that ask for no memory; 0 plans none."""
    search_every: Whole = Field(default=_DEFAULTS.search_every, ge=0, le=86_400)
    """A search begins so long after the last one, if the plan changed since; 0: none of any kind begins."""
    search_pause: Whole = Field(default=_DEFAULTS.search_pause, ge=1, le=86_400)
    """One begins as early as this after the last one when room was freed."""
    search_newcomers: Whole = Field(default=_DEFAULTS.search_newcomers, ge=0, le=86_400)
    """So long after the last search jobs that came since, and those that would fit into room that came back
    before the plan had it free, are tried in front of others; 0: never."""
    search_seconds: FloatSeconds = Field(default=_DEFAULTS.search_seconds, gt=0, le=600)
    """A search takes so long at most; events go on meanwhile."""
    search_patience: Seconds = _DEFAULTS.search_patience
    """Who waited so long is moved back by no search, but within a twelfth of it (docs/optimisation.md)."""
    predict: bool = True
    """Learn how long jobs run, and tell when they are expected to start (P50 and P90). Off: what was learned
    is forgotten. Walltimes remain the law for killing and for promises in any case."""
    predict_from: Annotated[str, Field(pattern=r"^[^\x00-\x1f]*$", max_length=4096)] = ""
    """The server's accounting logs, a file or a directory of daily ones (`server_priv/accounting`): what jobs
    did in the last year is read from there at the first start, so that predictions do not begin blind."""
    queue_predict: dict[QueueName, bool] = Field(default_factory=dict)
    """Instead of it, for the jobs of some queues: `{ debug = false }`."""
    repair_slice: int = Field(default=_DEFAULTS.repair_slice, ge=1_000, le=10**9)
    """Work between two looks for new events; the default is about half a millisecond."""
    priority_every: Whole = Field(default=_DEFAULTS.priority_every, ge=1, le=86_400)
    """After this the priorities of all jobs are worked out again."""
    priority_tries: int = Field(default=_DEFAULTS.priority_tries, ge=0, le=10**6)
    """So many jobs at most are then tried before others of lower priority, the highest first."""
    batch_limit: int = Field(default=_DEFAULTS.batch_limit, ge=0, le=86_400)
    """A batch that is not handled within so many seconds is passed over; large ones get more. 0: never."""
    log_batches: int = Field(default=_DEFAULTS.log_batches, ge=1, le=10**7)
    """Batches of events kept in memory for running an incident again."""
    log_weight: int = Field(default=_DEFAULTS.log_weight, ge=1, le=10**9)
    """Events, and jobs and nodes of snapshots, kept there at most."""
    site: SiteSettings = Field(default_factory=SiteSettings)
    """What the site wants beyond what the server knows; see below."""
    validate_: bool = Field(default=_DEFAULTS.validate, alias="validate")
    """Check every invariant after every batch: for tests, much too slow for production."""

    @property
    def engine(self) -> EngineSettings:
        """The same for the engine."""
        slack = Slack.parse(self.slack)
        plain = self.model_dump(by_alias=True, exclude={"site", "slack", "tell_rate"})
        return EngineSettings(
            **plain,
            slack=slack.seconds,
            slack_share=slack.share,
            silent=self.tell_rate == 0,
            tell_rate=self.tell_rate or 1,
            site=self.site.plain,
        )

    @model_validator(mode="after")
    def _keep_what_may_run(self) -> Self:
        if self.start_wait < self.decision_expiry + self.answer_grace:
            least = self.decision_expiry + self.answer_grace
            raise ValueError(
                f"start_wait = {self.start_wait}: an accepted start is to be awaited at least as long as one "
                f"that was not answered, decision_expiry + answer_grace = {least}, or a job could start twice"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _one_home(cls, given: Any) -> Any:
        """What stood in two places is refused in the one that it left."""
        for name, words in _MOVED.items():
            if isinstance(given, dict) and name in given:
                raise ValueError(f"{name} stands elsewhere: {words}")
        return given
