"""A follower reaches the leader's state, also when the daemon restarts with other settings."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import delete

from schedd.engine import Engine, EngineSettings
from schedd.plan.kernels.layout import ALLOC, ALLOCS
from schedd.policy.site import site_policy
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.cluster.engine_calls import EngineCallFailed, call_engine
from schedd.service.cluster.log_follower import LogFollower, settings_to_json
from schedd.service.settings.daemon import StoreSettings
from schedd.store import DurableJournal, Store
from schedd.store.tables import batches, events
from schedd.wire import Event, JobFacts, NodeFacts, Run
from tests.engine.server import Server

OLD = EngineSettings(publish_threshold=0, slack="5", site=site_policy({"priority": {"waiting": 1.5}}))
NEW = OLD.with_changes(publish_starts=False, slack="77")
SITE = OLD.with_changes(
    slack="31", site=site_policy({"limits": [{"what": "cpus", "who": "user", "amount": 5}]})
)
T = 1_700_000_000


class LeaderProcess:
    """The work of a leader without its threads: it stores and handles each batch and stores the results."""

    def __init__(self, store: Store, engine: Engine) -> None:
        self.engine = engine
        self.journal = DurableJournal(store, "c", T, every=3600)
        self.server = Server(T)
        self.runs: list[Run] = []

    def batch(self, events: list[Event], now: int) -> None:
        batch = self.journal.commit_events(events, now)
        assert batch is not None
        made = self.engine.handle(batch.events, batch.now).decisions
        self.journal.commit_decisions(batch, made)
        self.runs += [decision for decision in made if isinstance(decision, Run)]

    def wake_up(self, now: int) -> None:
        batch = self.journal.add_wakeup(now)
        self.journal.commit_decisions(batch, self.engine.handle((), now).decisions)

    def use_settings(self, settings: EngineSettings) -> None:
        """Use other settings, as after a reload."""
        self.engine = Engine.restore(self.engine.checkpoint(), settings)
        self.journal.use_settings(settings_to_json(settings))
        self.wake_up(self.server.now)

    def run_jobs(self, numbers: range) -> None:
        """Jobs arrive, get estimates, start, are refused, and end."""
        server = self.server
        for number in numbers:
            server.now += 7
            facts = JobFacts(
                id=f"{number}.s",
                owner="ann",
                queue="q",
                submitted=server.now,
                resources={"nodes": f"1:ppn={1 + number % 4}", "walltime": str(100 + number)},
            )
            self.batch([*server.submit(facts, 50), *server.ends()], server.now)
            outcomes: list[Event] = []
            for run in self.runs:
                outcomes += (
                    server.refuse(run, 15043, "no") if int(run.job_id[:-2]) % 5 == 0 else server.run(run)
                )
            self.runs.clear()
            if outcomes:
                self.batch(outcomes, server.now)

    def write_checkpoint(self) -> None:
        assert self.journal.maybe_checkpoint(self.engine.freeze, T, must=True)


def leader_with_history(store: Store) -> LeaderProcess:
    """Return a leader with jobs that got estimates, starts and refusals, before and after a checkpoint."""
    life = LeaderProcess(store, Engine(OLD, T))
    life.write_checkpoint()
    life.batch([e for n in range(2) for e in life.server.change_node(NodeFacts(name=f"n{n}", cpus=4))], T)
    life.run_jobs(range(6))
    life.write_checkpoint()
    life.run_jobs(range(6, 20))
    return life


def assert_equal_state(found: Engine, expected: Engine) -> None:
    one, other = found.state, expected.state
    assert one.records == other.records
    assert (one.now, one.decision_number, one.breaches) == (other.now, other.decision_number, other.breaches)
    for name in ("promise", "published_start", "update_due"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    tables, others = one.plan.tables, other.plan.tables
    # Where in the table of allocations a job's stand may differ: a saved plan has no gaps there.
    for column in set(range(tables.jobs.shape[0])) - {ALLOC}:
        assert np.array_equal(tables.jobs[column], others.jobs[column]), column
    for first, second, n in zip(tables.jobs[ALLOC], others.jobs[ALLOC], tables.jobs[ALLOCS], strict=True):
        assert np.array_equal(tables.alloc[first : first + n], others.alloc[second : second + n])


def test_log_is_replayed_under_its_recorded_settings(store: Store) -> None:
    life = leader_with_history(store)
    found = LogFollower(store, "c", NEW, T)
    assert found.engine.state.settings == OLD
    assert_equal_state(found.engine, life.engine)


@pytest.mark.covering
@pytest.mark.parametrize("settings", [OLD, NEW])
def test_takeover_applies_own_settings_and_records_them(store: Store, settings: EngineSettings) -> None:
    life = leader_with_history(store)
    found = LogFollower(store, "c", settings, T)
    life.journal = DurableJournal(store, "c", T)
    found.finish_replay(life.journal)
    assert found.engine.state.settings == settings
    assert_equal_state(found.engine, life.engine)
    life.engine = found.engine
    life.run_jobs(range(20, 24))
    life.journal.close()
    again = LogFollower(store, "c", EngineSettings(), T)
    assert again.engine.state.settings == settings
    assert_equal_state(again.engine, found.engine)


@pytest.mark.covering
@pytest.mark.parametrize("kept", ["", "before", "after"])
def test_standby_follows_its_leaders_settings_changes(store: Store, kept: str) -> None:
    life = leader_with_history(store)
    beside = LogFollower(store, "c", OLD, T)
    if kept == "before":
        life.write_checkpoint()
    life.use_settings(SITE)
    if kept == "after":
        life.write_checkpoint()
    life.run_jobs(range(20, 26))
    beside.catch_up()
    for follower in (beside, LogFollower(store, "c", OLD, T)):
        assert follower.engine.state.settings == SITE
        assert_equal_state(follower.engine, life.engine)
    assert beside.engine.state.limits.pools.keys() == life.engine.state.limits.pools.keys() != set()


def test_reloaded_site_limits_survive_a_kill(
    store: Store,
) -> None:
    life = leader_with_history(store)
    life.engine = Engine.restore(life.engine.checkpoint(), SITE)
    life.journal.use_settings(settings_to_json(SITE))
    life.write_checkpoint()  # before anything was planned under them
    life.run_jobs(range(20, 26))
    assert_equal_state(LogFollower(store, "c", SITE, T).engine, life.engine)


def test_recorded_settings_from_another_version_are_replaced(store: Store) -> None:
    life = leader_with_history(store)
    life.journal.use_settings('{"of a later version": 1}')
    life.run_jobs(range(30, 31))
    assert LogFollower(store, "c", NEW, T).engine.state.settings == NEW


def test_standby_older_than_the_first_leader_follows_it(store: Store) -> None:
    store.register_cluster("c", T)
    beside = LogFollower(store, "c", NEW, T - 100)
    life = leader_with_history(store)
    assert beside.catch_up()
    assert beside.engine.state.settings == OLD
    assert_equal_state(beside.engine, life.engine)


@pytest.mark.parametrize("more", [0, 1])
def test_standby_follows_a_log_whose_end_was_lost_and_written_anew(store: Store, more: int) -> None:
    """As after a failover of the database to a late replica: the same numbers, other batches."""
    life = leader_with_history(store)
    beside = LogFollower(store, "c", OLD, T)
    lost = store.last_position(1)
    life.journal.close()
    with store.database.write() as connection:
        connection.execute(delete(events).where(events.c.number > lost.event - 6))
        connection.execute(delete(batches).where(batches.c.last_event > lost.event - 6))
    life.engine = LogFollower(store, "c", OLD, T).engine
    life.journal = DurableJournal(store, "c", T, every=3600)
    while store.last_position(1).batch < lost.batch + more:
        life.server.now += 3
        life.batch(life.server.change_node(NodeFacts(name=f"new{life.server.now}", cpus=2)), life.server.now)
    journal = DurableJournal(store, "c", T)
    beside.finish_replay(journal)
    journal.close()
    assert_equal_state(beside.engine, life.engine)


def test_new_cluster_has_a_checkpoint_before_its_first_event(store: Store) -> None:
    store.register_cluster("c", T)
    found = LogFollower(store, "c", OLD, T)
    journal = DurableJournal(store, "c", T)
    found.finish_replay(journal)
    journal.close()
    assert store.latest_checkpoint(1) is not None
    assert LogFollower(store, "c", NEW, T).engine.state.settings == OLD


def test_first_batch_records_settings_after_a_kill(
    store: Store,
) -> None:
    killed, journal = DurableJournal(store, "c", T), DurableJournal(store, "c", T)
    for one in (killed, journal):
        LogFollower(store, "c", OLD, T).finish_replay(one)
    killed.close()
    assert json.loads(journal.add_wakeup(T).settings)["slack"] == OLD.slack
    journal.close()


def test_checkpoint_with_unknown_settings_is_read_under_own_settings(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader_with_history(store)
    restore = Engine.restore.__func__  # type: ignore[attr-defined]

    def without_its_own(data: bytes, settings: EngineSettings | None = None) -> Engine:
        if settings is None:
            raise ValueError("no such setting")
        return restore(Engine, data, settings)  # type: ignore[no-any-return]

    monkeypatch.setattr(Engine, "restore", without_its_own)
    assert LogFollower(store, "c", NEW, T).engine.state.settings == NEW


def test_log_without_checkpoint_is_replayed_from_the_first_engine(store: Store) -> None:
    life = LeaderProcess(store, LogFollower(store, "c", OLD, T - 20).engine)
    life.run_jobs(range(12))
    found = LogFollower(store, "c", OLD, T + 9999).engine
    assert found.forgotten == life.engine.forgotten
    assert_equal_state(found, life.engine)


def test_log_with_transient_failures_is_replayed_in_the_end(
    store: Store, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader skips a batch that fails three times."""
    leader_with_history(store).journal.close()
    durable = DaemonStore(StoreSettings(url=url, watermarks=tmp_path))
    assert durable.open()
    assert durable.lead.try_acquire()
    calls, fails = 0, 13

    def unwell(*args: Any) -> Any:
        nonlocal calls, fails
        calls += 1
        if calls == fails:
            calls, fails = 0, 25 - fails
            raise EngineCallFailed(args[0], args[1], 0, RuntimeError("on purpose"), 0)
        return call_engine(*args)

    monkeypatch.setattr("schedd.service.cluster.log_follower.call_engine", unwell)
    succession = durable.failover("c", OLD)
    passed = 0
    try:
        for _ in range(60):
            try:
                succession.follow(T)
                break
            except EngineCallFailed as failed:
                calls = 0
                passed += succession.record_failure(failed)
        else:
            raise AssertionError("the log is gone through again and again")
    finally:
        durable.close()
    assert passed


