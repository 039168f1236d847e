"""Power saving: nodes switched off and on.

Written by ``make docs`` from the API's description, which says what each field means.
"""

from typing import Literal, TypedDict

__all__ = ["NodePowerMeasurement", "NodePowerView", "PowerView"]


class NodePowerView(TypedDict):
    """Node that was switched, or with an admin's order. Times are seconds since the epoch."""

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


class NodePowerMeasurement(TypedDict):
    """What a node's board measured, and what the plan takes from that. Watts."""

    node: str
    watts: float
    at: int
    idle: float | None
    core: float | None
    off: float | None


class PowerView(TypedDict):
    """Present state of power saving."""

    as_of: int
    generation: int
    stale: str
    mode: str
    off: int
    would: list[str]
    saved: float
    nodes: list[NodePowerView]
    measured: list[NodePowerMeasurement]
