"""State of accounts: balances, held amounts, and new lines of the ledger."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from typing import Any, Final, Literal

from schedd.engine.facts.job_requests import BOOKING
from schedd.engine.facts.state import EngineState
from schedd.plan.schema import FOUND, KEYS, NUMBER, FieldRule, declared
from schedd.policy.accounts import Account

LineKind = Literal["charge", "correction", "transfer", "period", "set"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """One line of the ledger: a change of an account.

    ``amount`` is the change in the account's smallest unit (negative for a charge), ``balance`` the result. A
    charge has the ``job``, its ``owner``, the run ``[start, end)`` and its use.
    """

    number: int
    time: int
    account: str
    unit: str
    kind: LineKind
    amount: int
    balance: int
    other: str = ""  # of a transfer: the other account; empty: the amount came from outside, or went there
    job: str = ""
    owner: str = ""
    start: int = 0
    end: int = 0
    cpu_seconds: int = 0
    gpu_seconds: int = 0
    by: str = ""
    reason: str = ""


def _load_accounts(saved: Iterable[Mapping[str, Any]]) -> dict[str, Account]:
    return {one["name"]: Account(**{**one, "users": tuple(one["users"])}) for one in saved}


def _load_lines(saved: Iterable[Sequence[Any]]) -> "deque[LedgerLine]":
    names = [each.name for each in fields(LedgerLine)]
    return deque(LedgerLine(**dict(zip(names, one, strict=True))) for one in saved)


_ACCOUNTS: Final = FieldRule(
    dict, lambda accounts: list(accounts.values()), _load_accounts, each=asdict, kind=Account
)


def _held_for_uses(holds: Mapping[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
    """Return the amounts held for bookings: jobs get their holds again when they are planned again."""
    return {key: held for key, held in holds.items() if key.startswith(BOOKING)}


_HOLDS: Final = FieldRule(
    dict,
    lambda holds: [[key, *held] for key, held in holds.items()],
    lambda saved: {key: (name, amount) for key, name, amount in saved},
)
_LINES: Final = FieldRule(lambda lines: lines.copy(), list, _load_lines, each=lambda one: list(astuple(one)))
_RUNS: Final = FieldRule(
    dict,
    lambda runs: [[job, [list(one) for one in known]] for job, known in runs.items()],
    lambda saved: {job: tuple((start, end, charged) for start, end, charged in runs) for job, runs in saved},
)


@dataclass(slots=True)
class AccountBook:
    """The component's part of the engine's state. Amounts are in the account's smallest unit."""

    accounts: dict[str, Account] = declared(_ACCOUNTS, make=dict, carried=True, lasting=True)  # by name
    holds: dict[str, tuple[str, int]] = declared(
        _HOLDS, make=dict, carried=_held_for_uses, lasting=_held_for_uses
    )
    """By job or booking: its account, and the amount that is held for it."""
    poor: dict[str, None] = declared(KEYS, make=dict)  # jobs with empty accounts: planned after all others
    entries: deque[LedgerLine] = declared(_LINES, make=deque, carried=True, lasting=True)
    """Lines that the ledger does not have yet, numbered without gaps."""
    number: int = declared(NUMBER, default=0, carried=True, lasting=True)  # of the latest line
    runs: dict[str, tuple[tuple[int, int, int], ...]] = declared(_RUNS, make=dict, carried=True, lasting=True)
    """By job: start, end and charge of its recent runs, so that no run is charged twice."""
    read: int = declared(NUMBER, default=0, carried=True, lasting=True)
    """Runs that ended before were compared with the server's accounting logs."""
    due: dict[str, None] = declared(KEYS, make=dict)
    """Accounts that have more or less than before, ``*`` for all: jobs that wait for them are examined."""
    held: dict[str, int] = declared(FOUND, make=dict)  # by account: the sum of `holds`

    def derive(self) -> None:
        """Compute ``held`` from the other fields."""
        self.held = {}
        for name, amount in self.holds.values():
            self.held[name] = self.held.get(name, 0) + amount

    def available(self, name: str, key: str = "") -> int:
        """What a further job may use of an account, overdraft included, amounts held for others excluded."""
        account = self.accounts[name]
        mine = self.holds.get(key)
        own = mine[1] if mine is not None and mine[0] == name else 0
        return account.balance + account.overdraft - self.held.get(name, 0) + own

    def hold(self, key: str, name: str, amount: int) -> None:
        """Hold this amount for a job or booking, instead of the former one."""
        if self.holds.get(key) != (name, amount):
            self.release(key)
            self.holds[key] = (name, amount)
            self.held[name] = self.held.get(name, 0) + amount

    def release(self, key: str) -> None:
        """Hold nothing for a job or booking any more."""
        self.poor.pop(key, None)
        found = self.holds.pop(key, None)
        if found is not None:
            name, amount = found
            rest = self.held.pop(name, 0) - amount  # 0 is held for jobs that cost nothing
            if rest:
                self.held[name] = rest
            self.due[name] = None

    def enter(self, account: Account, time: int, kind: LineKind, amount: int, **more: Any) -> None:
        """Replace an account, and write a line about what changed."""
        self.accounts[account.name] = account
        self.number += 1
        self.entries.append(
            LedgerLine(
                number=self.number,
                time=time,
                account=account.name,
                unit=account.unit,
                kind=kind,
                amount=amount,
                balance=account.balance,
                **more,
            )
        )
        self.due[account.name] = None

    def drop_stored(self, number: int) -> None:
        """The ledger has all lines up to this number."""
        while self.entries and self.entries[0].number <= number:
            self.entries.popleft()


@dataclass(frozen=True, slots=True)
class PublishedAccounts:
    """What other threads may read of the component."""

    accounts: Mapping[str, Account]
    held: Mapping[str, int]
    ledger: tuple[LedgerLine, ...]  # lines that the ledger does not have yet
    read: int  # see `AccountBook.read`


def account_book(state: EngineState) -> AccountBook:
    """The component's part of the engine's state."""
    found: AccountBook = state.parts[AccountBook]  # no call: arrivals ask often
    return found


def published_accounts(state: EngineState) -> PublishedAccounts:
    """A copy for other threads."""
    book = account_book(state)
    return PublishedAccounts(dict(book.accounts), dict(book.held), tuple(book.entries), book.read)


def limit_moments(book: AccountBook, now: int, _: int) -> None:
    """Let no period, account or reading of logs be of the future when the clock was set back.

    An account with a period in the future is renewed at that time.
    """
    for name, one in list(book.accounts.items()):
        until = one.since if one.until and one.since > now else one.until
        book.accounts[name] = replace(
            one, created=min(one.created, now), since=min(one.since, now), until=until
        )
    book.read = min(book.read, now)


def without_jobs(book: AccountBook) -> None:
    """The plan is rebuilt, so all jobs are to be examined again."""
    book.due = dict.fromkeys(book.accounts)
    book.derive()
