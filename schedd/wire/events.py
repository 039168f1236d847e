"""Events: what an adapter tells of its server (`told`), and what people and the daemon do (`orders`).

Every event carries ``id``, which the sender chose and which is kept over re-deliveries: for an adapter
``EPOCH:SEQUENCE``. ``time`` is when it happened by the server host's clock, in seconds since the epoch.
"""

from dataclasses import dataclass

from schedd.wire.adapter_events import AdapterEvent
from schedd.wire.bookings import Book, BookingStep
from schedd.wire.internal_events import (
    AccountMoved,
    AccountSet,
    BagEndReported,
    BatchSkipped,
    ClockSet,
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
    | TransferRequest
    | TransferRelease
    | TransferWithdrawal
    | StartsExpected
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
    """Events in the order in which they happened, as one HTTP body."""

    events: tuple[Event, ...]
