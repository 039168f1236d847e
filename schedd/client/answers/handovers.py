"""What is told of jobs that were handed over."""

from typing import Literal, TypedDict

__all__ = ["HandoverDoneView", "HandoverView", "HandoversView"]


class HandoverView(TypedDict):
    """A job that was handed over. Times are seconds since the epoch."""

    handover: str
    user: str
    phase: Literal["asked", "held", "releasing", "released", "withdrawing", "withdrawn", "refused"]
    since: int
    job: str
    let_run: bool
    state: Literal["", "running", "starting", "planned", "waiting", "never"]
    started: int | None
    planned_start: int | None
    planned_end: int | None
    promised_start: int | None
    end: Literal["", "ended", "deleted"]
    exit_status: int | None
    code: int
    text: str


class HandoversView(TypedDict):
    """Some of them."""

    as_of: int
    generation: int
    stale: str
    handovers: list[HandoverView]


class HandoverDoneView(TypedDict):
    """One of them."""

    as_of: int
    generation: int
    stale: str
    handover: HandoverView
