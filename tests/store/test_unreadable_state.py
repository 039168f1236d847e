"""A daemon with unreadable checkpoints: promises and user orders survive."""

import re
import sys
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import insert, select, text, update

from schedd.engine import Cause, Engine, EngineSettings
from schedd.engine.checkpoint import FORMAT
from schedd.features.accounts.state import account_book
from schedd.features.bookings.state import booking_table
from schedd.features.prediction.state import find_predictor
from schedd.model import FOREVER
from schedd.policy.site import site_policy
from schedd.predict import JobFeatures, RunTimes
from schedd.service.cluster.log_follower import LogFollower
from schedd.service.cluster.promise_tracker import PromiseTracker
from schedd.store import DurableJournal, EventBatch, Store, StoreError, downgrade_checks, schema_version
from schedd.store.checkpoint_envelope import CheckpointRow, seal
from schedd.store.records import LogPosition
from schedd.store.tables import breaches, checkpoints, decisions, promises
from schedd.wire import (
    AccountSet,
    Alert,
    Book,
    Decision,
    Event,
    JobFacts,
    NodeFacts,
    PlanningHeld,
    QueueFacts,
    Run,
)
from tests.engine.server import Server
from tests.features.prediction.test_earlier import accounting_record as ended_run_record
from tests.store.next_version import FIRST, use_next_version

T = 1_700_000_000
SETTINGS = EngineSettings(
    slack="300", publish_threshold=0, end_allowance=0, site=site_policy({"bookings": {"most": 5, "cpus": 8}})
)


class InProcessDaemon:
    """The work of a daemon without threads: it follows, leads, and stores its results."""

    def __init__(self, store: Store, server: Server) -> None:
        self.server = server
        self.store = store
        self.follower = LogFollower(store, "c", SETTINGS, server.now)
        self.journal = DurableJournal(store, "c", server.now, every=3600)
        self.follower.finish_replay(self.journal)
        self.engine: Engine = self.follower.engine
        self.promised: PromiseTracker = self.follower.promised
        self.alerts: list[str] = []
        if self.follower.lost is not None:
            self.batch([self.follower.lost])

    def batch(self, events: list[Event]) -> None:
        batch = self.journal.commit_events(events, self.server.now)
        assert batch is not None
        self._handle(batch.number, batch.events)

    def _handle(self, number: int, events: tuple[Event, ...]) -> None:
        now, outcomes = self.server.now, list[Event]()
        made = self.engine.handle(events, now).decisions
        news = self.promised.changes(self.engine)
        last = self.journal._tail
        batch = replace(_BATCH, number=number, now=now, last_event=last.event)
        self.journal.commit_decisions(batch, made, *news)
        for one in made:
            if isinstance(one, Run):
                outcomes += self.server.run(one)
            if isinstance(one, Alert):
                self.alerts.append(f"{one.kind}: {one.text}")
        if outcomes:
            self.batch(outcomes)

    def pass_time(self, seconds: int) -> None:
        """Job ends are reported at once, and due work is done on time."""
        until, server = self.server.now + seconds, self.server
        while True:
            ends = [one.started + server.runtime[one.id] for one in server.jobs.values() if one.started]
            wake = self.engine.next_wake
            moments = [at for at in (*ends, *([wake] if wake is not None else [])) if at <= until]
            if not moments:
                server.now = until
                return
            server.now = max(server.now, min(moments))
            gone = server.ends()
            if gone:
                self.batch(gone)
            else:
                batch = self.journal.add_wakeup(server.now, self.engine.state.paused)
                self._handle(batch.number, ())

    def submit(self, name: str, nodes: str, walltime: int) -> None:
        facts = JobFacts(
            id=name,
            owner="ann@login",
            queue="batch",
            submitted=self.server.now,
            resources={"nodes": nodes, "walltime": str(walltime)},
        )
        self.batch(self.server.submit(facts, walltime))

    def stop(self, *, checkpoint: bool = True) -> None:
        if checkpoint:
            assert self.journal.maybe_checkpoint(self.engine.freeze, self.server.now, must=True)
        self.journal.close()

    def promises(self) -> dict[str, int]:
        state = self.engine.state
        return {
            record.id: int(state.promise[record.slot])
            for record in state.records.values()
            if record.slot >= 0 and state.promise[record.slot] < FOREVER
        }


