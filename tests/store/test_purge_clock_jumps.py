"""Purges by age do not count clock jumps."""

from schedd.store import DurableJournal, Store
from schedd.store.records import LogPosition, RetentionLimits
from tests.store.event_builders import StoredState, queued

DAY = 86_400
YEAR = 365 * DAY
BEGUN = 1_700_000_000


class PurgeableLog:
    """Batches of one event, each followed by two checkpoints, so that all earlier batches can be purged."""

    def __init__(self, store: Store, name: str = "main") -> None:
        self.store = store
        self.cluster = store.register_cluster(name, BEGUN)
        self.name = name

    def batch(self, *days: float) -> None:
        for at in days:
            tail = self.store.last_position(self.cluster)
            number, now = tail.batch, BEGUN + int(at * DAY)
            assert self.store.append_events(self.cluster, tail, [queued(number, now)], now) is not None
            for _ in range(2):
                self.store.save_checkpoint(self.cluster, self.store.last_position(self.cluster), now, b"x")

    def oldest_batch(self) -> int:
        """Return the number of the oldest batch."""
        return self.store.events_after(self.cluster, LogPosition())[0].number

    def purge(self, day: float) -> int:
        """Purge on that day; return the number of deleted batches."""
        return self.store.purge(RetentionLimits(), BEGUN + int(day * DAY), self.cluster).get("batches", 0)


def test_clock_a_year_fast_purges_nothing_for_thirty_days(store: Store) -> None:
    log = PurgeableLog(store)
    log.batch(0, 0.5, 1, 365.5)
    assert log.purge(366) == 0
    other = Store(store.database)  # after a restart
    assert other.purge(RetentionLimits(), BEGUN + YEAR + DAY, log.cluster) == {}
    log.batch(*range(366, 393))
    assert log.purge(393) == 0
    log.batch(395, 396, 397)
    assert log.purge(397) == 3  # thirty days were lived through, and one counts for the year
    assert log.oldest_batch() == 4


def test_corrected_clock_keeps_all_and_purges_at_the_right_age(store: Store) -> None:
    log = PurgeableLog(store)
    log.batch(0, 1, 366, 367, 2, 3)
    assert log.purge(3) == 0
    log.batch(*range(4, 32))
    assert log.purge(31.5) == 2  # unaffected; batches from the future expire with their successors
    log.batch(32, 33)
    assert log.purge(33.5) == 4


def test_earlier_clock_decrease_does_not_offset_a_later_jump(store: Store) -> None:
    log = PurgeableLog(store)
    log.batch(365, 0, 1, 2, 367)
    assert log.purge(367) == 0


def test_fast_clock_before_the_first_write_purges_nothing(store: Store) -> None:
    log = PurgeableLog(store)
    log.batch(0, 1)
    assert log.purge(367) == 0


def test_time_without_clock_jumps_counts_in_full(store: Store) -> None:
    log = PurgeableLog(store)
    log.batch(*range(40))
    assert log.purge(39.5) == 10


def test_clock_jump_in_a_cluster_applies_to_all(store: Store) -> None:
    seen, quiet = PurgeableLog(store, "seen"), PurgeableLog(store, "quiet")
    quiet.batch(0, 1)
    seen.batch(0, 1, 366)
    assert seen.purge(366.5) == 0
    assert quiet.oldest_batch() == 1


def test_deleted_batches_are_renumbered(store: Store) -> None:
    log = PurgeableLog(store)
    log.batch(0, 1, 366)
    assert log.purge(366.5) == 0
    with store.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM batches WHERE number = 3")
        connection.exec_driver_sql("DELETE FROM checkpoints")
    assert log.purge(2) == 0
    assert store._log_gaps._gaps[log.cluster].found == []


def test_history_survives_clock_jumps(store: Store) -> None:
    journal = DurableJournal(store, "main", BEGUN, limits=RetentionLimits(events=2 * DAY, decisions=2 * DAY))
    for number, now in enumerate((BEGUN, BEGUN + 60, BEGUN + YEAR, BEGUN + YEAR + 60)):
        batch = journal.commit_events([queued(number, now)], now)
        assert batch is not None
        journal.commit_decisions(batch, [])
        assert journal.maybe_checkpoint(lambda: StoredState([b"x"]), now, must=True)
    journal._background._wait = 0
    journal.maybe_checkpoint(lambda: StoredState([b"x"]), BEGUN + YEAR + 61)
    journal._background.finished(wait=True)
    journal.close()
    assert len(store.events_after(journal.cluster, LogPosition())) == 4
