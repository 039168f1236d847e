"""What a federation's log holds: its state is made of these events, and of nothing else."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from schedd.federation.bags.events import BagEvent, BagOffered
from schedd.federation.bookings.events import BookingEvent
from schedd.federation.coallocation.events import CoAllocationEvent
from schedd.federation.licences import LicenceLeased
from schedd.federation.routing.events import JobEvent

__all__ = ["FederationEvent", "LoggedEvent", "decode", "encode"]

FederationEvent = JobEvent | CoAllocationEvent | BagEvent | BookingEvent
LoggedEvent = FederationEvent | LicenceLeased | BagOffered
_ADAPTER: TypeAdapter[LoggedEvent] = TypeAdapter(Annotated[LoggedEvent, Field(discriminator="type")])


def encode(event: LoggedEvent) -> str:
    """The event as JSON."""
    return _ADAPTER.dump_json(event).decode()


def decode(text: str) -> LoggedEvent:
    """The event of a row. Raises ValueError for one that this program does not know."""
    return _ADAPTER.validate_json(text)
