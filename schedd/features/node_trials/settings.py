"""Settings of trials: ``[clusters.NAME.site.node_trials]``."""

from typing import Final

from schedd.policy.feature_settings import FeatureSettings
from schedd.wire.section import Section
from schedd.wire.times import Seconds, Step


class NodeTrialSettings(Section):
    """Trials of nodes that get no new jobs because jobs failed on them (`hole_failures`).

    After a pause one short job may try the node, which opens again if the job succeeds.
    """

    pause: Seconds = 600
    """Time until the first trial; it doubles after each failed trial. It is at most a minute if the node only
    refuses jobs, or if they return to their queue. 0: no trials; the node then opens only after it was down,
    or after an administrator set it offline.
    """
    longest_pause: Step = 86_400
    """Maximum of this pause."""
    walltime: Step = 3_600
    """Maximum walltime of a job that tries a node."""


SETTINGS: Final = FeatureSettings(
    table="node_trials",
    model=NodeTrialSettings,
    about="Trials of nodes on which jobs failed: `[clusters.main.site.node_trials]`.",
    heading="Trials of nodes on which jobs failed",
)
