"""All events: an adapter's (``adapter_events``), users' and the daemon's (``internal_events``)."""

from dataclasses import dataclass

from schedd.wire.adapter_events import AdapterEvent
from schedd.wire.bookings import Book, BookingStep
from schedd.wire.internal_events import (
    AccountMoved,
    AccountSet,
    BagEndReported,
    BatchSkipped,
    ClockSet,
    ContactChanged,
    DeadlinesForecast,
    LedgerStored,
    LogLost,
    PlanChosen,
    PlanningHeld,
    PlanningReleased,
    PolicyChanged,
    PowerRequested,
    RunsRead,
    StartsExpected,
    TransferRelease,
    TransferRequest,
    TransferWithdrawal,
    WattsRead,
)

Event = (
    AdapterEvent
    | PolicyChanged
    | PlanningHeld
    | PlanningReleased
    | LogLost
    | BatchSkipped
    | ClockSet
    | ContactChanged
    | TransferRequest
    | TransferRelease
    | TransferWithdrawal
    | StartsExpected
    | DeadlinesForecast
    | PlanChosen
    | PowerRequested
    | WattsRead
    | AccountSet
    | AccountMoved
    | LedgerStored
    | RunsRead
    | Book
    | BookingStep
    | BagEndReported
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Events in the order of their occurrence, as one HTTP body."""

    events: tuple[Event, ...]
