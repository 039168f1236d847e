"""When the whole state is sent again."""

from server_adapter.bridge.snapshots import SnapshotTimes


def test_a_clock_that_was_set_back_does_not_put_the_next_snapshot_off() -> None:
    now = [1_000_000.0]
    times = SnapshotTimes(600, lambda: now[0])
    times.sent(None)
    now[0] += 86_400
    assert times.due
    times.insist()
    times.sent(10)
    assert not times.due
    now[0] -= 86_400
    assert times.due
    times.sent(None)
    now[0] -= 30
    assert not times.due
    now[0] += 629
    assert not times.due
    now[0] += 1
    assert times.due