_BATCH = EventBatch(number=1, now=T, last_event=0)


def start_busy_daemon(store: Store) -> InProcessDaemon:
    """Start a daemon with running and waiting jobs, promises, a booking, an account and a hold."""
    server = Server(T)
    daemon = InProcessDaemon(store, server)
    for number in range(1, 5):
        server.nodes[f"n{number}"] = NodeFacts(name=f"n{number}", cpus=4)
    server.queues["batch"] = QueueFacts(name="batch")
    daemon.batch([server.snapshot()])
    for number in range(12):
        daemon.submit(f"{number}.s", f"{1 + number % 3}:ppn=4", 200 + 30 * number)
        daemon.pass_time(7)
    more = {"id": server.event_id(), "time": server.now}
    daemon.batch(
        [
            PlanningHeld(id=server.event_id(), time=server.now, kind="queue", name="night", reason="later"),
            AccountSet(id=server.event_id(), time=server.now, name="physics", amount=3_600),
            Book(
                **more,  # type: ignore[arg-type]
                name="demo",
                owner="ann@login",
                resources={"nodes": "1:ppn=4"},
                duration=600,
                ready=T + 9_000,
                deadline=T + 9_600,
            ),
        ]
    )
    daemon.pass_time(400)
    return daemon


def replace_format(store: Store, *, facts: bool) -> None:
    """Give all checkpoints an unknown format."""
    with store.database.write() as connection:
        for row in connection.execute(select(checkpoints)).all():
            place = CheckpointRow(row.cluster, LogPosition(row.batch, row.last_event), row.time, row.chain)
            body = seal(place, zlib.compress(b"schedd-engine 99\nwhat nobody can read"))
            values = {"body": body, **({} if facts else {"facts": None})}
            connection.execute(update(checkpoints).where(checkpoints.c.batch == row.batch).values(**values))


def damage_checkpoints(store: Store, *, facts: bool) -> None:
    with store.database.write() as connection:
        values = {"body": b"nothing", **({} if facts else {"facts": b"nothing"})}
        connection.execute(update(checkpoints).values(**values))


def checkpoint_rows(store: Store) -> list[tuple[str, int, int]]:
    with store.database.read() as connection:
        found = connection.execute(select(promises).order_by(promises.c.batch, promises.c.job))
        return [(row.job, row.time, row.promised) for row in found]


@pytest.mark.covering
@pytest.mark.parametrize("lose", [replace_format, damage_checkpoints])
@pytest.mark.parametrize("facts", [True, False])
@pytest.mark.parametrize("checkpoint", [True, False])
def test_promises_and_user_orders_survive_unreadable_checkpoints(
    store: Store, lose: Callable[..., None], facts: bool, checkpoint: bool
) -> None:
    before = start_busy_daemon(store)
    known, recorded = before.promises(), checkpoint_rows(store)
    waiting = [job for job, state in job_states(before).items() if state == "waiting"]
    assert len(waiting) >= 5
    before.stop()
    if not checkpoint:  # more happened after it, and then the daemon was killed
        before = InProcessDaemon(store, before.server)
        before.submit("late.s", "2:ppn=4", 500)
        before.pass_time(30)
        known, recorded = before.promises(), checkpoint_rows(store)
        before.stop(checkpoint=False)
    lose(store, facts=facts)
    if not facts:  # the version that wrote the log made other promises
        with store.database.write() as connection:
            connection.execute(update(promises).values(promised=promises.c.promised + 37))
        known, recorded = {job: at + 37 for job, at in known.items()}, checkpoint_rows(store)
    after = InProcessDaemon(store, before.server)
    assert any("the planner's state was rebuilt" in alert for alert in after.alerts), after.alerts
    assert any(alert.startswith("snapshot") for alert in after.alerts), after.alerts
    after.batch([after.server.snapshot()])
    assert after.engine.state.stale == ""
    assert {job: after.promises()[job] for job in waiting} == {job: known[job] for job in waiting}
    assert checkpoint_rows(store) == recorded, "nothing is promised anew"
    state = after.engine.state
    assert set(state.holds) == {("queue", "night")}
    assert account_book(state).accounts["physics"].balance == 3_600
    demo, was = booking_table(state)["demo"], booking_table(before.engine.state)["demo"]
    assert (demo.phase, demo.start) == (was.phase, was.start)
    # The plan may differ now: starts after the promise are at risk or broken, and reported.
    for job in waiting:
        record = state.records[job]
        if record.slot >= 0 and not 0 <= state.plan.start(record.slot) <= known[job]:
            assert record.risk is not None
            assert record.risk.cause.value == Cause.OUTAGE
    after.pass_time(20)
    after.stop()
    once_more = InProcessDaemon(store, before.server)
    assert once_more.follower.lost is None
    assert {job: once_more.promises()[job] for job in waiting if job in job_states(once_more)} == {
        job: known[job] for job in waiting if job in job_states(once_more)
    }
    once_more.stop()


