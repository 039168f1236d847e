"""Published expected starts are stored from the log, with the actual starts."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from schedd.predict import ESTIMATE_KINDS, AccuracyFigures, EstimateKind, Halts
from schedd.service.read.estimate_accuracy import EstimateAccuracy, estimate_accuracy
from schedd.store import EventBatch, PromiseBreach, RetentionLimits, Store
from schedd.store.records import ExpectedStartRecord
from schedd.wire import Event, ExpectedFacts, JobEnded, JobQueued, Snapshot, StartsExpected
from tests.store.event_builders import deleted, facts, queued, snapshot, started

MOST = 2**62


def estimates(number: int, time: int, *jobs: ExpectedFacts) -> StartsExpected:
    return StartsExpected(id=f"told:{number}", time=time, jobs=jobs)


def expected(job: int, start: int, by: int, planned: int, kind: str = "submission") -> ExpectedFacts:
    return ExpectedFacts(f"{job}.srv", start, by, planned, kind)  # type: ignore[arg-type]


def append_events(store: Store, *events: Event, now: int = 1000) -> EventBatch:
    cluster = store.register_cluster("c", 1000)
    batch = store.append_events(cluster, store.last_position(cluster), events, now)
    assert batch is not None
    return batch


def recorded_estimates(store: Store, *kinds: str, **of: str) -> Sequence[ExpectedStartRecord]:
    cluster = store.register_cluster("c", 1000)
    for _ in store.record_history(cluster):
        pass
    return store.expected_starts(cluster, 0, MOST, kinds=kinds or ESTIMATE_KINDS, **of)


def kind_figures(found: EstimateAccuracy, kind: EstimateKind) -> AccuracyFigures:
    """Return the figures of one kind, with all lead times."""
    return next(one.figures for one in found.horizons if (one.kind, one.lead) == (kind, None))


def test_many_expected_starts_are_recorded_in_short_transactions(store: Store) -> None:
    append_events(store, *(queued(job) for job in range(40)))
    append_events(store, estimates(1, 1010, *(expected(job, 1500, 2000, 4000) for job in range(600))))
    cluster = store.register_cluster("c", 1000)
    written = [len(store.expected_starts(cluster, 0, MOST)) for _ in store.record_history(cluster)]
    assert written[-1] == 600
    assert max(later - before for before, later in pairwise([0, *written])) <= 250


def test_expected_starts_are_stored_with_the_actual_start(store: Store) -> None:
    append_events(store, queued(1), queued(2))
    append_events(store, estimates(1, 1010, expected(1, 1500, 2000, 4000), expected(2, 1600, 2500, 5000)))
    append_events(
        store, estimates(2, 1400, expected(1, 1700, 2000, 4000, "waiting"), expected(1, 1, 2, 3, ""))
    )
    assert [one.actual for one in recorded_estimates(store)] == [None, None, None]
    append_events(store, started(3, "1.srv", 1650))
    first = ExpectedStartRecord("1.srv", 1010, 1500, 2000, 4000, "submission", 1650, None)
    later = ExpectedStartRecord("1.srv", 1400, 1700, 2000, 4000, "waiting", 1650, None)
    waits = ExpectedStartRecord("2.srv", 1010, 1600, 2500, 5000, "submission", None, None)
    assert list(recorded_estimates(store)) == [later, first, waits]
    assert list(recorded_estimates(store, "submission")) == [first, waits]
    assert list(store.expected_starts(1, 1011, 1401)) == [later] + [
        one for one in store.expected_starts(1, 1011, 1401) if not one.kind
    ]
    moments = store.job_timeline(1, "1.srv")
    assert ("forecast", 1500) in {(one.kind, one.start) for one in moments}
    assert any("90 % by 1970-01-01 00:33:20 UTC" in one.text for one in moments)


def test_actual_start_is_known_from_snapshots_and_later_runs_do_not_change_it(store: Store) -> None:
    append_events(store, queued(1))
    append_events(store, estimates(1, 1010, expected(1, 1500, 2000, 4000)))
    running = facts("1.srv", state="R", started=1700)
    append_events(store, Snapshot(id="epoch:9", time=1800, jobs=(running,), nodes=snapshot(1, 0).nodes))
    assert [one.actual for one in recorded_estimates(store)] == [1700]
    append_events(store, JobQueued(id="epoch:10", time=1900, job=facts("1.srv")))
    append_events(store, estimates(2, 1950, expected(1, 2500, 3000, 4000)))
    append_events(store, started(11, "1.srv", 2200))
    assert sorted((one.time, one.actual) for one in recorded_estimates(store)) == [(1010, 1700), (1950, 2200)]


def test_expected_starts_are_filtered_by_queue_and_user(store: Store) -> None:
    other = JobQueued(id="epoch:2", time=1000, job=facts("2.srv", owner="bob@login", queue="long"))
    append_events(store, queued(1), other)
    append_events(store, estimates(1, 1010, expected(1, 1500, 2000, 4000), expected(2, 1600, 2500, 5000)))
    for of in ({"user": "bob"}, {"user": "bob@login"}, {"queue": "long"}):
        assert [one.job for one in recorded_estimates(store, **of)] == ["2.srv"]
    assert recorded_estimates(store, user="Bob") == recorded_estimates(store, user="b_b") == []
    assert recorded_estimates(store, user="bo") == recorded_estimates(store, queue="lon") == []


def test_old_estimates_are_purged(store: Store) -> None:
    append_events(store, queued(1))
    append_events(store, estimates(1, 1010, expected(1, 1500, 2000, 4000)), now=1010)
    append_events(store, estimates(2, 2010, expected(1, 1500, 2000, 4000)), now=2010)
    recorded_estimates(store)
    assert store.purge(RetentionLimits(start_estimates=500), 2100)["expected"] == 1
    assert [one.time for one in recorded_estimates(store)] == [2010]


@pytest.mark.covering
@pytest.mark.parametrize("now", [1900, 2400])
def test_missed_p90_counts_at_once_and_deleted_jobs_do_not_count(store: Store, now: int) -> None:
    append_events(store, *(queued(i) for i in range(1, 5)))
    jobs = [expected(i, 1500, 2000, 4000) for i in range(1, 5)]
    append_events(store, estimates(1, 1010, *jobs))
    append_events(store, started(10, "1.srv", 1450), deleted(11, 2, 1900))
    append_events(store, JobEnded(id="epoch:12", time=2300, job_id="1.srv"), deleted(13, 3, 2200))
    recorded_estimates(store)
    found = kind_figures(estimate_accuracy(store, 1, 0, MOST, now), "submission")
    # 1 started in time; 2 was deleted before its P90, 3 after it; 4 waits. Before their P90 none counts.
    if now < 2000:
        assert found.count == 0
        return
    assert found.count == 3
    assert found.p90_coverage == pytest.approx(1 / 3)
    assert (found.median_error, found.plan_median_error, found.error_ratio) == (50, 2550, 50 / 2550)
    assert found.sharpness == pytest.approx(990 / 490)


def test_estimates_with_a_wait_through_a_halt_do_not_count(store: Store) -> None:
    append_events(store, *(queued(i) for i in range(1, 4)))
    append_events(store, estimates(1, 1010, *(expected(i, 1500, 2000, 4000) for i in range(1, 4))))
    append_events(store, started(10, "1.srv", 1450), started(11, "2.srv", 2400))
    recorded_estimates(store)
    found = estimate_accuracy(store, 1, 0, MOST, 3000, Halts(((1_500, 1_900),)))
    assert kind_figures(found, "submission").count == kind_figures(found, "submission").p90_coverage == 1
    assert [one.halted for one in found.horizons if one.lead is None] == [2, 0, 0]
    assert estimate_accuracy(store, 1, 0, MOST, 3000).horizons[0].halted == 0


def test_broken_promises_are_counted_by_period_queue_and_user(store: Store) -> None:
    batch = append_events(store, queued(1), queued(2))
    made = [PromiseBreach(f"{i}.srv", 1000 + i, "e", "freed", 1500, 2000) for i in (1, 2)]
    store.record_decisions(1, batch, (), breaches=made)
    recorded_estimates(store)
    assert estimate_accuracy(store, 1, 0, MOST, 3000).breaches == 2
    assert estimate_accuracy(store, 1, 1002, MOST, 3000).breaches == 1
    assert estimate_accuracy(store, 1, 0, MOST, 3000, user="ann", queue="q").breaches == 2
    for other in ("bob", "Ann"):
        assert estimate_accuracy(store, 1, 0, MOST, 3000, user=other).breaches == 0


def test_limited_accuracy_reports_its_start(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    append_events(store, *(queued(i) for i in range(1, 5)))
    for i in range(1, 5):
        append_events(store, estimates(i, 1000 + i, expected(i, 1500, 2000, 4000)))
    recorded_estimates(store)
    assert estimate_accuracy(store, 1, 0, MOST, 3000).since is None
    for module in ("schedd.store.expected_starts", "schedd.service.read.estimate_accuracy"):
        monkeypatch.setattr(f"{module}.MAX_ROWS", 3)
    found = estimate_accuracy(store, 1, 0, MOST, 3000)
    assert (found.since, kind_figures(found, "submission").count) == (1002, 3)
    assert estimate_accuracy(store, 1, 1003, MOST, 3000).since is None
