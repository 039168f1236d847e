"""Settings of walltime extensions: ``[clusters.NAME.site.walltime_extensions]``."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from schedd.policy.feature_settings import FeatureSettings
from schedd.policy.job_selection import JobSelection
from schedd.wire.section import Section, SettingConflictError
from schedd.wire.times import Seconds, Step

_LEAST_BEFORE_S: Final = 60


class WalltimeExtensionSettings(Section):
    """Extensions of the walltimes of runs that are about to reach them. They break no promise. Not with a
    queue `policy`. See docs/administrators/extensions.md.
    """

    jobs: JobSelection = JobSelection()
    """Jobs that may be extended: `{queues = ["long"], users = ["ann"]}`. Without it no job is."""
    step: Step = 1_800
    """Maximum time that one extension adds. If not enough is free, a half or a quarter of it is added."""
    times: Annotated[int, Field(ge=1, le=1_000)] = 1
    """Maximum number of extensions of one run."""
    before: Step = 300
    """An extension is decided this long before the end of the walltime; at least a minute."""
    delay: Seconds = 0
    """The planned start of another job may move later by at most this, and never beyond its promise. 0: only
    time that no planned job needs is used."""


def _check_site(plain: Mapping[str, Any]) -> None:
    """Raise SettingConflictError for a time that is too short to reach the server."""
    before = (plain.get("walltime_extensions") or {}).get("before", _LEAST_BEFORE_S)
    if before < _LEAST_BEFORE_S:
        raise SettingConflictError(
            ("walltime_extensions", "before"), "the server needs time for the request: set at least 1m"
        )


SETTINGS: Final = FeatureSettings(
    table="walltime_extensions",
    model=WalltimeExtensionSettings,
    check=_check_site,
    about="Extensions of walltimes: `[clusters.main.site.walltime_extensions]`.",
    heading="Walltime extensions",
)
