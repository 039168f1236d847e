"""Jobs transferred by a federation, and leased licences.

Written by ``make docs`` from the API's description, which says what each field means.
"""

from typing import Literal, TypedDict

__all__ = ["ArrayTaskCounts", "LicenceLeaseView", "TransferResult", "TransferView", "TransfersView"]


class ArrayTaskCounts(TypedDict):
    """How many jobs of an array there are, and how many of them stand where."""

    tasks: int
    planned: int
    running: int
    ended: int
    failed: int
    deleted: int
    last_end: int | None
    first_end: int | None


class TransferView(TypedDict):
    """A job that was handed over. Times are seconds since the epoch (UTC)."""

    transfer: str
    user: str
    phase: Literal["submitting", "held", "releasing", "released", "withdrawing", "withdrawn", "refused"]
    since: int
    job: str
    release_requested: bool
    state: Literal["", "running", "starting", "planned", "waiting", "never"]
    started: int | None
    planned_start: int | None
    planned_end: int | None
    promised_start: int | None
    end: Literal["", "ended", "deleted"]
    exit_status: int | None
    code: int
    text: str
    tasks: ArrayTaskCounts | None


class TransfersView(TypedDict):
    """Jobs that were handed over."""

    as_of: int
    generation: int
    stale: str
    transfers: list[TransferView]


class TransferResult(TypedDict):
    """One transfer after the request."""

    as_of: int
    generation: int
    stale: str
    transfer: TransferView


class LicenceLeaseView(TypedDict):
    """A leased licence after the lease."""

    as_of: int
    generation: int
    stale: str
    name: str
    copies: int
    number: int
    held: int
    wanted: int
