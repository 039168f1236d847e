"""Background work for accounts: stores ledger entries, and charges runs that only the server's logs show."""

import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol
from zoneinfo import ZoneInfo

import structlog

from schedd.dialect.accounting import EndedRun, node_shares
from schedd.dialect.qos import logged_qos
from schedd.features.accounts.rules import find_account
from schedd.features.accounts.settings import AccountSettings
from schedd.features.accounts.state import LedgerLine, PublishedAccounts, account_book
from schedd.service.cluster.accounting_logs import ended_runs
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.cluster.errors import Overloaded, PlannerStopped
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.store import StoreError
from schedd.store.records import ChargeTotal, LedgerRow
from schedd.supervision import PeriodicWork
from schedd.wire import LedgerStored, RunFacts, RunsRead, ShareFacts

_log = structlog.get_logger(__name__)
_PERIOD_S: Final = 1.0
_EVERY: Final = 600  # seconds between two readings of the server's logs
_BACK: Final = 86_400  # overlap of the readings in seconds: log files may be late
_LATE: Final = 60  # minimum age of a run in seconds: its events may still arrive
_MOST: Final = 500
_PATIENCE: Final = 30.0
_IN_MEMORY: Final = 10_000


class AccountsLedger(Protocol):
    """Store of ledger rows. Any thread may call; every method may raise StoreError."""

    def add_rows(self, new: Sequence[LedgerRow]) -> None:
        """Insert rows; existing ones stay unchanged."""
        ...

    def rows(
        self, since: int, until: int, limit: int, *, account: str, user: str, before: int | None
    ) -> Sequence[LedgerRow]:
        """Return up to ``limit`` rows in ``[since, until)``, newest first."""
        ...

    def charges(
        self, since: int, until: int, by: Sequence[str], *, account: str, user: str
    ) -> Sequence[ChargeTotal]:
        """Return the sums of charges in ``[since, until)``, grouped ``by`` any of month, account and user."""
        ...


class StoredLedger:
    """Ledger in the daemon's database."""

    def __init__(self, durable: DaemonStore, cluster: str) -> None:
        self._durable = durable
        self._name = cluster

    def add_rows(self, new: Sequence[LedgerRow]) -> None:
        """See ``AccountsLedger``."""
        number = self._durable.cluster_number(self._name)
        if number is None:
            raise StoreError(f"nobody has led cluster {self._name} yet")
        self._durable.store.insert_ledger_rows(number, new)

    def rows(
        self, since: int, until: int, limit: int, *, account: str, user: str, before: int | None
    ) -> Sequence[LedgerRow]:
        """See ``AccountsLedger``."""
        number = self._durable.cluster_number(self._name)
        if number is None:
            return ()
        return self._durable.store.ledger_rows(
            number, since, until, limit, account=account, user=user, before=before
        )

    def charges(
        self, since: int, until: int, by: Sequence[str], *, account: str, user: str
    ) -> Sequence[ChargeTotal]:
        """See ``AccountsLedger``."""
        number = self._durable.cluster_number(self._name)
        if number is None:
            return ()
        return self._durable.store.charges(number, since, until, by, account=account, user=user)


class MemoryLedger:
    """Ledger of a daemon without a database: the last 10,000 rows."""

    def __init__(self) -> None:
        self._rows: dict[int, LedgerRow] = {}
        self._lock = threading.Lock()

    def add_rows(self, new: Sequence[LedgerRow]) -> None:
        """See ``AccountsLedger``."""
        with self._lock:
            for one in new:
                self._rows.setdefault(one.number, one)
            for number in list(self._rows)[:-_IN_MEMORY]:
                del self._rows[number]

    def rows(
        self, since: int, until: int, limit: int, *, account: str, user: str, before: int | None
    ) -> Sequence[LedgerRow]:
        """See ``AccountsLedger``."""
        with self._lock:
            found = [
                one
                for number, one in self._rows.items()
                if since <= one.time < until
                and (not account or one.account == account)
                and (not user or user in (one.owner, one.payer))
                and (before is None or number < before)
            ]
        return found[::-1][:limit]

    def charges(
        self, since: int, until: int, by: Sequence[str], *, account: str, user: str
    ) -> Sequence[ChargeTotal]:
        """See ``AccountsLedger``."""
        found: dict[tuple[str, str, str, str], list[LedgerRow]] = {}
        for one in self.rows(since, until, _IN_MEMORY, account=account, user=user, before=None):
            if one.kind in ("charge", "correction"):
                key = (
                    one.month if "month" in by else "",
                    one.account if "account" in by else "",
                    one.payer if "user" in by else "",
                    one.unit,
                )
                found.setdefault(key, []).append(one)
        return [
            ChargeTotal(
                unit,
                len({one.job for one in some}),
                sum(one.cpu_seconds for one in some),
                sum(one.gpu_seconds for one in some),
                -sum(one.amount for one in some),
                month,
                name,
                payer,
            )
            for (month, name, payer, unit), some in sorted(found.items())
        ]


