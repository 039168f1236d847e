"""The store writes each record once, on both databases."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zlib import compress

import pytest
from sqlalchemy import func, select

from schedd.engine import Cause
from schedd.store import (
    DurableJournal,
    EventBatch,
    Promise,
    PromiseBreach,
    RetentionLimits,
    Store,
    StoreError,
)
from schedd.store.errors import BadCheckpoint, DatabaseUnavailable, SchemaOlder
from schedd.store.records import AuditRecord, LogPosition
from schedd.store.tables import breaches, decisions, metadata, promises, published_starts
from schedd.wire import Decision, Event
from tests.store.conftest import NewDatabase
from tests.store.event_builders import (
    StoredState,
    accepted,
    alert,
    deleted,
    facts,
    queued,
    refused,
    run,
    snapshot,
    started,
    write_attributes,
)
from tests.store.next_version import use_next_version
from tests.waits import WAIT_S, wait_until


def append_events(store: Store, cluster: int, *events: Event, now: int = 1000) -> EventBatch:
    batch = store.append_events(cluster, store.last_position(cluster), events, now)
    assert batch is not None
    return batch


def test_stored_events_are_read_unchanged(store: Store) -> None:
    cluster = store.register_cluster("c", 1000)
    first = append_events(store, cluster, queued(1), queued(2), snapshot(3, 300), now=1001)
    second = append_events(store, cluster, started(4, "1.srv", 1002), now=1003)
    assert store.events_after(cluster, LogPosition()) == (first, second)
    assert store.events_after(cluster, LogPosition(1, 3)) == (second,)
    assert (first.number, first.last_event, second.number, second.last_event) == (1, 3, 2, 4)


def test_repeated_delivery_is_stored_once(store: Store) -> None:
    cluster = store.register_cluster("c", 1000)
    assert append_events(store, cluster, queued(1), queued(2), queued(1)).events == (queued(1), queued(2))
    assert store.append_events(cluster, store.last_position(cluster), [queued(2), queued(1)], 1001) is None
    assert append_events(store, cluster, queued(3), queued(2)).events == (queued(3),)
    assert store.last_position(cluster) == LogPosition(2, 3)


def test_earlier_attempt_with_lost_answer_is_replaced(store: Store) -> None:
    cluster = store.register_cluster("c", 1000)
    append_events(store, cluster, queued(1))
    known = store.last_position(cluster)
    store.append_events(cluster, known, [queued(2), queued(3)], 1001)  # the answer to this one was lost
    batch = store.append_events(cluster, known, [queued(3), queued(4)], 1002)
    assert batch is not None
    assert batch.events == (queued(3), queued(4))
    assert [b.events for b in store.events_after(cluster, LogPosition())] == [
        (queued(1),),
        (queued(3), queued(4)),
    ]


def test_clusters_are_isolated(store: Store) -> None:
    one, two = store.register_cluster("one", 1000), store.register_cluster("two", 1000)
    assert store.register_cluster("one", 2000) == one
    append_events(store, one, queued(1))
    assert append_events(store, two, queued(1)).number == 1
    store.record_decisions(one, EventBatch(number=1, now=1, last_event=1), [alert(1)])
    assert store.decisions_after(two, "") == []


def test_decisions_are_stored_once_and_in_order(store: Store) -> None:
    cluster = store.register_cluster("c", 1000)
    batch = append_events(store, cluster, queued(1))
    made: list[Decision] = [run(1, "1.srv"), write_attributes(2, "2.srv", 5000), alert(3)]
    promised = [Promise("2.srv", 1000, 5000, weak=True)]
    broken = [PromiseBreach("2.srv", 1000, "epoch:1", Cause.NODE_LOST, 5000, None)] * 2
    for _ in range(2):
        store.record_decisions(cluster, batch, made, promises=promised, breaches=broken)
    assert store.decisions_after(cluster, "") == made
    assert store.decisions_after(cluster, made[0].id, 1) == made[1:2]
    with store.database.read() as connection:
        counts = [
            connection.scalar(select(func.count()).select_from(table))
            for table in (decisions, published_starts, promises, breaches)
        ]
    assert counts == [3, 1, 1, 2]


def test_an_open_promise_has_its_last_risk(store: Store) -> None:
    cluster = store.register_cluster("c", 1000)
    batch = append_events(store, cluster, queued(1), queued(2))
    jobs = ("1.srv", "2.srv", "3.srv", "4.srv")
    risks = [PromiseBreach(job, 1000, "e:1", "limit lowered", 5000, None, "risk") for job in jobs]
    later = [
        PromiseBreach("2.srv", 1100, "", "", 5000, 4000, "kept"),
        PromiseBreach("3.srv", 1100, "e:1", "limit lowered", 5000, None),
    ]
    made = [Promise(job, 1200 if job == "4.srv" else 900, 5000) for job in jobs]
    store.record_decisions(cluster, batch, [], promises=made, breaches=[*risks, *later])
    found = store.open_job_promises(cluster)
    assert {job: found[job].risk for job in jobs} == dict.fromkeys(jobs) | {"1.srv": risks[0]}
    assert {job: len(found[job].breaches) for job in jobs} == dict.fromkeys(jobs, 0) | {"3.srv": 1}


def test_outcomes_and_starts_are_stored_with_decisions_and_estimates(store: Store) -> None:
    cluster = store.register_cluster("c", 1000)
    batch = append_events(store, cluster, queued(1))
    store.record_decisions(
        cluster,
        batch,
        [run(1, "1.srv"), run(2, "2.srv"), run(3, "3.srv"), write_attributes(4, "1.srv", 4000)],
    )
    append_events(
        store, cluster, accepted(2, run(1, "").id, "1.srv", 1005), refused(3, run(2, "").id, "2.srv", 1006)
    )
    running = facts("1.srv", state="R", started=4100)
    append_events(store, cluster, replace(snapshot(4, 0), jobs=(running,)), started(5, "9.srv", 1))
    with store.database.read() as connection:
        columns = (decisions.c.outcome, decisions.c.outcome_time, decisions.c.code)
        rows = connection.execute(select(*columns).where(decisions.c.type == "run").order_by(decisions.c.id))
        assert [tuple(row) for row in rows] == [
            ("accepted", 1005, None),
            ("refused", 1006, 15046),
            (None, None, None),
        ]
        assert connection.scalar(select(published_starts.c.actual)) == 4100
    assert [decision.id for decision in store.open_decisions(cluster)] == [
        run(3, "").id,
        write_attributes(4, "", 1).id,
    ]


def test_start_accuracy_is_grouped_by_lead_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = store.register_cluster("c", 1000)
    batch = append_events(store, cluster, queued(1))
    store.record_decisions(
        cluster,
        batch,
        [
            write_attributes(1, "a", 2000),
            write_attributes(2, "b", 9000),
            write_attributes(3, "c", None),
            write_attributes(4, "d", 50),
            write_attributes(5, "a", 2030, 1500),
        ],
    )
    append_events(store, cluster, started(2, "a", 2060), started(3, "b", 8000), started(4, "c", 8000))
    found = store.accuracy(cluster)
    assert found.overall.count == 3
    assert found.overall.mean == pytest.approx((60 + 30 - 1000) / 3)
    assert found.overall.median_absolute == 60
    assert {lead: error.count for lead, error in found.by_lead.items()} == {0: 2, 3600: 1}
    assert store.accuracy(cluster, since=1200).overall.count == 1
    assert store.accuracy(cluster, since=9999).overall.count == 0
    assert store.accuracy(cluster, until=1200).overall.count == 2
    rows = [(one.job, one.start, one.actual) for one in store.published_starts(cluster)]
    assert rows == [("a", 2030, 2060), ("b", 9000, 8000), ("a", 2000, 2060)]
    assert [one.job for one in store.published_starts(cluster, limit=1)] == ["a"]
    assert found.since is None
    monkeypatch.setattr("schedd.store.decision_records._LAST", 1)
    found = store.accuracy(cluster)
    assert (found.overall.count, found.since) == (1, 1500)


def test_broken_promises_are_listed_newest_first(store: Store) -> None:
    cluster, other = store.register_cluster("c", 1000), store.register_cluster("d", 1000)
    found = [
        PromiseBreach("a", 1000, "e:1", Cause.NODE_LOST, 900, 1900),
        PromiseBreach("b", 1000, "e:1", Cause.NODE_LOST, 800, None),
        PromiseBreach("a", 2000, "e:2", Cause.OVERRUN, 1900, 2900),
    ]
    store.record_decisions(cluster, append_events(store, cluster, queued(1)), [], breaches=found[:2])
    store.record_decisions(cluster, append_events(store, cluster, queued(2)), [], breaches=found[2:])
    assert store.broken_promises(cluster) == found[::-1]
    assert store.broken_promises(cluster, limit=1) == found[2:]
    assert store.broken_promises(other) == []


def test_requeued_job_keeps_its_first_start_with_its_estimate(store: Store) -> None:
    cluster = store.register_cluster("c", 1000)
    batch = append_events(store, cluster, queued(1))
    store.record_decisions(cluster, batch, [write_attributes(1, "a", 2000)])
    append_events(store, cluster, started(2, "a", 2000))
    store.record_decisions(cluster, batch, [write_attributes(2, "a", 7000)])
    append_events(store, cluster, started(3, "a", 7100))
    assert store.accuracy(cluster).overall.mean == 50


def test_newest_checkpoint_is_used_and_few_are_stored(store: Store) -> None:
    cluster = store.register_cluster("c", 1000)
    assert store.latest_checkpoint(cluster) is None
    for n in range(1, 6):
        append_events(store, cluster, queued(n))
        store.save_checkpoint(cluster, store.last_position(cluster), 1000 + n, compress(b"state %d" % n))
    state, at = store.latest_checkpoint(cluster) or (b"", LogPosition())
    assert state == b"state 5"
    assert at == LogPosition(5, 5)
    before = store.latest_checkpoint(cluster, before=at.batch)
    assert before is not None
    assert before[0] == b"state 4"
    assert store.latest_checkpoint(cluster, before=4) is None


def test_unreadable_checkpoint_is_skipped(store: Store) -> None:
    cluster = store.register_cluster("c", 1000)
    for n in (1, 2):
        append_events(store, cluster, queued(n))
        body = compress(b"state")
        store.save_checkpoint(cluster, store.last_position(cluster), 1000, body if n == 1 else body[:-3])
    with pytest.raises(BadCheckpoint) as caught:
        store.recover(cluster)
    assert caught.value.batch == 2
    found = store.recover(cluster, caught.value.batch)
    assert (found.checkpoint, [batch.number for batch in found.batches]) == (b"state", [2])


def test_recovery_returns_the_checkpoint_and_later_batches(store: Store) -> None:
    cluster = store.register_cluster("c", 1000)
    append_events(store, cluster, queued(1))
    store.save_checkpoint(cluster, LogPosition(1, 1), 1000, compress(b"1"))
    wakes = [
        EventBatch(number=2, now=1001, last_event=1, calls=7),
        EventBatch(number=3, now=1002, last_event=1, resumed=True),
    ]
    last = store.append_events(
        cluster, LogPosition(3, 1), [queued(2)], 1003, pending=wakes, paused="an admin"
    )
    assert last is not None
    store.record_decisions(cluster, last, [alert(1), alert(2)])
    found = store.recover(cluster)
    assert (found.checkpoint, found.after) == (b"1", LogPosition(1, 1))
    assert store.last_decision(cluster) == alert(2).id
    assert found.batches == (*wakes, last)
    assert found.batches[-1].paused == "an admin"


def test_purge_keeps_rows_that_a_recovery_needs(store: Store) -> None:
    cluster = store.register_cluster("c", 1000)
    for n in range(1, 8):
        batch = append_events(store, cluster, queued(n), now=1000 + n)
        store.record_decisions(
            cluster, batch, [write_attributes(n, "a", 5000, 1000 + n)], promises=[Promise("a", 1000 + n, 1)]
        )
        if n in (3, 5):
            store.save_checkpoint(cluster, store.last_position(cluster), 1000 + n, compress(b"%d" % n))
    store.audit(AuditRecord(1000, "root", "pause", "", "c"))
    store.add_token("t", "user", 900, 950)
    short = RetentionLimits(events=10, decisions=10, start_estimates=10, promises=10, audit=10, tokens=10)
    assert store.purge(short, 1000) == {"tokens": 1}
    gone = store.purge(short, 1_000_000)
    assert gone == {
        "batches": 3,
        "events": 3,
        "decisions": 3,
        "published_starts": 7,
        "promises": 7,
        "audit": 1,
    }
    assert store.purge(short, 1_000_000) == {}
    assert [batch.number for batch in store.recover(cluster).batches] == [6, 7]
    assert [b.number for b in store.recover(cluster, before=5).batches] == [4, 5, 6, 7]


def test_checkpoint_is_written_while_the_engine_works(store: Store) -> None:
    journal = DurableJournal(store, "c", 1000, every=0)
    asked, go_on = threading.Event(), threading.Event()

    def parts() -> Iterator[bytes]:
        asked.set()
        assert go_on.wait(WAIT_S)
        yield b"a "
        yield b"state"

    journal.add_wakeup(1000)
    assert not journal.maybe_checkpoint(lambda: StoredState(parts()), 1000)
    assert asked.wait(WAIT_S)
    batch = journal.commit_events([queued(1)], 1001)
    assert batch is not None
    assert not journal.maybe_checkpoint(StoredState, 1001)  # one at a time
    assert store.latest_checkpoint(journal.cluster) is None
    go_on.set()
    wait_until(lambda: journal.maybe_checkpoint(StoredState, 1002))
    assert store.latest_checkpoint(journal.cluster, before=2) == (b"a state", LogPosition(1, 0))
    assert store.recover(journal.cluster, before=2).batches == (batch,)
    journal.close()


def test_failed_checkpoint_is_reported_and_the_next_is_written(store: Store) -> None:
    journal = DurableJournal(store, "c", 1000, every=0)

    def wrong() -> Iterator[bytes]:
        yield b""
        raise DatabaseUnavailable("no room")

    journal.maybe_checkpoint(lambda: StoredState(wrong()), 1000)
    with pytest.raises(DatabaseUnavailable, match="no room"):  # noqa: PT012
        while True:
            journal.maybe_checkpoint(StoredState, 1000)
    assert journal.maybe_checkpoint(lambda: StoredState([b"state"]), 1000, must=True)
    assert store.latest_checkpoint(journal.cluster) == (b"state", LogPosition())
    journal.close()


def test_a_history_that_cannot_be_written_is_no_failed_checkpoint(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = DurableJournal(store, "c", 1000, every=0)

    def refuse(_cluster: int) -> Iterator[None]:
        raise DatabaseUnavailable("no room")

    with monkeypatch.context() as failing:
        failing.setattr(store, "record_history", refuse)
        journal.maybe_checkpoint(lambda: StoredState([b"1"]), 1000)
        wait_until(lambda: journal.maybe_checkpoint(lambda: StoredState([b"2"]), 1000))
        assert store.latest_checkpoint(journal.cluster) is not None
        assert str(journal.history_error) == "no room"
    wait_until(
        lambda: journal.maybe_checkpoint(lambda: StoredState([b"3"]), 1000) and not journal.history_error
    )
    journal.close()


def test_numbering_continues_after_all_events_were_purged(store: Store) -> None:
    cluster = store.register_cluster("c", 1000)
    append_events(store, cluster, queued(1), queued(2))
    for n in (3, 4):
        wake = EventBatch(number=n - 1, now=1000, last_event=2)
        store.insert_batches(cluster, [wake])
        store.save_checkpoint(cluster, LogPosition(n - 1, 2), 1000, compress(b""))
    store.save_checkpoint(cluster, LogPosition(3, 2), 1000, compress(b""))
    store.purge(RetentionLimits(events=1), 1_000_000)
    assert store.last_position(cluster) == LogPosition(3, 2)
    assert append_events(store, cluster, queued(3)).last_event == 3


def test_token_is_looked_up_by_its_digest_until_revoked_or_expired(store: Store) -> None:
    token = store.add_token("portal", "operator", 1000, 2000)
    found = store.find_token(token)
    assert found is not None
    assert (found.name, found.role, found.valid(1999), found.valid(2000)) == (
        "portal",
        "operator",
        True,
        False,
    )
    assert store.find_token(token + "x") is None
    assert store.revoke_token(found.id, 1500)
    assert not store.revoke_token(found.id, 1600)
    assert [entry.revoked for entry in store.tokens()] == [1500]
    assert not store.tokens()[0].valid(1500)
    assert len(token) >= 43
    assert store.add_token("portal", "operator", 1000) != token


def test_audit_lists_actions_newest_first(store: Store) -> None:
    store.register_cluster("c", 1)
    entries = [AuditRecord(5, "ann", "pause", "lunch", "c"), AuditRecord(6, "bob", "token", "made 1")]
    for entry in entries:
        store.audit(entry)
    assert store.audit_entries() == entries[::-1]
    assert store.audit_entries(since=6) == entries[1:]


def test_hostile_texts_are_stored(store: Store) -> None:
    cluster = store.register_cluster("c", 1000)
    odd = "a\x00b'\"; DROP TABLE events; -- \U0001f600" + "x" * 5000
    event = replace(queued(1), id=odd, job=facts(odd))
    batch = append_events(store, cluster, event)
    assert store.append_events(cluster, store.last_position(cluster), [event], 1000) is None
    store.record_decisions(cluster, batch, [write_attributes(1, odd, 5)])
    assert store.events_after(cluster, LogPosition())[0].events == (event,)
    assert store.decisions_after(cluster, "") == [write_attributes(1, odd, 5)]


def test_reads_do_not_wait_for_a_writer(store: Store) -> None:
    cluster = store.register_cluster("c", 1000)
    append_events(store, cluster, queued(1))
    seen: list[LogPosition] = []
    with store.database.write() as connection:
        connection.execute(metadata.tables["audit"].insert().values(time=1, who="a", act="b", detail=""))
        reader = threading.Thread(target=lambda: seen.append(store.last_position(cluster)))
        reader.start()
        reader.join(WAIT_S)
    assert seen == [LogPosition(1, 1)]


def test_readers_cannot_write(store: Store) -> None:
    with (
        pytest.raises(StoreError, match=r"(?i)read-?only"),
        store.database.read() as connection,
    ):
        connection.execute(metadata.tables["audit"].insert().values(time=1, who="a", act="b", detail=""))


def test_reopened_store_has_its_data(new_database: NewDatabase) -> None:
    url = new_database()
    store = Store.open(url)
    cluster = store.register_cluster("c", 1000)
    append_events(store, cluster, queued(1), deleted(2, 1))
    store.close()
    again = Store.open(url)
    assert again.register_cluster("c", 1) == cluster
    assert again.last_position(cluster) == LogPosition(1, 2)
    again.close()


def test_opening_does_not_change_older_tables(
    new_database: NewDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_database()
    Store.open(url).close()
    use_next_version(monkeypatch, tmp_path)
    with pytest.raises(SchemaOlder, match="schedd migrate"):
        Store.open(url)


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("mysql://a@b/c", StoreError, "not supported"),
        ("sqlite://", StoreError, "not supported"),
        ("://", StoreError, "not the URL"),
        ("/nowhere/at/all.sqlite", DatabaseUnavailable, "check that the database runs"),
        ("postgresql://nobody:secret@127.0.0.1:1/none", DatabaseUnavailable, "check that the database runs"),
    ],
)
def test_unopenable_database_is_named_without_password(url: str, error: type[StoreError], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        Store.open(url)
    assert "secret" not in str(caught.value)
