"""Times of wishes on the command line."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from schedd.cli.user.time_arguments import parse_future_argument
from schedd.client import ClientError
from schedd.time_words import parse_future_time


def local(day: int, hour: float = 0, month: int = 11) -> int:
    moment = datetime(2026, month, day, tzinfo=UTC) + timedelta(hours=hour)
    return int(moment.timestamp())  # the commands of these tests run in UTC


FRIDAY = local(27, 20.5)


@pytest.mark.parametrize(
    ("text", "day", "hour"),
    [
        ("tonight", 28, 6),
        ("tonight 2:00", 28, 2),
        ("tonight 6:00", 28, 6),
        ("tonight 23:00", 27, 23),
        ("today", 28, 0),
        ("tomorrow", 28, 0),
        ("Tomorrow 9:00", 28, 9),
        ("sunday", 29, 0),
        ("mon 08:00", 30, 8),
        ("8:00", 28, 8),
        ("21:00", 27, 21),
        ("fri 23:00", 27, 23),
        ("+3h", 27, 23.5),
        ("2026-11-29T08:00", 29, 8),
        ("before Sunday", 29, 0),
        ("by 21:00", 27, 21),
    ],
)
def test_a_wish_is_a_future_time(text: str, day: int, hour: float) -> None:
    assert parse_future_argument(text, FRIDAY) == local(day, hour)


def test_the_present_weekday_is_the_one_of_next_week_once_its_time_has_passed() -> None:
    assert parse_future_argument("friday", FRIDAY) == local(4, month=12)
    assert parse_future_argument("tonight", local(27, 3)) == local(27, 6)
    assert parse_future_argument("tonight 5:00", local(27, 3)) == local(27, 5)


@pytest.mark.parametrize("text", ["", " ", "25:00", "fri 8", "fri8:00", "someday", "8:61", "friday 24:00"])
def test_odd_wishes_are_refused_with_examples(text: str) -> None:
    with pytest.raises(ClientError, match="write tonight, tomorrow"):
        parse_future_argument(text, FRIDAY)


def test_a_wish_is_a_time_in_the_zone_of_the_writer() -> None:
    prague = ZoneInfo("Europe/Prague")  # UTC+1; at 20:30 UTC it is 21:30 there
    assert parse_future_time("21:00", FRIDAY, prague) == local(28, 20)
    assert parse_future_time("tonight", FRIDAY, prague) == local(28, 5)
    assert parse_future_time("2026-11-29T08:00", FRIDAY, prague) == local(29, 7)
    summer = ZoneInfo("America/New_York")  # clocks go back on the first of November 2026
    assert parse_future_time("sunday 12:00", local(1) - 3_600, summer) == local(1, 17)
