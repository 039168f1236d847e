"""Bookings in the dashboard's calendar."""

from typing import Any

from schedd.engine import PlanSnapshot
from schedd.features.bookings.api import visible_bookings
from schedd.service.access.roles import Bearer


def calendar_context(published: PlanSnapshot, viewer: Bearer) -> dict[str, Any]:
    """The bookings that the viewer may see, and the number of others, for the calendar's template."""
    shown, others = visible_bookings(published, viewer)
    return {"bookings": shown, "others": others}
