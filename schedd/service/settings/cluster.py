"""Settings of one cluster: its engine, and the site's policy."""

from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from schedd.policy.engine_settings import (
    SITE_PUBLISH_HOLD,
    SITE_PUBLISH_PAUSE,
    SITE_SLACK,
    SITE_START_RATE,
    SITE_START_RATE_NODE,
    EngineSettings,
    PlanningSettings,
    SlackText,
    StartRate,
)
from schedd.policy.site import site_policy
from schedd.service.settings.site import SiteSettings
from schedd.wire.times import Seconds

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


class ClusterSettings(PlanningSettings):
    """One cluster: how its engine plans. Changes apply after a reload to later decisions, except `policy`,
    which needs a restart, as do clusters that are added or removed.
    """

    policy: Literal["conservative", "fcfs", "sjf", "easy", "aggressive"] = "conservative"
    start_rate: StartRate = SITE_START_RATE
    start_rate_node: StartRate = SITE_START_RATE_NODE
    slack: SlackText = str(SITE_SLACK)
    publish_pause: Seconds = SITE_PUBLISH_PAUSE
    publish_hold: Seconds = SITE_PUBLISH_HOLD
    predict: bool = True
    site: SiteSettings = Field(default_factory=SiteSettings)
    """Rules of the site beyond the server's; see below."""

    @property
    def engine(self) -> EngineSettings:
        """The settings in the engine's form."""
        plain = self.model_dump(by_alias=True, exclude={"site", "publish_rate"})
        return EngineSettings(
            **plain,
            silent=self.publish_rate == 0,
            publish_rate=self.publish_rate or 1,
            site=site_policy(self.site.plain),
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
