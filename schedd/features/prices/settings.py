"""Settings of prices: ``prices``, ``cost_limits`` and ``currency`` of ``[clusters.NAME.site]``."""

from typing import Annotated, Final, Literal

from pydantic import Field

from schedd.policy.economy import Price
from schedd.policy.feature_settings import FeatureFields
from schedd.wire.section import Section


class PriceSettings(Section):
    """Prices of node time, and the meaning of users' cost limits."""

    prices: tuple[Price, ...] = ()
    """Prices of node time: `[[clusters.main.site.prices]]`. A user's limit is `-W x=cost_limit:2.50`."""
    cost_limits: Literal["soft", "hard"] = "soft"
    """Effect of `-W x=cost_limit:2.50`: with `soft` a job that costs more is planned and marked; with `hard`
    it is planned and started only where it costs no more.
    """
    currency: Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]{1,16}$")] = "EUR"
    """Currency of the prices, for display."""


SITE_FIELDS: Final = FeatureFields(
    model=PriceSettings,
    heading="Power, energy and prices",
    tables={"[[clusters.NAME.site.prices]]": Price},
)
