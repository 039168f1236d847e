"""Accounts: budgets, charges, reports.

Written by ``make docs`` from the API's description, which says what each field means.
"""

from typing import Literal, TypedDict

__all__ = ["AccountReport", "AccountView", "AccountsView", "ChargeSummary", "LedgerEntry", "LedgerView"]


class AccountView(TypedDict):
    """An account. Amounts are in core-hours or in the currency, as `unit` says; times in seconds since the
    epoch.
    """

    name: str
    unit: str
    amount: float
    overdraft: float
    period: Literal["", "month", "quarter", "year"]
    since: int
    until: int | None
    moved: float
    charged: float
    held: float
    left: float
    users: list[str]
    closed: bool


class AccountsView(TypedDict):
    """Accounts that the caller may use or see, by name."""

    as_of: int
    generation: int
    stale: str
    accounts: list[AccountView]


class LedgerEntry(TypedDict):
    """One line of the ledger: the change of the account (negative: a charge), and the balance after it."""

    number: int
    time: int
    account: str
    unit: str
    kind: str
    amount: float
    balance: float
    other: str
    job: str
    owner: str
    start: int | None
    end: int | None
    by: str
    reason: str


class LedgerView(TypedDict):
    """Lines of the ledger, newest first."""

    lines: list[LedgerEntry]
    following: int | None


class ChargeSummary(TypedDict):
    """Charges by month, account and user; a field is empty if the sum is not split by it."""

    month: str
    account: str
    user: str
    unit: str
    jobs: int
    core_hours: float
    gpu_hours: float
    charged: float


class AccountReport(TypedDict):
    """Charges over a period."""

    rows: list[ChargeSummary]
