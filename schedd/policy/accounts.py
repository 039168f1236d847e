"""Accounts: budgets of groups of users in core-hours or money, and the charges of jobs.

Amounts are integers in the account's smallest unit, so that sums are exact: core-seconds, or millionths of
the site's currency.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from schedd.policy.economy import Economy

Unit = Literal["core_hours", "money"]
Period = Literal["", "month", "quarter", "year"]
SCALE: Final[Mapping[Unit, int]] = {"core_hours": 3_600, "money": 1_000_000}
"""Smallest units in one core-hour, or in one unit of the currency."""
_MONTHS: Final[Mapping[Period, int]] = {"": 0, "month": 1, "quarter": 3, "year": 12}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """State of one account. ``amount`` is the budget for each period, or in total without a period.

    ``moved`` was transferred and ``charged`` was used since the period's begin at ``since``. The balance may
    go ``overdraft`` below zero. ``until`` is the end of the period, or 0. ``users`` may use the account;
    empty: all users.
    """

    name: str
    unit: Unit = "core_hours"
    amount: int = 0
    overdraft: int = 0
    period: Period = ""
    users: tuple[str, ...] = ()
    closed: bool = False
    created: int = 0
    since: int = 0
    until: int = 0
    moved: int = 0
    charged: int = 0

    @property
    def balance(self) -> int:
        """Remaining amount, before holds for jobs."""
        return self.amount + self.moved - self.charged

    def lets(self, user: str) -> bool:
        """Return whether this user (without host) may use the account."""
        return not self.users or user in self.users


class Portion(NamedTuple):
    """Resources of one node held by a job."""

    node: str
    properties: tuple[str, ...]
    cpus: int
    gpus: int


def period_at(period: Period, moment: int, zone: str) -> tuple[int, int]:
    """Return the calendar period ``[since, until)`` of ``moment``; (moment, 0) without periods."""
    months = _MONTHS[period]
    if not months:
        return moment, 0
    where = ZoneInfo(zone)
    local = datetime.fromtimestamp(moment, UTC).astimezone(where)
    first = (local.month - 1) // months * months
    after = first + months
    begin = datetime(local.year, first + 1, 1, tzinfo=where)
    end = datetime(local.year + after // 12, after % 12 + 1, 1, tzinfo=where)
    return int(begin.timestamp()), int(end.timestamp())


def paid(unit: Unit, portions: Iterable[Portion], start: int, end: int, economy: Economy, gpu: float) -> int:
    """Return the charge for holding ``portions`` over ``[start, end)``, rounded to the smallest unit."""
    if end <= start:
        return 0
    if unit == "core_hours":
        return sum(round((one.cpus + gpu * one.gpus) * (end - start)) for one in portions)
    total = 0.0
    span = np.array([start, end], np.int64)
    rates = {}
    for one in portions:
        which = economy.node_prices(one.node, one.properties)
        if which not in rates:
            found = economy.rates(which, start, end)
            rates[which] = [float(np.diff(found.paid(rate, span))[0]) for rate in (found.core, found.gpu)]
        core, card = rates[which]
        total += one.cpus * core + one.gpus * card
    return round(total * SCALE["money"])


def dearest(unit: Unit, cpus: int, gpus: int, seconds: int, economy: Economy, gpu: float) -> int:
    """Return the maximum charge of a job of this size, at any place and time."""
    if unit == "core_hours":
        return round((cpus + gpu * gpus) * seconds)
    core = max((one.core_hour for one in economy.prices), default=0.0)
    card = max((one.gpu_hour for one in economy.prices), default=0.0)
    return round((cpus * core + gpus * card) * seconds / 3600 * SCALE["money"])