def test_log_with_failures_in_every_batch_is_skipped_after_some_attempts(
    store: Store, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skipping batch after batch would stop the cluster for three attempts at each of thousands."""
    life = leader_with_history(store)
    life.server.now += 500
    life.batch(life.server.ends(), life.server.now)
    assert life.runs
    life.journal.close()
    durable = DaemonStore(StoreSettings(url=url, watermarks=tmp_path))
    assert durable.open()
    assert durable.lead.try_acquire()

    def fails(*args: Any) -> Any:
        raise EngineCallFailed(args[0], args[1], 0, RuntimeError("on purpose"), 0)

    succession = durable.failover("c", OLD)
    found: Engine | None = None
    try:
        with monkeypatch.context() as patch:
            patch.setattr("schedd.service.cluster.log_follower.call_engine", fails)
            for _ in range(9):
                try:
                    found = succession.follow(T)[0]
                except EngineCallFailed as failed:
                    succession.record_failure(failed)
        assert found is not None, "the log is gone through again and again"
        reign = succession.try_lead(T)
        assert reign is not None
        assert (reign.failed is not None, reign.anew) == (True, True)
        assert set(life.runs) <= set(reign.decisions)  # they may still be carried out
        reign.journal.close()
    finally:
        durable.close()
    again = LogFollower(store, "c", OLD, T)
    assert set(again.engine.state.records) == set(found.state.records)
