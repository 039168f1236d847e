"""Ledger entries are stored once across restarts; unobserved runs are charged from the server's logs."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from schedd.dialect.accounting import node_shares, parse_ended_run
from schedd.engine import EngineSettings
from schedd.features.accounts.background import AccountsWorker, MemoryLedger
from schedd.features.accounts.state import PublishedAccounts
from schedd.policy.site import site_policy
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.clusters import Clusters
from schedd.service.settings.daemon import StoreSettings
from schedd.store.records import LedgerRow
from schedd.wire import AccountSet, Event, JobEnded, JobStarted, ShareFacts
from tests.service.planner_harness import StillClock, T, event_id, job, node
from tests.waits import WAIT_S, wait_until

MOST = 2**62


class AccountDaemon:
    """A daemon with a database and accounts; ``restart`` replaces it by another."""

    def __init__(self, folder: Path, **rules: Any) -> None:
        self._settings = EngineSettings(site=site_policy({"accounts": rules}))
        self._url = f"sqlite:///{folder}/a.sqlite"
        self.clock = StillClock()
        self._start()

    def _start(self) -> None:
        durable = DaemonStore(StoreSettings(url=self._url))
        self.clusters = Clusters({"main": self._settings}, self.clock, durable=durable)
        self.clusters.start(warm=False)

    def restart(self) -> None:
        self.clusters.stop()
        self._start()

    def submit(self, *events: Event) -> None:
        self.clusters["main"].submit(list(events)).result(WAIT_S)

    def rows(self) -> list[LedgerRow]:
        ledger = self.clusters.service("main", AccountsWorker).ledger
        return list(ledger.rows(0, MOST, 99, account="", user="", before=None))[::-1]

    def balance(self) -> int:
        return self.clusters["main"].published.part(PublishedAccounts).accounts["phys"].balance


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[..., AccountDaemon]]:
    made: list[AccountDaemon] = []

    def make(**rules: Any) -> AccountDaemon:
        made.append(AccountDaemon(tmp_path, **rules))
        return made[-1]

    yield make
    for one in made:
        one.clusters.stop()


def account_event(**more: Any) -> AccountSet:
    return AccountSet(id=event_id(), time=T, name="phys", amount=10_000, by="root", **more)


def test_ledger_entries_are_stored_once_across_restarts(daemon: Callable[..., AccountDaemon]) -> None:
    one = daemon(otherwise="phys")
    one.submit(account_event(), node("n1"), job("1.srv"))
    one.submit(JobStarted(id=event_id(), time=T, job_id="1.srv", shares=(ShareFacts("n1", 4),)))
    one.clock.moment += 60
    one.submit(JobEnded(id=event_id(), time=T + 60, job_id="1.srv"))
    wait_until(lambda: [row.kind for row in one.rows()] == ["set", "charge"])
    wait_until(lambda: not one.clusters["main"].published.part(PublishedAccounts).ledger)
    one.restart()
    assert (one.balance(), one.clusters["main"].published.part(PublishedAccounts).ledger) == (9760, ())
    # A daemon killed before it reported the stored entries stores them again.
    one.clusters.service("main", AccountsWorker).ledger.add_rows(one.rows())
    one.clock.moment += 1
    one.submit(account_event(reason="a gift", overdraft=5))
    wait_until(lambda: len(one.rows()) == 3)
    charge = one.rows()[1]
    assert (charge.job, charge.payer, charge.amount, charge.balance) == ("1.srv", "ann", -240, 9760)
    assert (charge.month, charge.cpu_seconds, charge.end - charge.start) == ("2023-11", 240, 60)
    assert one.rows()[2].reason == "a gift"


def accounting_record(job_id: str, start: int, end: int, name: str = "phys") -> str:
    day = f"{datetime.fromtimestamp(end, UTC):%m/%d/%Y %H:%M:%S}"
    return (
        f"{day};E;{job_id};user=ann group=g account={name} jobname=x queue=batch ctime={start} "
        f"qtime={start} etime={start} start={start} owner=ann@login exec_host=n1/0-1+n2/3 end={end} "
        "Exit_status=0\n"
    )


def test_unobserved_runs_are_charged_from_the_logs_once(
    tmp_path: Path, daemon: Callable[..., AccountDaemon]
) -> None:
    log = tmp_path / f"{datetime.fromtimestamp(T, UTC):%Y%m%d}"
    log.write_text(accounting_record("0.srv", T - 900, T - 10))
    one = daemon(logs=str(tmp_path))
    one.submit(account_event(), node("n1"))
    wait_until(lambda: bool(one.clusters["main"].published.part(PublishedAccounts).read))
    log.write_text(
        log.read_text()
        + accounting_record("5.srv", T + 10, T + 110)
        + accounting_record("6.srv", T, T + 9, "other")
    )
    one.restart()
    one.clock.moment += 1_000
    wait_until(lambda: one.balance() == 9_700)
    wait_until(lambda: one.clusters["main"].published.part(PublishedAccounts).read == T + 940)
    one.clock.moment += 1_000
    one.restart()
    wait_until(lambda: one.clusters["main"].published.part(PublishedAccounts).read == T + 1_940)
    assert one.balance() == 9_700
    wait_until(lambda: len(one.rows()) == 2)
    assert (one.rows()[1].job, one.rows()[1].owner, one.rows()[1].end) == ("5.srv", "ann@login", T + 110)


@pytest.mark.parametrize(
    ("values", "held"),
    [
        ("exec_host=n1/0-3+n2/0*4", [("n1", 4, 0), ("n2", 4, 0)]),
        ("exec_host=n1/0+n1/1 exec_gpus=n1-gpu/0+n1-gpu/1", [("n1", 2, 2)]),
        (
            "exec_host=n1/0*2+n2/0 exec_vnode=(n1:ncpus=2:ngpus=1:mem=1kb)+(n2:ncpus=1)",
            [("n1", 2, 1), ("n2", 1, 0)],
        ),
        ("Resource_List.ncpus=3", [("", 3, 0)]),
    ],
)
def test_accounting_record_has_the_held_nodes(values: str, held: list[tuple[str, int, int]]) -> None:
    run = parse_ended_run(f"11/14/2023 22:13:20;E;1.srv;user=ann start=1 end=2 {values}")
    assert run is not None
    assert node_shares(run) == held


def test_memory_ledger_keeps_the_latest_entries() -> None:
    ledger = MemoryLedger()
    rows = [
        LedgerRow(i, T, "2023-11", "phys", "money", "charge", -1, 0, "", "1", "a@b", "a", 1, 2, 4, 0, "", "")
        for i in range(10_002)
    ]
    ledger.add_rows(rows)
    found = ledger.rows(0, MOST, 20_000, account="phys", user="a", before=None)
    assert (len(found), found[0].number) == (10_000, 10_001)
    (sums,) = ledger.charges(0, MOST, ("user",), account="", user="")
    assert (sums.user, sums.month, sums.jobs, sums.amount) == ("a", "", 1, 10_000)
