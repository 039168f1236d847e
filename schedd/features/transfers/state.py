"""What the engine knows of transfers."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final, Literal

from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.state import EngineState
from schedd.plan.schema import NAMES, FieldRule, declared

TransferPhase = Literal["submitting", "held", "releasing", "released", "withdrawing", "withdrawn", "refused"]


@dataclass(frozen=True, slots=True)
class TransferRecord:
    """A transfer; ``since``: last change, ``decision``: the one with a pending outcome."""

    transfer: str
    user: str
    by: str
    phase: TransferPhase
    since: int
    decision: str = ""
    server_job: str = ""
    release_requested: bool = False  # its release was requested: it may have started
    end: Literal["", "ended", "deleted"] = ""
    exit_status: int | None = None
    code: int = 0
    text: str = ""  # why the last refused step was refused; empty if none was
    keep_until: int = 0  # until then it has a place in the plan although it is on hold
    booked: bool = False  # it starts only in the booking that is made for it
    booking: str = ""  # the user's booking for this job, as if the job named it
    forced: bool = False  # its job is deleted even if it may be running
    tasks: int = 0  # number of jobs of an array; 0: not an array
    first_task: int = 0  # the lowest of their indices
    tasks_over: str = ""
    """Bit set, in hexadecimal, of the jobs that are over: an end may be reported more than once."""
    tasks_ended: int = 0
    tasks_failed: int = 0  # ended jobs with an exit status other than 0
    tasks_deleted: int = 0
    last_end: int = 0  # when the last of them ended
    first_end: int = 0  # when the first of them ended; 0: none has


_TRANSFERS: Final = FieldRule(
    dict,
    lambda transfers: list(transfers.values()),
    lambda saved: {one["transfer"]: TransferRecord(**one) for one in saved},
    each=asdict,
    kind=TransferRecord,
)


@dataclass(slots=True)
class TransferState:
    """The component's part of the engine's state."""

    transfers: dict[str, TransferRecord] = declared(_TRANSFERS, make=dict, carried=True, lasting=True)
    """By name. Completed transfers are kept for a while."""
    by_job: dict[str, str] = declared(NAMES, make=dict, carried=True, lasting=True)
    """By id of the job at the server: the name of its transfer."""
    kept_places: dict[str, int] = declared(NAMES, make=dict, carried=True, lasting=True)
    """By job on hold with a place in the plan: the end of the guarantee of this place."""
    bag_ends: dict[str, int] = declared(NAMES, make=dict, carried=True, lasting=True)
    """By array that is a share of a bag: the end of the whole bag."""


@dataclass(frozen=True, slots=True)
class PublishedTransfers:
    """Snapshot of the component for other threads."""

    transfers: Mapping[str, TransferRecord]


def transfer_state(state: EngineState) -> TransferState:
    """The component's part of the engine's state."""
    return state.part(TransferState)


def job_transfer(state: EngineState, job: JobRecord) -> TransferRecord | None:
    """Return the transfer of a job at the server; None: it has none, or it was forgotten."""
    part = transfer_state(state)
    return part.transfers.get(part.by_job.get(job.id, ""))


def publish_transfers(state: EngineState) -> PublishedTransfers:
    """Return a copy for other threads."""
    return PublishedTransfers(dict(transfer_state(state).transfers))
