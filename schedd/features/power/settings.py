"""Settings of power: watts of nodes, power caps, and power saving, in ``[clusters.NAME.site]``."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from schedd.policy.economy import Draw, PowerCap
from schedd.policy.energy_placement import EnergyPlacement
from schedd.policy.feature_settings import FeatureFields, FeatureSettings
from schedd.wire.section import Name, Names, Section, SettingConflictError
from schedd.wire.times import Whole

_HEADING: Final = "Power, energy and prices"


class PowerSettings(Section):
    """Watts of nodes, and rules that need them."""

    power: dict[Name, Draw] = Field(default_factory=dict)
    """Watts of nodes, by name or property: `[clusters.main.site.power.epyc]`. The plan's energy is known if
    every node has watts."""
    power_caps: tuple[PowerCap, ...] = ()
    """Power caps, always or in windows: `[[clusters.main.site.power_caps]]`."""
    thrift: EnergyPlacement | None = None
    """Jobs prefer nodes that draw less power: `[clusters.main.site.thrift]`."""

    @model_validator(mode="after")
    def _need_watts(self) -> Self:
        if self.power_caps and not self.power:
            raise SettingConflictError(
                ("power_caps", 0), "power_caps need the watts of nodes: set the table power"
            )
        if self.thrift is not None and self.thrift.prefer and not self.power:
            raise SettingConflictError(
                ("thrift", "prefer"), "it needs the watts of nodes: set the table power"
            )
        return self


class PowerSavingSettings(Section):
    """Idle nodes are switched off, and on again before the next job planned on them, by the commands in the
    adapter's `[power]`. See docs/administrators/power.md.
    """

    mode: Literal["off", "dry", "on"] = "off"
    """`on`; or `dry`: nothing is switched, but `schedd power` shows which nodes would be."""
    idle: Whole = Field(default=900, ge=0, le=30 * 86_400)
    """A node is switched off after it was idle for this long, if `min_up` and `min_off` allow it."""
    min_up: Whole = Field(default=900, ge=0, le=30 * 86_400)
    """A node stays on for at least this long after it came up."""
    min_off: Whole = Field(default=1800, ge=0, le=30 * 86_400)
    """A node is switched off only if the plan does not need it until this long after it could be back."""
    delay: Whole = Field(default=0, ge=0, le=86_400)
    """A job waits up to this much longer for nodes that are on, before a node is switched on for it."""
    boot_time: Whole = Field(default=300, ge=1, le=86_400)
    """Time from the command until the server shows the node up. It is used for kinds of nodes that have not
    booted yet; afterwards the longest of the last ten boots is used.
    """
    stop_time: Whole = Field(default=120, ge=1, le=86_400)
    """Time from the command until the server shows the node down."""
    at_once: int = Field(default=10, ge=1, le=100_000)
    """Maximum number of nodes being switched on, and being switched off, at the same time."""
    retry: Whole = Field(default=1800, ge=10, le=86_400)
    """Time until a failed switch is retried, doubling, up to a day."""
    spares: dict[Name, Annotated[int, Field(ge=0, le=100_000)]] = Field(default_factory=dict)
    """Free nodes that stay on, by property, `"*"` for all: `{ "*" = 2, gpu = 1 }`."""
    never: Names = ()
    """Names or properties of nodes that are never switched."""


SETTINGS: Final = FeatureSettings(
    table="power_saving",
    model=PowerSavingSettings,
    about="When idle nodes are switched off: `[clusters.main.site.power_saving]`. Without it they stay on.",
    heading=_HEADING,
)
SITE_FIELDS: Final = FeatureFields(
    model=PowerSettings,
    heading=_HEADING,
    tables={
        "[clusters.NAME.site.power.NODES]": Draw,
        "[[clusters.NAME.site.power_caps]]": PowerCap,
        "[clusters.NAME.site.thrift]": EnergyPlacement,
    },
)
