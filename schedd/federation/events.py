"""Events in a federation's log. Its state is built only from these events."""

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
    """Return the event as JSON."""
    return _ADAPTER.dump_json(event).decode()


def decode(text: str) -> LoggedEvent:
    """Parse an event from JSON. Raises ValueError for an unknown event type."""
    return _ADAPTER.validate_json(text)
