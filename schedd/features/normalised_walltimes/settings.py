"""Settings of normalised walltimes: ``[clusters.NAME.site.normalised_walltimes]``."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from schedd.policy.feature_settings import FeatureSettings
from schedd.wire.section import Name, Section, SettingConflictError


class NormalisedWalltimes(Section):
    """Walltimes that are stated for a reference speed: on nodes of half this speed a job is planned with
    twice its walltime, which is set on the server at its start. See
    docs/administrators/policy.md#normalised-walltimes.
    """

    speed: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    """Reference speed; without it only walltimes of jobs in `queues` are scaled."""
    queues: dict[Name, Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """Reference speeds of queues, instead of `speed`: `{ old = 0.5 }`. 0: the walltimes of the queue's jobs
    are not scaled.
    """


def _check_site(plain: Mapping[str, Any]) -> None:
    """Raise SettingConflictError for reference speeds without effect, or above the speeds of all nodes."""
    table = plain.get("normalised_walltimes")
    if table is None:
        return
    place: Final = "normalised_walltimes"
    queues: Mapping[str, float] = table.get("queues") or {}
    if table.get("speed") is None and not any(queues.values()):
        raise SettingConflictError((place,), "it has no effect: set speed, or a speed in queues")
    speeds = plain.get("speeds") or {}
    if not speeds:
        raise SettingConflictError((place,), "it needs the speeds of nodes: set the table speeds")
    fastest = max(1.0, *speeds.values())
    references: dict[tuple[str, ...], float] = {("speed",): table.get("speed") or 0.0}
    references |= {("queues", queue): speed for queue, speed in queues.items()}
    for key, speed in references.items():
        if speed > fastest:
            words = f"no node has a speed of {speed:g}: in the table speeds the fastest has {fastest:g}"
            raise SettingConflictError((place, *key), words)


SETTINGS: Final = FeatureSettings(
    table="normalised_walltimes",
    model=NormalisedWalltimes,
    about="Walltimes for a reference speed: `[clusters.main.site.normalised_walltimes]`. Without it "
    "walltimes hold on nodes of any speed.",
    heading="Policy",
    check=_check_site,
)
