"""What a federation's log holds: its state is made of these events, and of nothing else."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from schedd.federation.bags.events import BagEvent, BagOffered
from schedd.federation.bookings.events import BookingEvent
from schedd.federation.groups.events import GroupEvent
from schedd.federation.licences import Leased
from schedd.federation.routing.events import JobEvent

__all__ = ["Event", "Logged", "decode", "encode"]

Event = JobEvent | GroupEvent | BagEvent | BookingEvent
Logged = Event | Leased | BagOffered
_ADAPTER: TypeAdapter[Logged] = TypeAdapter(Annotated[Logged, Field(discriminator="type")])


def encode(event: Logged) -> str:
    """The event as JSON."""
    return _ADAPTER.dump_json(event).decode()


def decode(text: str) -> Logged:
    """The event of a row. Raises ValueError for one that this program does not know."""
    return _ADAPTER.validate_json(text)
