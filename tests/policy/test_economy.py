"""Watts of nodes, and prices over time."""

from datetime import datetime

import numpy as np
import pytest

from schedd.policy.economy import AHEAD, Draw, Economy, Price
from schedd.policy.site import parse_economy, site_policy

T = 1_700_006_400  # 2023-11-15T00:00:00Z
HOUR = 3600


def nightly(core_hour: float, nodes: tuple[str, ...] = ()) -> Price:
    first, last = map(datetime.fromisoformat, ("2023-11-01T20:00:00", "2023-11-02T06:00:00"))
    return Price(core_hour=core_hour, nodes=nodes, first=first, last=last, rule="FREQ=DAILY")


def test_node_watts_override_property_watts_and_defaults() -> None:
    found = Economy(
        draws={"old": Draw(idle=200), "new": Draw(idle=100), "*": Draw(idle=50), "n7": Draw(idle=7)}
    )
    assert found.draw("n7", ["old"]) == Draw(idle=7)
    assert found.draw("n1", ["new", "old"]) == Draw(idle=200), "the site's order, not the node's"
    assert found.draw("n1", []) == Draw(idle=50)
    assert Economy(draws={"old": Draw(idle=200)}).draw("n1", ["new"]) is None


def test_last_overlapping_price_applies() -> None:
    found = Economy(prices=(Price(core_hour=3.6), nightly(0.36)))
    rates = found.rates(found.node_prices("n1", []), T, T + 2 * 86_400)
    at = np.array([T, T + 6 * HOUR, T + 20 * HOUR, T + 30 * HOUR])
    assert rates.paid(rates.core, at) == pytest.approx(
        [0, 6 * 0.36, 6 * 0.36 + 14 * 3.6, 6 * 0.36 + 14 * 3.6 + 10 * 0.36]
    )


def test_price_integral_equals_the_sum_over_seconds() -> None:
    found = Economy(prices=(Price(core_hour=7.2, gpu_hour=3.6, nodes=("gpu",)), nightly(0.36, ("gpu",))))
    rates = found.rates(found.node_prices("n1", ["gpu"]), T, T + 3 * 86_400)
    moments = np.arange(T, T + 3 * 86_400 + 1, 600)
    hours = ((moments - T) // HOUR) % 24
    cheap = (hours >= 20) | (hours < 6)
    plain = np.concatenate([[0.0], np.cumsum(np.where(cheap, 0.36, 7.2)[:-1] / 6)])
    assert rates.paid(rates.core, moments) == pytest.approx(plain)
    assert rates.paid(rates.gpu, moments)[-1] == pytest.approx(3 * 14 * 3.6)


def test_time_is_free_without_a_price() -> None:
    found = Economy(prices=(Price(core_hour=5, nodes=("gpu",)),))
    assert found.node_prices("n1", ["fast"]) == ()
    rates = found.rates((), T, T + HOUR)
    assert rates.paid(rates.core, np.array([T + HOUR])) == [0.0]


def test_windows_are_not_followed_for_ever() -> None:
    found = Economy(prices=(nightly(1.0),))
    rates = found.rates((0,), T, T + 100 * AHEAD)
    assert rates.edges[-1] <= T + AHEAD + 86_400
    far = np.array([T + 2 * AHEAD, T + 3 * AHEAD])
    assert np.diff(rates.paid(rates.core, far)) == [0.0], "beyond, nothing but prices without a window holds"


def test_economy_settings_are_parsed() -> None:
    plain = {
        "zone": "Europe/Prague",
        "currency": "CZK",
        "power": {"*": {"idle": 90, "core": 4, "off": 5}},
        "prices": [
            {"core_hour": 0.5},
            {
                "core_hour": 0.1,
                "gpu_hour": 2,
                "nodes": ["gpu"],
                "first": "2026-01-05T20:00:00",
                "last": "2026-01-06T06:00:00",
                "rule": "FREQ=DAILY",
            },
        ],
    }
    found = parse_economy(plain)
    assert found == site_policy(plain).economy
    assert (found.currency, found.draws["*"]) == ("CZK", Draw(idle=90, core=4, gpu=0, off=5))
    assert found.prices[0] == Price(core_hour=0.5)
    window = found.prices[1].window(found.zone)
    assert window is not None
    assert (window.zone, found.prices[1].nodes) == ("Europe/Prague", ("gpu",))
    assert parse_economy({}) == Economy()


def test_empty_interval_uses_the_current_price() -> None:
    found = Economy(prices=(Price(core_hour=3.6), nightly(0.36)))
    for hour, price in ((20, 0.36), (19, 3.6)):
        moment = T + hour * HOUR
        assert found.rates((0, 1), moment, moment).core[0] == pytest.approx(price / HOUR)
