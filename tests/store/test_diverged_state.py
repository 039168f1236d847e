"""A confined error in only one of the processes: all continue from the same state."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from schedd.engine import Engine, EngineSettings
from schedd.engine.place import placement
from schedd.engine.show.job_view import job_view
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.cluster.engine_calls import EngineCallFailed, call_engine
from schedd.service.cluster.log_follower import LogFollower
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import new_engine
from schedd.service.settings.daemon import StoreSettings
from schedd.store import (
    RESUME_FROM_CHECKPOINT,
    DurableJournal,
    EventBatch,
    MemoryJournal,
    Promise,
    PromiseBreach,
    Store,
)
from schedd.wire import Alert, Decision, JobFacts, NodeFacts
from tests.engine.server import Server
from tests.service.planner_harness import StillClock, T, job, node
from tests.store.test_log_follower import assert_equal_state
from tests.waits import WAIT_S, wait_until

SETTINGS = EngineSettings(publish_threshold=0, batch_limit=30)


class CallbackJournal(DurableJournal):
    """A journal with a callback between storing a batch and storing its results."""

    look: Callable[[], object] = staticmethod(lambda: None)

    def commit_decisions(
        self,
        batch: EventBatch,
        decisions: Sequence[Decision],
        promises: Sequence[Promise] = (),
        breaches: Sequence[PromiseBreach] = (),
        state: bytes = b"",
    ) -> tuple[Decision, ...]:
        self.look()
        return super().commit_decisions(batch, decisions, promises, breaches, state)


@contextmanager
def running_leader(store: Store) -> Iterator[tuple[PlanLoop, CallbackJournal]]:
    """A planner that writes to the store, with two jobs."""
    engine, journal = new_engine(SETTINGS, T), CallbackJournal(store, "c", T, every=3600)
    journal.maybe_checkpoint(engine.freeze, T, must=True)
    loop = PlanLoop("c", engine, journal, StillClock())
    loop.start()
    try:
        loop.submit([node("n1", 8), node("n2", 8)]).result(WAIT_S)
        loop.submit([job("1"), job("2")]).result(WAIT_S)
        yield loop, journal
    finally:
        loop.stop()
        journal.close()


def failing_placement(number: str, before: Callable[[Any], object] = lambda _: None) -> Callable[..., Any]:
    """Make one daemon, but not the other, fail on a job."""
    seat = placement._place_job

    def fails(state: Any, record: Any, *rest: Any, **named: Any) -> Any:
        if record.id == number:
            before(state)
            raise MemoryError("of this process alone")
        return seat(state, record, *rest, **named)

    return fails


def live_engine(loop: PlanLoop) -> Engine:
    return loop.call_between_batches(lambda engine: Engine.restore(engine.fork().checkpoint())).result(WAIT_S)


def is_quarantined(engine: Engine, number: str) -> bool:
    return bool(engine.state.records[number].quarantine)


def alert_texts(loop: PlanLoop, kind: str) -> list[str]:
    page = loop.decisions.page_after("")
    return [one.text for one in page.decisions if isinstance(one, Alert) and one.kind == kind]


def test_follower_adopts_the_state_after_a_leader_only_error(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_leader(store) as (loop, _):
        standby = LogFollower(store, "c", SETTINGS, T)
        with monkeypatch.context() as patch:
            patch.setattr(placement, "_place_job", failing_placement("3"))
            loop.submit([job("3"), job("4")]).result(WAIT_S)
        assert alert_texts(loop, "quarantine")
        loop.submit([job("5")]).result(WAIT_S)
        standby.catch_up()
        restarted = LogFollower(store, "c", SETTINGS, T)
        for found in (standby.engine, restarted.engine):
            assert "an administrator: planning it failed" in str(found.state.records["3"].answer)
            assert_equal_state(found, live_engine(loop))


def test_standby_adopts_the_state_after_a_leader_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_leader(store) as (loop, journal):
        standby = LogFollower(store, "c", SETTINGS, T)
        with monkeypatch.context() as patch:
            patch.setattr(placement, "_place_job", failing_placement("3"))

            def follows() -> None:
                patch.undo()
                standby.catch_up()

            journal.look = follows
            loop.submit([job("3"), job("4")]).result(WAIT_S)
            journal.look = lambda: None
        assert not is_quarantined(standby.engine, "3")
        assert standby.catch_up()
        assert is_quarantined(standby.engine, "3")
        loop.submit([job("5")]).result(WAIT_S)
        standby.catch_up()
        assert_equal_state(standby.engine, live_engine(loop))


@pytest.mark.covering
@pytest.mark.parametrize("ahead", [False, True])
def test_standby_recovers_from_its_own_error(
    store: Store, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    with running_leader(store) as (loop, _):
        standby = LogFollower(store, "c", SETTINGS, T)
        loop.submit([job("3"), job("4")]).result(WAIT_S)
        with monkeypatch.context() as patch:
            patch.setattr(placement, "_place_job", failing_placement("3"))
            standby.catch_up()
        assert is_quarantined(standby.engine, "3")
        if ahead:
            journal = DurableJournal(store, "c", T)
            standby.finish_replay(journal)
            journal.close()
        else:
            loop.submit([job("5")]).result(WAIT_S)
            standby.catch_up()
        assert not is_quarantined(standby.engine, "3")
        assert_equal_state(standby.engine, live_engine(loop))


def test_persistent_error_at_takeover_is_stored_as_checkpoint(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_leader(store) as (loop, journal):
        standby = LogFollower(store, "c", SETTINGS, T)
        loop.stop()
        journal.commit_events([job("3"), job("4")], T)  # and the leader is gone
        with monkeypatch.context() as patch:
            patch.setattr(placement, "_place_job", failing_placement("3"))
            mine = DurableJournal(store, "c", T)
            standby.finish_replay(mine)
            mine.close()
        tail = store.last_position(mine.cluster)
        assert store.batch_calls(mine.cluster, tail.batch) == RESUME_FROM_CHECKPOINT
        again = LogFollower(store, "c", SETTINGS, T)
        assert is_quarantined(again.engine, "3")
        assert again.engine.state.unsure_until > T  # the leader may have decided otherwise
        assert_equal_state(again.engine, standby.engine)


def test_inconsistent_state_after_an_error_is_rebuilt(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def halfway(state: Any) -> None:
        state.without_place["nobody"] = None

    with running_leader(store) as (loop, _):
        with monkeypatch.context() as patch:
            patch.setattr(placement, "_place_job", failing_placement("3", halfway))
            loop.submit([job("3"), job("4")]).result(WAIT_S)
        (told,) = alert_texts(loop, "batch_skipped")
        assert "a job that is gone waits for a node" in told
        assert "job 3 is set aside and not planned" in told
        assert alert_texts(loop, "snapshot")
        loop.submit([job("4"), job("5")]).result(WAIT_S)
        assert loop.alive
        assert loop.failure == ""
        found = [job_view(loop.published, number) for number in ("1", "4", "5")]
        assert [view.answer for view in found if view is not None] == ["start_known"] * 3
        assert_equal_state(LogFollower(store, "c", SETTINGS, T).engine, live_engine(loop))


def test_missing_stored_state_counts_as_log_loss(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_leader(store) as (loop, journal):
        with monkeypatch.context() as patch:
            patch.setattr(placement, "_place_job", failing_placement("3"))
            loop.submit([job("3"), job("4")]).result(WAIT_S)
        loop.stop()
        store.save_checkpoint(journal.cluster, store.last_position(journal.cluster), T, b"no checkpoint")
        standby = LogFollower(store, "c", SETTINGS, T)
        mine = DurableJournal(store, "c", T)
        standby.finish_replay(mine)
        mine.close()
        assert standby.lost is not None
        assert "the state after batch" in standby.lost.why


def test_unreplayable_log_is_skipped_after_eight_failures(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skipping batch after batch would stop the cluster for three attempts at each."""
    durable = DaemonStore(StoreSettings(url=url, watermarks=tmp_path, checkpoint=3600))
    assert durable.open()
    loop = PlanLoop(
        "c",
        new_engine(SETTINGS, T),
        MemoryJournal(),
        StillClock(),
        succession=durable.failover("c", SETTINGS),
    )
    loop.start()
    tries = 0

    def fails(*args: Any) -> Any:
        nonlocal tries
        tries += 1
        raise EngineCallFailed(args[0], args[1], 0, RuntimeError("on purpose"), 0)

    server = Server(T)
    try:
        durable.start_election([loop])
        wait_until(lambda: not loop.on_standby)
        loop.submit([*server.change_node(NodeFacts(name="n1", cpus=8))]).result(WAIT_S)
        for number in range(40):
            facts = JobFacts(
                id=f"{number}.s", owner="ann", queue="q", submitted=T, resources={"walltime": "100"}
            )
            loop.submit(server.submit(facts, 50)).result(WAIT_S)
        with monkeypatch.context() as patch:
            patch.setattr("schedd.service.cluster.log_follower.call_engine", fails)
            patch.setattr("schedd.service.cluster.planner.call_engine", failing_once(call_engine))
            loop.submit([*server.hold("39.s")]).result(WAIT_S)
        assert tries < 30, "the log is gone through again and again"
        assert (loop.alive, loop.failure, loop.trouble) == (True, "", "")
        told = alert_texts(loop, "batch_skipped")
        assert len(told) == 1
        assert "the plan is rebuilt from a snapshot" in told[0]
        loop.submit([server.snapshot()]).result(WAIT_S)
        assert len(loop.published.records) >= 40
        assert loop.published.halted == ""
    finally:
        loop.stop()
        durable.close()


def failing_once(work: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that fails at its first call."""
    left = [True]

    def fails(*args: Any) -> Any:
        if left.pop() if left else False:
            raise EngineCallFailed(args[0], args[1], 0, RuntimeError("on purpose"), 0)
        return work(*args)

    return fails
