"""When the whole state is sent again."""

from server_adapter.bridge.snapshot_schedule import SnapshotSchedule


def test_a_clock_set_back_does_not_delay_the_next_snapshot() -> None:
    now = [1_000_000.0]
    times = SnapshotSchedule(600, lambda: now[0])

    def is_due(later: float) -> bool:
        now[0] += later
        return times.should_send

    times.sent()
    assert is_due(86_400)
    times.repeat_often()
    times.sent()
    found = [is_due(0), is_due(-86_400)]
    times.sent()
    found += [is_due(-30), is_due(629), is_due(1)]
    assert found == [False, True, False, False, True]


def moments(times: SnapshotSchedule, now: list[float], until: int) -> list[int]:
    """Return the times of snapshots in seconds from now."""
    begin, found = now[0], []
    for second in range(until + 1):
        now[0] = begin + second
        if times.should_send:
            found.append(second)
            times.sent()
    return found


def test_while_the_daemon_doubts_they_go_every_fifteen_seconds() -> None:
    now = [1_000_000.0]
    times = SnapshotSchedule(600, lambda: now[0])
    assert moments(times, now, 700) == [0, 600]
    times.repeat_often()
    found = moments(times, now, 900)
    assert found == [*range(15, 211, 15), 810]  # for the grace and two more, then as usual


def test_a_clock_correction_of_a_minute_is_not_treated_as_a_set_back_clock() -> None:
    for back, due in ((60.0, False), (60.1, True)):
        now = [1_000_000.0]
        times = SnapshotSchedule(600, lambda now=now: now[0])  # type: ignore[misc]
        assert times.should_send
        times.sent()
        now[0] -= back
        assert times.should_send is due