def cluster_service(loop: PlanLoop, durable: DaemonStore | None) -> "AccountsWorker":
    ledger = StoredLedger(durable, loop.name) if durable is not None else MemoryLedger()
    return AccountsWorker(loop, ledger)


class AccountsWorker(PeriodicWork):
    """Accounts of one cluster, in a thread. Entries that cannot be stored stay in the planner."""

    def __init__(self, loop: PlanLoop, ledger: AccountsLedger) -> None:
        super().__init__(loop.supervisor, "accounts", _PERIOD_S, cluster=loop.name)
        self._loop = loop
        self.ledger = ledger
        self._trouble = ""

    def run_step(self) -> None:
        """Do the work that is due, if this daemon leads."""
        try:
            self._loop.check_leads()
            self.flush_entries()
            book = self._loop.published.part(PublishedAccounts)
            if book.accounts and self._loop.now() >= book.read + _EVERY:
                self.read_logs()
            self._trouble = ""
        except (PlannerStopped, Overloaded, TimeoutError, StoreError) as error:
            if self._trouble != repr(error):
                self._trouble = repr(error)
                _log.warning("the books wait", cluster=self._loop.name, why=self._trouble)

    def flush_entries(self) -> None:
        """Store the planner's new ledger entries.

        Raises StoreError, PlannerStopped, Overloaded and TimeoutError.
        """
        published = self._loop.published
        ledger = published.part(PublishedAccounts).ledger
        if not ledger:
            return
        zone = published.settings.site.zone
        self.ledger.add_rows([_row(one, zone) for one in ledger])
        number = ledger[-1].number
        event = LedgerStored(id=f"books:{secrets.token_hex(8)}", time=self._loop.now(), number=number)
        self._loop.submit([event]).result(_PATIENCE)

    def read_logs(self) -> None:
        """Charge the runs in the server's accounting logs that were not charged. Raises as ``flush_entries``.

        The first reading charges nothing: earlier runs predate the accounts.
        """
        loop = self._loop
        published = loop.published
        book = published.part(PublishedAccounts)
        rules = published.settings.site.part(AccountSettings)
        if not rules.logs:
            return
        until, begin = loop.now() - _LATE, book.read
        runs: list[RunFacts] = []
        if begin:
            known = loop.call_between_batches(lambda engine: dict(account_book(engine.state).runs)).result(
                _PATIENCE
            )
            found = ended_runs(Path(rules.logs), begin - _BACK, loop.name, "what ran")
            # A run lost to a rerun was charged as it happened; its end in the log may differ by seconds.
            for one in (_run_facts(run) for run in found if not run.lost):
                account = book.accounts.get(find_account(rules, one))
                if account is not None and account.created < one.end <= until and _differs(known, one):
                    runs.append(one)
        for first in range(0, max(len(runs), 1), _MOST):
            some = tuple(runs[first : first + _MOST])
            last = first + _MOST >= len(runs)
            event = RunsRead(
                id=f"books:{secrets.token_hex(8)}",
                time=loop.now(),
                runs=some,
                until=until if last else begin,
            )
            loop.submit([event]).result(_PATIENCE)
        if runs:
            _log.info("runs of the server's logs were charged", cluster=loop.name, runs=len(runs))


def _differs(known: Mapping[str, Sequence[tuple[int, int, int]]], run: RunFacts) -> bool:
    """Whether a run was not charged, or for another interval."""
    return not any((start, end) == (run.start, run.end) for start, end, _ in known.get(run.id, ()))


def _run_facts(run: EndedRun) -> RunFacts:
    values = run.values
    return RunFacts(
        id=run.id,
        owner=values.get("owner") or values.get("user", ""),
        start=run.start,
        end=run.end,
        group=values.get("group", ""),
        account=values.get("account", ""),
        project=values.get("project", ""),
        queue=values.get("queue", ""),
        qos=logged_qos(values),
        shares=tuple(ShareFacts(node, cpus, 0, gpus) for node, cpus, gpus in node_shares(run)),
    )


def _row(one: LedgerLine, zone: str) -> LedgerRow:
    month = f"{datetime.fromtimestamp(one.time, UTC).astimezone(ZoneInfo(zone)):%Y-%m}"
    return LedgerRow(month=month, payer=one.owner.partition("@")[0], **asdict(one))
