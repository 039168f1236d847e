"""Periods by the calendar, and what time on nodes takes of an account."""

from datetime import UTC, datetime

import pytest

from schedd.policy.accounts import Period, Portion, dearest, paid, period_at
from schedd.policy.economy import Economy, Price


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("period", "moment", "zone", "since", "until"),
    [
        ("month", "2026-11-24T08:00", "UTC", "2026-11-01T00:00", "2026-12-01T00:00"),
        ("month", "2026-12-31T23:59", "UTC", "2026-12-01T00:00", "2027-01-01T00:00"),
        ("quarter", "2026-11-24T08:00", "UTC", "2026-10-01T00:00", "2027-01-01T00:00"),
        ("year", "2026-01-01T00:00", "UTC", "2026-01-01T00:00", "2027-01-01T00:00"),
        # The clock is set back in October: that month has an hour more.
        ("month", "2026-10-15T00:00", "Europe/Prague", "2026-09-30T22:00", "2026-10-31T23:00"),
        ("month", "2026-10-31T22:59", "Europe/Prague", "2026-09-30T22:00", "2026-10-31T23:00"),
        ("month", "2026-10-31T23:00", "Europe/Prague", "2026-10-31T23:00", "2026-11-30T23:00"),
    ],
)
def test_period_follows_the_site_calendar(
    period: Period, moment: str, zone: str, since: str, until: str
) -> None:
    assert period_at(period, at(moment), zone) == (at(since), at(until))


def test_without_periods_there_is_no_end() -> None:
    assert period_at("", 17, "UTC") == (17, 0)


def test_core_seconds_are_exact_and_gpus_count_as_cores() -> None:
    held = [Portion("n1", (), 3, 2), Portion("n2", (), 1, 0)]
    assert paid("core_hours", held, 100, 110, Economy(), 0.0) == 40
    assert paid("core_hours", held, 100, 110, Economy(), 10.0) == 240
    assert paid("core_hours", held, 100, 100, Economy(), 10.0) == 0
    assert dearest("core_hours", 4, 2, 10, Economy(), 10.0) == 240


def test_charges_use_node_prices_and_stay_below_the_maximum() -> None:
    prices = (Price(core_hour=3.6, gpu_hour=36.0), Price(core_hour=7.2, nodes=("fast",)))
    economy = Economy(prices=prices)
    held = [Portion("n1", (), 2, 1), Portion("n2", ("fast",), 1, 0)]
    assert paid("money", held, 0, 10, economy, 0.0) == round(
        (2 * 0.001 * 10 + 0.01 * 10 + 0.002 * 10) * 1_000_000
    )
    assert paid("money", held, 0, 10, economy, 0.0) <= dearest("money", 3, 1, 10, economy, 0.0)
    assert paid("money", held, 0, 10, Economy(), 0.0) == 0
