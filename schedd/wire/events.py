"""Events: what an adapter tells of its server (`told`), and what people and the daemon do (`orders`).

Every event carries ``id``, which the sender chose and which is kept over re-deliveries: for an adapter
``EPOCH:SEQUENCE``. ``time`` is when it happened by the server host's clock, in seconds since the epoch.
"""

from dataclasses import dataclass

from schedd.wire.bookings import Book, BookingStep
from schedd.wire.orders import (
    AccountMoved,
    AccountSet,
    BagEndReported,
    ClockSet,
    LedgerKept,
    LogLost,
    PassedOver,
    PlanChosen,
    PlanningHeld,
    PlanningReleased,
    PolicyChanged,
    PowerWish,
    RunsRead,
    StartsExpected,
    TransferRelease,
    TransferRequest,
    TransferWithdrawal,
    WattsRead,
)
from schedd.wire.told import Told

Event = (
    Told
    | PolicyChanged
    | PlanningHeld
    | PlanningReleased
    | LogLost
    | PassedOver
    | ClockSet
    | TransferRequest
    | TransferRelease
    | TransferWithdrawal
    | StartsExpected
    | PlanChosen
    | PowerWish
    | WattsRead
    | AccountSet
    | AccountMoved
    | LedgerKept
    | RunsRead
    | Book
    | BookingStep
    | BagEndReported
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Events in the order in which they happened, as one HTTP body."""

    events: tuple[Event, ...]
