"""What a site says of switching idle nodes off and on again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["PowerSaving"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSaving:
    """When nodes are switched. Times are seconds.

    A node is switched off once it was free for ``idle``, is up for ``min_up``, and the plan needs it no
    earlier than ``min_off`` after it could be back. ``spares`` nodes of a property (``*``: of all) stay on
    and free. At most ``at_once`` nodes are on their way up, and as many on their way down.

    ``delay``: a job waits up to so much longer for nodes that are on before one is switched on for it.
    ``boot_time`` holds for nodes of which none was seen to boot yet. What failed is tried again after
    ``retry``, doubling. Nodes whose name or property is in ``never`` are left alone.
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
