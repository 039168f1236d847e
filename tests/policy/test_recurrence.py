"""Standing windows: rules of RFC 5545 on a wall clock, in seconds UTC."""
# ruff: noqa: DTZ001  (rules speak of the clock on the wall)

from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrulestr
from hypothesis import given
from hypothesis import strategies as st

from schedd.policy.recurrence import Recurrence, RecurrenceError, occurrences

DAY = 86_400
MONDAY = datetime(2026, 1, 5, 20)


def epoch(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def night(rule: str = "FREQ=DAILY", zone: str = "Europe/Prague") -> Recurrence:
    return Recurrence(MONDAY, MONDAY + timedelta(hours=12), rule, zone)


def spoken(windows: tuple[tuple[int, int], ...]) -> list[str]:
    """Begin and end in UTC, to be read by people."""
    return [" ".join(f"{datetime.fromtimestamp(t, UTC):%m-%dT%H:%M}" for t in window) for window in windows]


def test_overlapping_windows_are_complete() -> None:
    found = occurrences(night(), epoch("2026-01-10T00:00Z"), epoch("2026-01-11T19:00Z"))
    assert spoken(found) == ["01-09T19:00 01-10T07:00", "01-10T19:00 01-11T07:00"]


def test_window_touching_the_horizon_is_excluded() -> None:
    found = occurrences(night(), epoch("2026-01-10T07:00Z"), epoch("2026-01-10T19:00Z"))
    assert found == ()
    assert occurrences(night(), epoch("2026-01-10T07:00Z"), epoch("2026-01-10T07:00Z")) == ()


def test_nothing_happens_before_the_first_window() -> None:
    assert spoken(occurrences(night(), 0, epoch("2026-01-06T12:00Z"))) == ["01-05T19:00 01-06T07:00"]


def test_clocks_that_are_changed_make_a_night_shorter_or_longer() -> None:
    spring = occurrences(night(), epoch("2026-03-28T12:00Z"), epoch("2026-03-29T12:00Z"))
    autumn = occurrences(night(), epoch("2026-10-24T12:00Z"), epoch("2026-10-25T12:00Z"))
    assert spoken(spring) == ["03-28T19:00 03-29T06:00"]
    assert spoken(autumn) == ["10-24T18:00 10-25T07:00"]


def test_skipped_clock_time_maps_to_the_skip() -> None:
    first = datetime(2026, 3, 28, 2, 30)
    found = occurrences(
        Recurrence(first, first + timedelta(hours=3), "FREQ=DAILY", "Europe/Prague"),
        epoch("2026-03-29T00:00Z"),
        epoch("2026-03-29T12:00Z"),
    )
    assert spoken(found) == ["03-29T01:00 03-29T03:30"]


def test_window_within_a_skipped_hour_does_not_occur() -> None:
    first = datetime(2026, 3, 28, 2)
    hour = Recurrence(first, first + timedelta(hours=1), "FREQ=DAILY", "Europe/Prague")
    assert spoken(occurrences(hour, epoch("2026-03-28T00:00Z"), epoch("2026-03-31T00:00Z"))) == [
        "03-28T01:00 03-28T02:00",
        "03-30T00:00 03-30T01:00",
    ]


def test_repeated_clock_time_uses_the_first() -> None:
    first = datetime(2026, 10, 24, 2, 30)
    twice = Recurrence(first, first + timedelta(hours=2), "FREQ=DAILY", "Europe/Prague")
    found = occurrences(twice, epoch("2026-10-25T00:00Z"), epoch("2026-10-25T12:00Z"))
    assert spoken(found) == ["10-25T00:30 10-25T03:30"]


@given(
    st.sampled_from(["Europe/Prague", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"]),
    st.integers(0, 24 * 60 - 1),
    st.integers(1, 24 * 60 - 1),
    st.integers(0, 700),
)
def test_day_and_night_tile_time_without_gap_or_overlap(zone: str, at: int, length: int, day: int) -> None:
    """Whatever clocks do: of two windows that follow one another on the wall, so do the seconds."""
    first = datetime(2026, 1, 1) + timedelta(minutes=at)
    middle = first + timedelta(minutes=length)
    end = first + timedelta(days=1)
    begin = epoch("2026-01-03T00:00Z") + day * DAY
    parts = [Recurrence(first, middle, "FREQ=DAILY", zone), Recurrence(middle, end, "FREQ=DAILY", zone)]
    windows = sorted(window for part in parts for window in occurrences(part, begin, begin + 3 * DAY))
    assert windows[0][0] <= begin
    assert windows[-1][1] >= begin + 3 * DAY
    for one, other in pairwise(windows):
        assert one[1] == other[0]


@given(st.integers(0, 800 * DAY // 600))
def test_clock_shows_the_window_time_throughout(step: int) -> None:
    """Against the definition: a moment is in the window when the clock on the wall shows a time of it."""
    moment = epoch("2026-01-08T00:00Z") + 600 * step
    wall = datetime.fromtimestamp(moment, ZoneInfo("America/New_York"))
    window = Recurrence(
        datetime(2026, 1, 5, 8), datetime(2026, 1, 5, 18), "FREQ=WEEKLY;BYDAY=MO,WE,FR", "America/New_York"
    )
    inside = any(a <= moment < b for a, b in occurrences(window, moment, moment + 1))
    assert inside == (wall.weekday() in (0, 2, 4) and 8 <= wall.hour < 18)


@pytest.mark.parametrize(
    ("rule", "days"),
    [
        ("FREQ=WEEKLY;BYDAY=MO,TH", ["01-05", "01-08", "01-12", "01-15"]),
        ("FREQ=MONTHLY;BYDAY=2TU", ["01-13"]),
        ("FREQ=DAILY;INTERVAL=3", ["01-05", "01-08", "01-11", "01-14"]),
        ("FREQ=DAILY;COUNT=2", ["01-05", "01-06"]),
        ("FREQ=DAILY;INTERVAL=5;COUNT=10000", ["01-05", "01-10", "01-15"]),
        ("FREQ=DAILY;INTERVAL=9;COUNT=1", ["01-05"]),
        ("FREQ=DAILY;UNTIL=20260107", ["01-05", "01-06", "01-07"]),
        ("FREQ=DAILY;UNTIL=20260107T190000Z", ["01-05", "01-06", "01-07"]),
        ("FREQ=DAILY;UNTIL=20260107T185959Z", ["01-05", "01-06"]),
        ("", ["01-05"]),
    ],
)
def test_rules_name_the_days(rule: str, days: list[str]) -> None:
    found = occurrences(night(rule), epoch("2026-01-01T00:00Z"), epoch("2026-01-17T00:00Z"))
    assert [f"{datetime.fromtimestamp(start, UTC):%m-%d}" for start, _ in found] == days


def test_a_day_can_be_left_out() -> None:
    some = Recurrence(MONDAY, MONDAY + timedelta(hours=1), "FREQ=DAILY", "UTC", (date(2026, 1, 6),))
    found = occurrences(some, epoch("2026-01-05T00:00Z"), epoch("2026-01-08T00:00Z"))
    assert spoken(found) == ["01-05T20:00 01-05T21:00", "01-07T20:00 01-07T21:00"]


@pytest.mark.parametrize(
    ("rule", "zone", "hours", "said"),
    [
        ("FREQ=HOURLY", "UTC", 1, "FREQ must be one of DAILY"),
        ("BYDAY=MO", "UTC", 1, "FREQ must be one of"),
        ("FREQ=DAILY;BYDAYS=MO", "UTC", 1, "no part 'BYDAYS'"),
        ("FREQ=DAILY;FREQ=WEEKLY", "UTC", 1, "given twice"),
        ("FREQ=WEEKLY;BYDAY=XX", "UTC", 1, "BYDAY lists days such as MO"),
        ("FREQ=DAILY;UNTIL=soon", "UTC", 1, "UNTIL=SOON: a moment such as"),
        ("FREQ=DAILY;COUNT=0", "UTC", 1, "COUNT=0: from 1 to 10000"),
        ("FREQ=DAILY;COUNT=10001", "UTC", 1, "COUNT=10001: from 1 to 10000"),
        ("FREQ=DAILY;COUNT=" + "9" * 5_000, "UTC", 1, "COUNT=99999999999999999999: from 1 to 10000"),
        ("FREQ=DAILY;INTERVAL=0", "UTC", 1, "INTERVAL=0: from 1 to 1000"),
        ("FREQ=DAILY;INTERVAL=" + "9" * 30, "UTC", 1, "INTERVAL=99999999999999999999: from 1 to 1000"),
        ("FREQ=DAILY;INTERVAL=1,2", "UTC", 1, "INTERVAL has too many numbers"),
        ("FREQ=DAILY;BYSETPOS=366", "UTC", 1, "BYSETPOS=366: there are at most 1 begins to choose from"),
        ("FREQ=WEEKLY;BYSETPOS=-8", "UTC", 1, "BYSETPOS=-8: there are at most 7 begins to choose from"),
        ("FREQ=DAILY;BYSETPOS=0", "UTC", 1, "BYSETPOS=0: from 1 to 366, or from -366 to -1"),
        ("FREQ=DAILY;BYMONTH=13", "UTC", 1, "BYMONTH=13: from 1 to 12"),
        ("FREQ=DAILY;BYHOUR=x", "UTC", 1, "BYHOUR=X: from 0 to 23"),
        ("FREQ=YEARLY;BYDAY=99MO", "UTC", 1, "BYDAY lists days such as MO"),
        ("FREQ=DAILY;BYDAY=2MO", "UTC", 1, "BYDAY lists days such as MO"),
        (
            "FREQ=DAILY;BYHOUR=0,1,2,3;BYMINUTE=" + ",".join(map(str, range(25))),
            "UTC",
            1,
            "at most 96 begins a day",
        ),
        ("FREQ=DAILY;COUNT=2;UNTIL=20270101", "UTC", 1, "cannot both"),
        ("FREQ=DAILY", "Europe/Atlantis", 1, "no time zone 'Europe/Atlantis'"),
        ("FREQ=DAILY", "../etc/passwd", 1, "no time zone"),
        ("FREQ=DAILY", "UTC", 25, "has not ended when the next begins"),
        ("FREQ=DAILY", "UTC", 0, "it must end later"),
        ("FREQ=YEARLY", "UTC", 9_000, "at most 366 days"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "UTC", 1, "no window from"),
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;COUNT=3", "UTC", 1, "no window from"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused(rule: str, zone: str, hours: int, said: str) -> None:
    with pytest.raises(RecurrenceError) as refused:
        Recurrence(MONDAY, MONDAY + timedelta(hours=hours), rule, zone)
    assert said in str(refused.value)


@pytest.mark.parametrize("year", [1, 1969, 2400, 9999])
def test_window_from_another_age_is_rejected(year: int) -> None:
    with pytest.raises(RecurrenceError, match="from 1970 to 2399"):
        Recurrence(datetime(year, 12, 31, 20), datetime(year, 12, 31, 22), "FREQ=DAILY")


_RULES = st.builds(
    lambda frequency, interval, days, months, dates, more: ";".join(
        [
            f"FREQ={frequency};INTERVAL={interval}",
            *([f"BYDAY={','.join(sorted(days))}"] if days else []),
            *([f"BYMONTH={','.join(map(str, sorted(months)))}"] if months else []),
            *([f"BYMONTHDAY={','.join(map(str, sorted(dates)))}"] if dates and frequency != "WEEKLY" else []),
            *more,
        ]
    ),
    st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]),
    st.integers(1, 7),
    st.sets(st.sampled_from(["MO", "WE", "SA"])),
    st.sets(st.integers(1, 12), max_size=2),
    st.sets(st.sampled_from([1, 15, 29, 31, -1]), max_size=2),
    st.sampled_from(
        [
            *((), ("BYHOUR=3,21",), ("BYSETPOS=1",), ("BYSETPOS=-1",), ("WKST=SU",), ("COUNT=9",)),
            *(("UNTIL=20301231",), ("BYHOUR=1,2", "BYMINUTE=0,30", "BYSETPOS=2")),
        ]
    ),
)


@given(
    _RULES,
    st.datetimes(datetime(1970, 1, 1), datetime(2060, 1, 1)).map(lambda one: one.replace(microsecond=0)),
    st.integers(-300, 40_000),
    st.integers(1, 800),
)
def test_begins_follow_the_rule_at_any_distance(rule: str, first: datetime, after: int, days: int) -> None:
    """Against dateutil on the plain calendar."""
    try:
        window = Recurrence(first, first + timedelta(minutes=10), rule)
    except RecurrenceError:
        return
    begin = first + timedelta(days=after)
    end = begin + timedelta(days=days)
    parts = dict(part.split("=") for part in rule.split(";"))
    until, count = parts.pop("UNTIL", None), int(parts.pop("COUNT", 10**6))
    plain = rrulestr(";".join(f"{name}={value}" for name, value in parts.items()), dtstart=first)
    last = min(end, datetime(2030, 12, 31, 23, 59, 59)) if until else end
    expected = [one for one in islice(takewhile(lambda one: one <= last, plain), count) if begin <= one < end]
    bounds = [int(one.replace(tzinfo=UTC).timestamp()) for one in (begin, end)]
    found = [start for start, _ in occurrences(window, *bounds) if start >= bounds[0]]
    assert found == [int(one.replace(tzinfo=UTC).timestamp()) for one in expected]


def test_a_rule_that_fits_no_day_for_years_is_refused() -> None:
    rule = "FREQ=YEARLY;INTERVAL=3;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO"
    with pytest.raises(RecurrenceError, match="in 8 years"):
        Recurrence(MONDAY, MONDAY + timedelta(hours=1), rule)


def test_times_with_an_offset_are_refused() -> None:
    with pytest.raises(RecurrenceError, match="without an offset"):
        Recurrence(MONDAY.replace(tzinfo=UTC), MONDAY.replace(tzinfo=UTC) + timedelta(hours=1))


@pytest.mark.parametrize("rule", ["", "FREQ=DAILY", "FREQ=WEEKLY;BYDAY=MO,TH"])
@pytest.mark.parametrize("without", [(), (date(2026, 1, 6),), (date(2026, 1, 6), date(2026, 1, 8))])
def test_a_window_is_read_again_from_its_line(rule: str, without: tuple[date, ...]) -> None:
    window = Recurrence(MONDAY, MONDAY + timedelta(hours=2), rule, "Europe/Prague", without)
    assert Recurrence.parse(window.text) == window


def test_a_date_as_bound_counts_to_its_last_second() -> None:
    last = datetime.fromisoformat("2026-01-05T23:59:59")
    window = Recurrence(last, last + timedelta(hours=1), "FREQ=DAILY;UNTIL=20260106", "UTC")
    found = occurrences(window, epoch("2026-01-01T00:00Z"), epoch("2026-01-17T00:00Z"))
    assert [f"{datetime.fromtimestamp(start, UTC):%m-%d}" for start, _ in found] == ["01-05", "01-06"]
