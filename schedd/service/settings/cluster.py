"""Settings of one cluster: its engine, and the site's policy."""

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, create_model, model_validator

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
from schedd.policy.feature_settings import site_defaults
from schedd.policy.site import site_policy
from schedd.service.settings.site import SiteSettings
from schedd.wire.times import Seconds


class KernelClusterSettings(PlanningSettings):
    """One cluster: how its engine plans. Changes apply after a reload to later decisions, except `policy`,
    which needs a restart, as do clusters that are added or removed.
    """

    policy: Literal["conservative", "fcfs", "sjf", "easy", "aggressive"] = "conservative"
    start_rate: StartRate = SITE_START_RATE
    start_rate_node: StartRate = SITE_START_RATE_NODE
    slack: SlackText = str(SITE_SLACK)
    publish_pause: Seconds = SITE_PUBLISH_PAUSE
    publish_hold: Seconds = SITE_PUBLISH_HOLD
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


if TYPE_CHECKING:

    class ClusterSettings(KernelClusterSettings):
        """The settings with the file's defaults of all features."""

else:
    ClusterSettings = create_model(
        "ClusterSettings",
        __base__=KernelClusterSettings,
        __doc__=KernelClusterSettings.__doc__,
        __module__=__name__,
        **{
            name: (KernelClusterSettings.model_fields[name].annotation, value)
            for name, value in site_defaults().items()
        },
    )
