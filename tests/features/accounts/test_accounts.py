"""Accounts: amounts held and charged, and jobs that wait for their account."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from schedd.engine import Cause, Engine
from schedd.engine.place.placement import replan
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.accounts.state import PublishedAccounts, account_book
from schedd.features.bookings.state import booking_table
from schedd.model import StartKnown, WaitingFor
from schedd.service.questions.plan_fork import fork_plan
from schedd.wire import (
    AccountMoved,
    AccountSet,
    Book,
    ClockSet,
    LedgerStored,
    PolicyChanged,
    RunFacts,
    RunsRead,
    ShareFacts,
)
from tests.engine.cluster import Cluster, T

HOUR = 3600


class AccountCluster(Cluster):
    """A cluster with accounts; amounts are in core-seconds."""

    def __init__(
        self, nodes: int = 2, site: dict[str, Any] | None = None, policy: str = "conservative", **rules: Any
    ) -> None:
        super().__init__(nodes=nodes, policy=policy, site={"accounts": rules, **(site or {})})

    def set_account(self, name: str = "phys", amount: int = 0, **more: Any) -> int:
        event = AccountSet(id=self.server.event_id(), time=self.server.now, name=name, amount=amount, **more)
        self.send(event)
        return self.engine.state.jobs_moved_by.get(event.id, -1)

    def transfer(self, source: str, target: str, amount: int) -> None:
        event_id = self.server.event_id()
        self.send(
            AccountMoved(
                id=event_id, time=self.server.now, source=source, target=target, amount=amount, by="root"
            )
        )

    def available(self, name: str = "phys") -> int:
        return account_book(self.engine.state).available(name)

    def balance(self, name: str = "phys") -> int:
        return account_book(self.engine.state).accounts[name].balance

    def wait_reason(self, job: str) -> str:
        answer = self.record(job).answer
        return f"{answer.kind}: {answer.what}" if isinstance(answer, WaitingFor) else ""

    def ledger_lines(self) -> list[tuple[str, str, int, int]]:
        return [
            (one.kind, one.account, one.amount, one.balance)
            for one in account_book(self.engine.state).entries
        ]


def test_job_holds_its_maximum_and_is_charged_its_actual_use() -> None:
    site = AccountCluster()
    site.set_account(amount=1000)
    site.submit("1", "1:ppn=4", 100, account="phys", runtime=30)
    assert (site.balance(), site.available()) == (1000, 600)
    site.at(30)
    assert (site.balance(), site.available()) == (880, 880)
    (line,) = [one for one in account_book(site.engine.state).entries if one.kind == "charge"]
    assert (line.job, line.owner, line.start - T, line.end - T) == ("1", "ann@login", 0, 30)
    assert (line.amount, line.balance, line.cpu_seconds) == (-120, 880, 120)


def test_job_waits_until_its_account_suffices() -> None:
    site = AccountCluster()
    site.set_account(amount=500)
    site.submit("1", "1:ppn=4", 100, account="phys", runtime=50)
    site.submit("2", "1:ppn=2", 100, account="phys")
    assert site.start("2") is None
    assert site.wait_reason("2") == (
        "budget: account phys: 0.03 core-hours are left, and it may take 0.06 core-hours"
    )
    site.submit("3", "1:ppn=1", 100, account="phys")
    assert site.start("3") == 0, "a smaller one fits"
    site.at(49)
    assert site.start("2") is None
    site.at(50)
    assert site.start("2") == 50, "the unused part of job 1 was available again"


def test_transfers_let_jobs_start_or_wait() -> None:
    site = AccountCluster(nodes=1)
    site.set_account("phys", amount=0)
    site.set_account("pool", amount=10_000)
    site.submit("0", "1:ppn=4", 100)
    site.submit("1", "1:ppn=4", 100, account="phys")
    assert site.wait_reason("1").startswith("budget: ")
    site.transfer("pool", "phys", 400)
    assert (site.start("1"), site.balance("pool"), site.balance("phys")) == (100, 9600, 400)
    assert site.ledger_lines()[-2:] == [("transfer", "pool", -400, 9600), ("transfer", "phys", 400, 400)]
    site.set_account("phys", amount=-300)
    assert site.start("1") is None
    assert site.wait_reason("1").startswith("budget: ")


@pytest.mark.parametrize(
    ("source", "target", "amount"),
    [("phys", "nope", 1), ("nope", "phys", 1), ("phys", "phys", 1), ("phys", "euros", 1), ("phys", "", 1001)],
)
def test_invalid_transfer_changes_nothing(source: str, target: str, amount: int) -> None:
    site = AccountCluster()
    site.set_account(amount=1000)
    site.set_account("euros", unit="money", amount=1000)
    before = site.ledger_lines()
    site.transfer(source, target, amount)
    assert (site.ledger_lines(), site.balance()) == (before, 1000)


def test_held_amount_cannot_be_transferred() -> None:
    site = AccountCluster()
    site.set_account(amount=1000)
    site.submit("1", "1:ppn=4", 200, account="phys")
    site.transfer("phys", "", 201)
    assert site.balance() == 1000
    site.transfer("phys", "", 200)
    assert (site.balance(), site.available()) == (800, 0)


def test_overdraft_is_available_up_to_its_limit() -> None:
    site = AccountCluster()
    site.set_account(amount=100, overdraft=300)
    site.submit("1", "1:ppn=4", 100, account="phys")
    site.submit("2", "1:ppn=1", 1, account="phys")
    assert (site.start("1"), site.available(), site.start("2")) == (0, 0, None)
    site.at(101)
    assert site.balance() == -300


def test_jobs_with_an_empty_account_rank_last_if_configured() -> None:
    site = AccountCluster(nodes=1, empty="last")
    site.set_account(amount=0)
    site.submit("0", "1:ppn=4", 100)
    site.submit("poor", "1:ppn=4", 100, account="phys")
    assert site.start("poor") == 100
    # The promise stays valid: others may pass the job only within the site's slack.
    assert site.engine.state.rank[site.record("poor").slot] < -(1 << 50)
    site.transfer("", "phys", 1000)
    assert site.engine.state.rank[site.record("poor").slot] == 0
    assert (site.available(), site.balance()) == (600, 1000)


def test_jobs_with_an_empty_account_are_displaced_within_their_slack() -> None:
    site = AccountCluster(nodes=1, empty="last")
    site.engine.state.settings = site.engine.state.settings.with_changes(slack="1000")
    site.set_account(amount=0)
    site.submit("0", "1:ppn=4", 100)
    site.submit("poor", "1:ppn=4", 100, account="phys")
    site.submit("rich", "1:ppn=4", 100)
    assert (site.start("rich"), site.start("poor")) == (100, 200)


def test_jobs_without_access_or_with_an_unknown_account_wait() -> None:
    site = AccountCluster(unknown="wait")
    site.set_account(amount=10_000, users=("bob",))
    site.submit("1", account="phys")
    site.submit("2", account="phys", owner="bob@login")
    site.submit("3", account="chem")
    site.submit("4")
    assert site.wait_reason("1") == "account: account phys to be open to ann"
    assert site.start("2") == 0
    assert site.wait_reason("3") == "account: account chem, which does not exist"
    assert site.wait_reason("4") == "account: an account to be named, by the job's account"
    site.set_account("chem", amount=10_000)
    site.set_account(amount=10_000)
    assert site.start("3") is not None
    assert site.start("1") is not None


def test_account_created_later_counts_running_jobs() -> None:
    site = AccountCluster(otherwise="all")
    site.submit("1", "1:ppn=4", 100)
    assert not account_book(site.engine.state).holds
    site.set_account("all", amount=1000)
    assert site.available("all") == 600
    site.at(100)
    assert site.balance("all") == 600


def test_a_period_that_began_early_since_the_clock_was_ahead_begins_again_in_time() -> None:
    site = AccountCluster()
    site.set_account(amount=1000, period="month")
    begin = account_book(site.engine.state).accounts["phys"].until
    site.at(begin - T + 100)
    site.submit("1", "1:ppn=4", 100, account="phys")
    site.at(begin - T + 200)
    site.server.now = T + 1000
    site.send(ClockSet(id="back", time=site.server.now), site.server.snapshot())
    account = account_book(site.engine.state).accounts["phys"]
    assert (account.since, account.until, account.balance) == (T + 1000, begin, 600)
    site.at(begin - T)
    assert site.balance() == 1000


def test_new_period_starts_with_its_amount_minus_the_debt() -> None:
    site = AccountCluster()
    site.set_account(amount=1000, overdraft=500, period="month")
    account = account_book(site.engine.state).accounts["phys"]
    first = datetime.fromtimestamp(account.until, UTC)
    assert (first.month, first.day, first.hour) == (12, 1, 0)
    site.submit("1", "1:ppn=4", 300, account="phys")
    site.at(300)
    assert site.balance() == -200
    site.submit("2", "1:ppn=4", 200, account="phys")
    assert site.start("2") is None
    site.at(account.until - T)
    assert site.start("2") == account.until - T, "no event was needed"
    account = account_book(site.engine.state).accounts["phys"]
    assert (account.balance, account.charged) == (800, 0)
    assert [one.amount for one in account_book(site.engine.state).entries if one.kind == "period"] == [1000]


def test_money_is_charged_by_node_and_hour_prices() -> None:
    prices = [
        {"core_hour": 36.0},
        {"core_hour": 72.0, "first": "2023-11-14T22:13:30", "last": "2023-11-14T23:00:00"},
    ]
    site = AccountCluster(site={"prices": prices})
    site.set_account(unit="money", amount=100_000_000)
    site.submit("1", "1:ppn=2", 100, account="phys", runtime=20)
    assert site.available() == 100_000_000 - round(2 * (10 * 0.01 + 90 * 0.02) * 1_000_000)
    site.at(20)
    assert site.balance() == 100_000_000 - round(2 * (10 * 0.01 + 10 * 0.02) * 1_000_000)


def test_exclusive_job_is_charged_for_all_node_cores() -> None:
    site = AccountCluster()
    site.set_account(amount=1000)
    site.submit("1", "1:ppn=1", 100, account="phys", exclusive=True)
    assert site.available() == 600
    site.at(100)
    assert site.balance() == 600


def test_run_from_the_logs_is_charged_once_and_wrong_charges_are_corrected() -> None:
    site = AccountCluster()
    site.set_account(amount=10_000)
    site.submit("1", "1:ppn=4", 100, account="phys")
    site.at(100)
    assert site.balance() == 9600
    shares = (ShareFacts("n1", 4),)

    def make_run(job: str, start: int, end: int) -> RunFacts:
        return RunFacts(
            id=job, owner="ann@login", account="phys", start=T + start, end=T + end, shares=shares
        )

    def read_logs(*runs: RunFacts) -> None:
        site.send(RunsRead(id=site.server.event_id(), time=site.server.now, runs=runs, until=site.server.now))

    read_logs(make_run("1", 0, 100), make_run("7", 10, 60))
    assert site.balance() == 9400, "one had been charged, the other ran unobserved"
    read_logs(make_run("1", 0, 100), make_run("7", 10, 60))
    assert site.balance() == 9400, "never twice"
    read_logs(make_run("1", 2, 80))
    assert site.balance() == 9488
    line = account_book(site.engine.state).entries[-1]
    assert (line.kind, line.job, line.amount, line.cpu_seconds) == ("correction", "1", 88, -88)
    assert account_book(site.engine.state).read == site.server.now
    read_logs(make_run("8", -50, -10))
    assert site.balance() == 9488, "it ended before the account was created"


def test_account_unit_cannot_change() -> None:
    site = AccountCluster()
    assert site.set_account(amount=1000) == 1
    assert site.set_account(amount=5, unit="money") == 0
    assert site.balance() == 1000


def test_jobs_with_a_closed_account_wait_and_running_jobs_are_charged() -> None:
    site = AccountCluster(nodes=1)
    site.set_account(amount=10_000)
    site.submit("1", "1:ppn=4", 100, account="phys")
    site.submit("2", "1:ppn=4", 100, account="phys")
    site.set_account(amount=10_000, closed=True)
    assert (site.start("1"), site.wait_reason("2")) == (0, "budget: account phys, which is closed")
    site.at(100)
    assert site.balance() == 9600
    site.set_account(amount=10_000)
    assert site.start("2") == 100


def test_jobs_with_a_closed_account_wait_also_where_empty_accounts_go_last() -> None:
    site = AccountCluster(nodes=1, empty="last")
    site.set_account(amount=600)
    for job in ("1", "2", "3"):
        site.submit(job, "1:ppn=4", 100, account="phys")
    assert (site.start("2"), site.start("3")) == (100, 200)
    site.set_account(amount=600, closed=True)
    site.submit("4", "1:ppn=4", 100, account="phys")
    closed = "budget: account phys, which is closed"
    assert {site.wait_reason(job) for job in ("2", "3", "4")} == {closed}
    facts = replace(site.server.jobs["4"], id="")
    fork = fork_plan(site.engine, publish_snapshot(site.engine.state))
    assert isinstance(fork.what_if(facts, site.server.now).answer, WaitingFor)
    site.set_account(amount=600)
    assert sorted([site.start("2") or 0, site.start("3") or 0, site.start("4") or 0]) == [100, 200, 300]


def test_a_logged_run_corrects_its_own_charge_and_not_that_of_the_run_before() -> None:
    site = AccountCluster(nodes=1)
    site.set_account(amount=100_000)
    site.submit("1", "1:ppn=4", 1_000, account="phys")
    site.at(500)
    site.send(*site.server.requeue("1"))
    site.at(1_500)
    assert site.balance() == 100_000 - 4 * 1_500
    shares = (ShareFacts("n1", 4),)
    run = RunFacts(id="1", owner="ann@login", account="phys", start=T + 499, end=T + 1_499, shares=shares)
    site.send(RunsRead(id=site.server.event_id(), time=site.server.now, runs=(run,), until=site.server.now))
    assert site.balance() == 100_000 - 4 * 1_500


def test_deleted_or_held_job_releases_its_held_amount() -> None:
    site = AccountCluster(nodes=1)
    site.set_account(amount=1000)
    site.submit("0", "1:ppn=4", 100)
    site.submit("1", "1:ppn=4", 100, account="phys")
    site.submit("2", "1:ppn=4", 100, account="phys")
    assert site.available() == 200
    site.alter("1", holds="u", state="H")
    assert site.available() == 600
    site.send(*site.server.delete("2"))
    assert site.available() == 1000


def test_accounts_survive_a_restart_and_entries_stay_until_stored() -> None:
    site = AccountCluster()
    site.set_account(amount=1000, users=("ann",))
    site.submit("1", "1:ppn=4", 100, account="phys", runtime=50)
    again = Engine.restore(site.engine.checkpoint())
    assert account_book(again.state) == account_book(site.engine.state)
    site.engine = again
    site.at(50)
    assert site.balance() == 800
    numbers = [one.number for one in publish_snapshot(site.engine.state).part(PublishedAccounts).ledger]
    assert numbers == [1, 2]
    site.send(LedgerStored(id=site.server.event_id(), time=site.server.now, number=1))
    assert [one.number for one in account_book(site.engine.state).entries] == [2]
    assert account_book(Engine.restore(site.engine.checkpoint()).state) == account_book(site.engine.state)


def test_changed_policy_applies_to_all_jobs() -> None:
    site = AccountCluster()
    site.submit("1", "1:ppn=4", 100, account="chem")
    site.submit("2", "2:ppn=4", 100, account="chem")
    changed = {"accounts": {"unknown": "wait"}}
    site.send(PolicyChanged(id=site.server.event_id(), time=site.server.now, version=1, site=changed))
    assert (site.start("1"), site.wait_reason("2")) == (0, "account: account chem, which does not exist")


@pytest.mark.parametrize("policy", ["easy", "fcfs", "sjf"])
def test_queue_policies_respect_accounts(policy: str) -> None:
    site = AccountCluster(nodes=1, policy=policy)
    site.set_account(amount=600)
    site.submit("1", "1:ppn=4", 100, account="phys", runtime=50)
    site.submit("2", "1:ppn=4", 100, account="phys", runtime=100)
    site.submit("3", "1:ppn=4", 100)
    assert (site.runs("1"), site.available()) == ([0], 200)
    assert site.wait_reason("2").startswith("budget: account phys: ")
    site.at(50)
    assert site.balance() == 400, "what job 1 took is charged"
    site.at(400)
    assert len(site.runs("2")) == len(site.runs("3")) == 1
    assert site.runs("2")[0] >= 50, "not before there was enough"
    assert (site.balance(), site.available()) == (0, 0)
    site.submit("4", "1:ppn=1", 100, account="phys")
    site.at(1000)
    assert site.runs("4") == []
    assert site.wait_reason("4").startswith("budget: account phys: ")


def test_insufficient_account_lets_jobs_wait_and_keeps_the_booking() -> None:
    site = AccountCluster(nodes=2, site={"bookings": {"most": 3, "cost": 1.0}}, by="user")
    site.set_account("ann", amount=1000)
    now = site.server.now
    site.send(
        Book(
            id="b",
            time=now,
            name="b1",
            owner="ann",
            resources={"nodes": "1:ppn=4"},
            duration=100,
            ready=now + 5000,
            deadline=now + 9000,
        )
    )
    site.engine.pause("a test")
    site.submit("1", "1:ppn=4", 100)
    assert site.start("1") is not None
    site.set_account("ann", amount=300)
    assert site.wait_reason("1").startswith("budget: ")
    assert "b1" in booking_table(site.engine.state)
    assert site.alerts("error") == []


def test_a_job_that_needs_no_account_any_more_goes_last_no_longer() -> None:
    site = AccountCluster(nodes=1, empty="last", unknown="run")
    site.set_account(amount=0)
    site.submit("1")
    site.submit("2", account="phys")
    site.submit("3")
    rank = site.engine.state.rank
    assert rank[site.record("2").slot] < rank[site.record("3").slot]
    site.alter("2", account="")
    assert rank[site.record("2").slot] == rank[site.record("3").slot]


def test_time_in_which_a_run_was_suspended_costs_nothing_also_after_the_logs_were_read() -> None:
    site = AccountCluster()
    site.set_account(amount=10_000)
    site.submit("1", "1:ppn=4", 300, account="phys", runtime=200)
    site.at(50)
    site.send(*site.server.suspend("1"))
    site.at(90)
    site.send(*site.server.resume("1"))
    site.at(400)
    assert site.balance() == 10_000 - 4 * 200
    shares = (ShareFacts(node="n1", cpus=4, mem=0),)
    run = RunFacts(id="1", owner="ann", start=T, end=T + 241, account="phys", shares=shares)
    site.send(RunsRead(id=site.server.event_id(), time=site.server.now, runs=(run,), until=site.server.now))
    assert site.balance() == 10_000 - 4 * 201, "the log has one second more"


def test_account_holds_what_a_run_costs_with_an_altered_walltime() -> None:
    site = AccountCluster()
    site.set_account(amount=1000)
    site.submit("1", "1:ppn=4", 100, account="phys", runtime=150)
    site.at(50)
    site.alter_request("1", walltime="200")
    assert site.available() == 200
    site.submit("2", "1:ppn=4", 60, account="phys")
    assert site.wait_reason("2").startswith("budget: ")
    site.alter_request("1", walltime="160")
    assert site.available() == 360 - 240
    assert site.runs("2") == [50]


@pytest.mark.parametrize(
    ("rules", "facts", "users"),
    [
        ({"unknown": "wait"}, {"account": "chem"}, ()),
        ({"unknown": "wait", "by": "user"}, {}, ()),
        ({"unknown": "wait", "empty": "last"}, {"account": "phys"}, ("bob",)),
        ({"empty": "last"}, {"account": "phys"}, ("bob",)),
        ({"unknown": "run"}, {"account": "chem"}, ()),
    ],
)
@pytest.mark.parametrize("accounts", [True, False])
def test_a_what_if_waits_for_an_account_as_a_submitted_job_does(
    rules: dict[str, Any], facts: dict[str, Any], users: tuple[str, ...], accounts: bool
) -> None:
    site = AccountCluster(**rules)
    if accounts:
        site.set_account(amount=1000, users=users)
    fork = fork_plan(site.engine, publish_snapshot(site.engine.state))
    site.submit("1", "1:ppn=4", 100, **facts)
    found = fork.what_if(replace(site.record("1").facts, id="what-if"), T).answer
    answer = site.record("1").answer
    assert (found == answer) if answer is not None else isinstance(found, StartKnown)


def test_a_question_that_cannot_name_an_account_is_answered_without_one() -> None:
    site = AccountCluster(unknown="wait")
    site.set_account(amount=1000)
    site.submit("1", "1:ppn=4", 100)
    fork = fork_plan(site.engine, publish_snapshot(site.engine.state))
    facts = site.record("1").facts
    assert isinstance(fork.what_if(replace(facts, id="what-if"), T).answer, StartKnown)
    assert fork.what_if(facts, T, instead_of="1").answer == site.record("1").answer


def test_a_start_lost_for_an_empty_account_is_put_down_to_it_whatever_event_finds_it() -> None:
    """A job that was planned again for another reason in the same batch lost its promise for that one."""
    cluster = AccountCluster(nodes=1)
    cluster.set_account("phys", 2000)
    cluster.submit("1", account="phys")
    cluster.submit("2", account="phys")
    state = cluster.engine.state
    book = account_book(state)
    book.accounts["phys"] = replace(book.accounts["phys"], charged=5000)
    replan(state, cluster.record("2"), "e", Cause.FREED, "it ends earlier on nodes of another speed")
    assert (cluster.start("2"), cluster.at_risk("2")) == (None, Cause.ADMIN)
