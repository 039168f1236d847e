"""Settings of the automatic choice of alternative plans: ``[clusters.NAME.site.choose]``."""

from typing import Final

from pydantic import Field

from schedd.alternatives.objective_weights import ObjectiveWeights
from schedd.policy.feature_settings import FeatureSettings
from schedd.wire.section import Section
from schedd.wire.times import Whole


class ChooseSettings(Section):
    """Alternative plans are searched for automatically, and the best by `objectives` is put in force. See
    docs/administrators/alternatives.md.
    """

    every: Whole = Field(default=0, ge=0, le=7 * 86_400)
    """Time between two searches; 0: never."""
    seconds: float = Field(default=10.0, ge=0.1, le=50)
    """Duration of each search, in seconds."""
    gain: float = Field(default=0.02, ge=0, le=1)
    """A plan is taken only if it is better than the live plan by this share, by the weighted objectives."""
    tolerance: float = Field(default=0.1, ge=0, le=1)
    """A plan is not taken if more than this share of the jobs came, went or moved since it was found."""
    limits: ObjectiveWeights = Field(default_factory=dict)
    """A plan beyond any of these values is not taken, unless the live plan is no better there; by objective,
    in its unit: `{ wait_max = 86400 }`."""


SETTINGS: Final = FeatureSettings(
    table="choose",
    model=ChooseSettings,
    about="Automatic choice of alternative plans: `[clusters.main.site.choose]`.",
    heading="Searches and alternative plans",
)
