"""What is told of nodes that are switched off and on."""

from typing import Literal, TypedDict

__all__ = ["NodePowerView", "PowerView"]


class NodePowerView(TypedDict):
    """A node that was switched, or over which an admin decides. Times are seconds since the epoch."""

    node: str
    phase: Literal["on", "stopping", "off", "booting", "failed"]
    since: int
    back: int | None
    wish: Literal["on", "off", "hold", "auto"]
    by: str
    reason: str
    failures: int
    again: int | None
    code: int
    text: str


class PowerView(TypedDict):
    """Power saving as it is."""

    as_of: int
    generation: int
    stale: str
    mode: str
    off: int
    would: list[str]
    saved: float
    nodes: list[NodePowerView]
