"""Settings of deadlines with a probability: ``[clusters.NAME.site.deadline_forecasts]``."""

from typing import Final

from pydantic import Field

from schedd.policy.feature_settings import FeatureSettings
from schedd.wire.section import Section
from schedd.wire.times import Whole


class DeadlineForecastSettings(Section):
    """Deadlines with a probability, such as `+6:00:00@95%`. Such a deadline is accepted if the job ends in
    time with this probability, by a forecast. It changes nothing in the plan. See
    docs/administrators/deadlines.md.
    """

    admission: bool = True
    """Whether deadlines with a probability are accepted or refused. If not, they are wishes, and nothing is
    forecast."""
    node_failures: Whole = Field(default=365 * 86_400, ge=3600, le=3650 * 86_400)
    """Mean time between the failures of a node on a new site. Each failure of the site's own counts as much
    as this assumption."""


SETTINGS: Final = FeatureSettings(
    table="deadline_forecasts",
    model=DeadlineForecastSettings,
    about="Deadlines with a probability: `[clusters.main.site.deadline_forecasts]`.",
    heading="Deadlines with a probability",
)
