"""Settings of bookings: ``[clusters.NAME.site.bookings]``."""

from typing import Final

from pydantic import Field

from schedd.policy.bookings import Order
from schedd.policy.feature_settings import FeatureSettings
from schedd.wire.section import Section
from schedd.wire.times import Whole


class BookingSettings(Section):
    """What users may book: cores for a time, within a window. See docs/administrators/policy.md."""

    most: int = Field(default=0, ge=0, le=10_000)
    """Bookings of one user at once; 0: users may book nothing."""
    cpus: int = Field(default=0, ge=0, le=10_000_000)
    """Maximum cores of one booking; 0: no limit."""
    longest: Whole = Field(default=86_400, ge=60, le=366 * 86_400)
    """Longest booking."""
    ahead: Whole = Field(default=7 * 86_400, ge=60, le=366 * 86_400)
    """Latest end of a booking's window, from now."""
    cost: float = Field(default=0.0, ge=0, le=1000, allow_inf_nan=False)
    """Price of a booking, as a share of the price of a job on as many cores for as long; charged to the
    account when it starts. Its jobs are charged as usual."""
    order: Order = Order.EDF
    """Order of planning for movable bookings: earliest deadline, least flexible, biggest, or first
    come."""


SETTINGS: Final = FeatureSettings(
    table="bookings",
    model=BookingSettings,
    about="What users may book: `[clusters.main.site.bookings]`. Without it users book nothing.",
    heading="Reservations and bookings",
)
