"""Settings of trials: ``[clusters.NAME.site.node_trials]``."""

from typing import Final

from schedd.policy.feature_settings import FeatureSettings
from schedd.wire.section import Section
from schedd.wire.times import Seconds, Step


class NodeTrialSettings(Section):
    """How a node opens again that gets no new jobs because jobs fail on it (`hole_failures`).

    After a pause one short job may try it.
    """

    pause: Seconds = 600
    """Time until the first trial; it doubles with each trial that fails. At most a minute while the node only
    refuses jobs, or they come back to their queue. 0: no trials, the node opens only when an administrator
    has set it offline, or it was down."""
    longest_pause: Step = 86_400
    """The longest such pause."""
    walltime: Step = 3_600
    """The longest walltime of a job that tries a node."""


SETTINGS: Final = FeatureSettings(
    table="node_trials",
    model=NodeTrialSettings,
    about="Trials of nodes on which jobs failed: `[clusters.main.site.node_trials]`.",
    heading="Trials of nodes on which jobs failed",
)
