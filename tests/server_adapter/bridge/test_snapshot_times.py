"""When the whole state is sent again."""

from server_adapter.bridge.snapshots import SnapshotTimes


def test_a_clock_that_was_set_back_does_not_put_the_next_snapshot_off() -> None:
    now = [1_000_000.0]
    times = SnapshotTimes(600, lambda: now[0])

    def due(later: float) -> bool:
        now[0] += later
        return times.due

    times.sent(None)
    assert due(86_400)
    times.insist()
    times.sent(10)
    found = [due(0), due(-86_400)]
    times.sent(None)
    found += [due(-30), due(629), due(1)]
    assert found == [False, True, False, False, True]
