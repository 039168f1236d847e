"""The accounts as the engine keeps them: balances, what is held for jobs, and entries of the ledger."""

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any, Literal

from schedd.plan.schema import FieldRule
from schedd.policy.accounts import Account

__all__ = ["BOOKS", "AccountBook", "Entry", "EntryKind"]

EntryKind = Literal["charge", "correction", "transfer", "period", "set"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the ledger: what changed on an account. ``amount`` is what it gained (a charge: less than
    0), in its smallest unit; ``balance`` what it had then. Of a charge: the ``job``, its ``owner``, and for
    how many core- and gpu-seconds it held what over ``[start, end)``.
    """

    number: int
    time: int
    account: str
    unit: str
    kind: EntryKind
    amount: int
    balance: int
    other: str = ""
    """Of a transfer: the other account; empty: it came from, or went, outside."""
    job: str = ""
    owner: str = ""
    start: int = 0
    end: int = 0
    cpu_seconds: int = 0
    gpu_seconds: int = 0
    by: str = ""
    reason: str = ""


@dataclass(slots=True)
class AccountBook:
    """All accounts of a cluster. ``holds`` are by job its account and how much is kept back for it; ``poor``
    are jobs that go last, since their accounts are empty. ``entries`` are those that the ledger does not have
    yet; they are numbered without gap. ``runs`` are by job those that were charged lately: start, end and
    what was charged; so no run is charged twice. Runs that ended before ``read`` were compared with the
    server's logs.
    """

    accounts: dict[str, Account] = field(default_factory=dict)
    holds: dict[str, tuple[str, int]] = field(default_factory=dict)
    poor: dict[str, None] = field(default_factory=dict)
    entries: deque[Entry] = field(default_factory=deque)
    number: int = 0
    runs: dict[str, tuple[tuple[int, int, int], ...]] = field(default_factory=dict)
    read: int = 0
    due: dict[str, None] = field(default_factory=dict)
    """Accounts that have more, or less, than before: who waits for them is looked at again."""
    held: dict[str, int] = field(default_factory=dict)
    """By account, the sum of ``holds``."""

    def copy(self) -> "AccountBook":
        """For a fork."""
        return AccountBook(
            dict(self.accounts),
            dict(self.holds),
            dict(self.poor),
            self.entries.copy(),
            self.number,
            dict(self.runs),
            self.read,
            dict(self.due),
            dict(self.held),
        )

    def available(self, name: str, job: str = "") -> int:
        """What is left of an account for a further job: overdraft included, what is held for others not."""
        account = self.accounts[name]
        mine = self.holds.get(job)
        own = mine[1] if mine is not None and mine[0] == name else 0
        return account.balance + account.overdraft - self.held.get(name, 0) + own

    def hold(self, job: str, name: str, amount: int) -> None:
        """Keep so much back for a job, in place of what was."""
        if self.holds.get(job) != (name, amount):
            self.free(job)
            self.holds[job] = (name, amount)
            self.held[name] = self.held.get(name, 0) + amount

    def free(self, job: str) -> None:
        """Keep nothing back for a job any more."""
        self.poor.pop(job, None)
        found = self.holds.pop(job, None)
        if found is not None:
            name, amount = found
            left = self.held.pop(name, 0) - amount  # nothing may be held for several jobs
            if left:
                self.held[name] = left
            self.due[name] = None

    def enter(self, account: Account, time: int, kind: EntryKind, amount: int, **more: Any) -> None:
        """Keep an account as it is now, and a line of what changed on it."""
        self.accounts[account.name] = account
        self.number += 1
        self.entries.append(
            Entry(
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

    def kept(self, number: int) -> None:
        """The ledger has all entries up to this one."""
        while self.entries and self.entries[0].number <= number:
            self.entries.popleft()

    def begun_anew(self) -> "AccountBook":
        """Without what is known of jobs, which are to be told again."""
        return replace(self, holds={}, poor={}, held={}, due=dict.fromkeys(self.accounts))


def _save(book: AccountBook) -> dict[str, Any]:
    return {
        "accounts": [asdict(one) for one in book.accounts.values()],
        "holds": [[job, *one] for job, one in book.holds.items()],
        "poor": list(book.poor),
        "entries": [list(astuple(one)) for one in book.entries],
        "number": book.number,
        "runs": [[job, [list(one) for one in runs]] for job, runs in book.runs.items()],
        "read": book.read,
        "due": list(book.due),
    }


def _load(saved: Mapping[str, Any]) -> AccountBook:
    names = list(Entry.__dataclass_fields__)
    accounts = [Account(**{**one, "users": tuple(one["users"])}) for one in saved["accounts"]]
    book = AccountBook(
        accounts={one.name: one for one in accounts},
        poor=dict.fromkeys(saved["poor"]),
        entries=deque(Entry(**dict(zip(names, one, strict=True))) for one in saved["entries"]),
        number=saved["number"],
        runs={job: tuple((start, end, amount) for start, end, amount in runs) for job, runs in saved["runs"]},
        read=saved["read"],
        due=dict.fromkeys(saved["due"]),
    )
    for job, name, amount in saved["holds"]:
        book.holds[job] = (name, amount)
        book.held[name] = book.held.get(name, 0) + amount
    return book


BOOKS = FieldRule(lambda book: book.copy(), _save, _load)
"""How a state keeps them."""