def job_states(daemon: InProcessDaemon) -> dict[str, str]:
    return {record.id: record.phase.value for record in daemon.engine.state.records.values()}


def test_plan_rebuilt_from_stored_facts_starts_no_job_later(store: Store) -> None:
    before = start_busy_daemon(store)
    starts = planned_starts(before)
    before.stop()
    replace_format(store, facts=True)
    after = InProcessDaemon(store, before.server)
    after.batch([after.server.snapshot()])
    now = planned_starts(after)
    assert now.keys() == starts.keys()
    assert all(now[job] <= start for job, start in starts.items())
    after.pass_time(4_000)
    with store.database.read() as connection:
        assert not connection.execute(select(breaches)).all()
    assert not after.engine.state.foreign
    assert job_states(after) == {}
    after.stop()


def learned_run_times(follower: LogFollower) -> RunTimes:
    outlook = find_predictor(follower.engine.state)
    assert outlook is not None
    return outlook.learner.run_times


def test_learned_run_times_survive_an_unreadable_checkpoint(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SETTINGS", SETTINGS.with_changes(predict=True))
    before = start_busy_daemon(store)
    before.pass_time(2_000)
    ask = JobFeatures("ann", 260, 4)
    ends, told = (
        learned_run_times(before.follower).ends,
        learned_run_times(before.follower).predict(ask).quantiles,
    )
    assert ends >= 5
    before.stop()
    replace_format(store, facts=True)
    after = InProcessDaemon(store, before.server)
    assert learned_run_times(after.follower).ends == ends
    assert learned_run_times(after.follower).predict(ask).quantiles.tolist() == told.tolist()
    after.stop()


def test_missing_run_time_facts_are_learned_from_accounting_logs(store: Store, tmp_path: Path) -> None:
    before = start_busy_daemon(store)  # it predicts nothing
    before.stop()
    replace_format(store, facts=True)
    log = tmp_path / "accounting"
    log.write_text("".join(ended_run_record(T - 86_400 + 100 * i) for i in range(30)))
    settings = SETTINGS.with_changes(predict=True, predict_from=str(log))
    follower = LogFollower(store, "c", settings, before.server.now)
    assert re.search(r"the facts stored with the state after batch \d+ are used", follower.rebuilt)
    assert learned_run_times(follower).ends == 30


def test_starts_by_another_version_are_not_foreign(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all starts would stop after an upgrade until a resume."""
    before = start_busy_daemon(store)
    before.stop()
    replace_format(store, facts=False)
    monkeypatch.setattr("schedd.engine.run.dispatch._dispatch", lambda *_: None)  # it decides other starts
    follower = LogFollower(store, "c", SETTINGS, before.server.now)
    state = follower.engine.state
    assert sum(record.phase.value == "running" for record in state.records.values()) >= 1
    assert state.foreign == ""
    assert state.unexplained_starts == []
    assert state.unsure_until > state.now  # decisions of that version may still be carried out


def planned_starts(daemon: InProcessDaemon) -> dict[str, int]:
    state = daemon.engine.state
    return {record.id: state.plan.start(record.slot) for record in state.records.values() if record.slot >= 0}


def test_promise_missed_through_an_outage_is_recorded_as_broken(store: Store) -> None:
    before = start_busy_daemon(store)
    (job, promised) = next(
        (job, known) for job, known in before.promises().items() if job_states(before)[job] == "waiting"
    )
    before.stop()
    replace_format(store, facts=True)
    for name in before.server.nodes:
        before.server.nodes[name] = replace(before.server.nodes[name], state="down")
    after = InProcessDaemon(store, before.server)
    after.batch([after.server.snapshot()])
    after.pass_time(promised - after.server.now + 10)
    broken = [one for one in store.broken_promises(after.journal.cluster) if one.job == job]
    assert [(one.promised, one.cause) for one in broken] == [(promised, Cause.OUTAGE)]
    after.stop()


# ---- the two latest versions of the tables --------------------------------------------------------


@pytest.mark.covering
@pytest.mark.parametrize("readable", [True, False])
def test_database_can_be_downgraded_and_upgraded_again(
    url: str, readable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_next_version(monkeypatch, tmp_path)
    with closing(Store.open(url)) as store:
        before = start_busy_daemon(store)
        known, was = before.promises(), before.engine.state
        before.stop()
        recorded = checkpoint_rows(store)
        store.database.migrate(FIRST, back=True)
        assert store.database.versions()[0] == FIRST
        store.database.migrate()
    with closing(Store.open(url)) as store:
        if not readable:
            replace_format(store, facts=False)
        after = InProcessDaemon(store, before.server)
        assert bool(after.follower.lost) is not readable
        if not readable:
            after.batch([after.server.snapshot()])
        assert after.promises() == known
        assert checkpoint_rows(store) == recorded
        state = after.engine.state
        assert (state.holds, account_book(state).accounts) == (was.holds, account_book(was).accounts)
        assert booking_table(state)["demo"].start == booking_table(was)["demo"].start
        after.stop()


@pytest.mark.covering
@pytest.mark.parametrize(
    ("new", "new_format", "words"),
    [
        ("book", False, r"records that version does not know: .*1 book\b"),
        ("account_set", True, r"1 account_set"),
        ("run", False, r"\d run\b"),
    ],
)
def test_downgrade_is_refused_if_the_older_version_cannot_continue(
    url: str, new: str, new_format: bool, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_next_version(monkeypatch, tmp_path, new_records=[new], new_format=new_format)
    store = Store.open(url)
    daemon = start_busy_daemon(store)
    daemon.stop()
    # What came before the older of the two checkpoints is not read again.
    daemon = InProcessDaemon(store, daemon.server)
    daemon.stop(checkpoint=False)
    head = schema_version.head()
    with pytest.raises(StoreError, match=rf"{words}.*Nothing was changed.*copy of the database"):
        store.database.migrate(FIRST, back=True)
    assert store.database.versions() == (head, head)
    assert InProcessDaemon(store, daemon.server).promises() == daemon.promises()
    store.close()


def test_downgrade_that_would_drop_rows_is_refused(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_next_version(monkeypatch, tmp_path)
    with closing(Store.open(url)) as store:
        with store.database.write() as connection:
            connection.execute(text("INSERT INTO example (id) VALUES (1)"))
        with pytest.raises(StoreError, match="it would drop table example with 1 rows"):
            store.database.migrate(FIRST, back=True)
        assert store.database.versions()[0] == schema_version.head()
        store.database.migrate("base", back=True)
        assert store.database.versions()[0] is None


def test_every_record_type_and_state_format_has_a_schema_version() -> None:
    """A new type of event or decision, or another format of the state, comes with a migration: list it."""
    kinds = {kind.__dataclass_fields__["type"].default for kind in (*get_args(Event), *get_args(Decision))}
    listed = [one for types in downgrade_checks.RECORDS.values() for one in types]
    assert sorted(listed) == sorted(kinds)
    assert downgrade_checks.state_format(schema_version.head()) == FORMAT
    versions = {
        one.revision for one in ScriptDirectory.from_config(schema_version._config()).walk_revisions()
    }
    assert {*downgrade_checks.RECORDS, *downgrade_checks.STATE_FORMATS} <= versions


def test_unknown_decision_from_a_newer_version_is_ignored(store: Store) -> None:
    daemon = start_busy_daemon(store)
    daemon.stop()
    with store.database.write() as connection:
        values = {"cluster": 1, "id": "d000000000999", "batch": 1, "time": T, "body": "{}"}
        connection.execute(insert(decisions).values({"type": "teleport", **values}))
    after = InProcessDaemon(store, daemon.server)
    assert after.promises() == daemon.promises()
    assert store.decisions_after(1, "d000000000998") == []
    after.stop()
