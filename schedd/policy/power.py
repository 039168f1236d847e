"""What a site says of switching idle nodes off and on again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["PowerSaving"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSaving:
    """Rules for switching nodes. Times are seconds.

    A node is switched off after it was free for ``idle`` and up for ``min_up``, if the plan does not need it
    within ``min_off`` after its earliest return. ``spares`` nodes of a property (``*``: any) stay on and
    free. At most ``at_once`` nodes boot at a time, and as many shut down.

    ``delay``: maximum additional wait of a job for nodes that are on, before another one is switched on for
    it. ``boot_time`` applies to nodes without an observed boot. A failed order is repeated after ``retry``,
    doubled each time. Nodes with a name or property in ``never`` are not switched.
    """

    mode: Literal["off", "dry", "on"] = "off"
    idle: int = 900
    min_up: int = 900
    min_off: int = 1800
    delay: int = 0
    boot_time: int = 300
    stop_time: int = 120
    at_once: int = 10
    retry: int = 1800
    spares: Mapping[str, int] = field(default_factory=dict)
    never: tuple[str, ...] = ()
