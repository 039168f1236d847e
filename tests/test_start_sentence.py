"""The sentence about a job's start: its cases, its times, and words that it never has."""

import random
import re
from datetime import UTC
from typing import Any, get_args

import pytest

from schedd.start_sentence import (
    NEVER,
    NOT_BEFORE_STARTS_RESUME,
    WHEN_STARTS_RESUME,
    Certainty,
    StartFacts,
    describe_requested_start,
    describe_start,
    format_day_time,
    format_near_time,
    format_utc,
    history_entry_parts,
    is_forecast_fresh,
)

NOW = 1_795_770_000
"""Fri 27 Nov 2026 09:00 UTC."""
HOUR = 3600
HALT = NOT_BEFORE_STARTS_RESUME
FACTS = StartFacts(
    planned=NOW + 40 * HOUR,
    expected=NOW + 12 * HOUR,
    expected_by=NOW + 26 * HOUR,
    expected_as_of=NOW,
    promised=NOW + 61 * HOUR,
)


def sentence(**changes: Any) -> str:
    facts = FACTS._replace(**changes)
    return describe_start(facts, NOW).text(lambda time: format_near_time(time, NOW, UTC))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "Likely today 21:00 (90 % by Sat 11:00), at the latest Sun 22:00"),
        ({"promised": None}, "Likely today 21:00 (90 % by Sat 11:00)"),
        ({"at_risk": True}, "Likely today 21:00 (90 % by Sat 11:00), at the latest Sun 22:00 (at risk)"),
        ({"expected_by": None}, "Likely today 21:00, at the latest Sun 22:00"),
        ({"expected_by": NOW + 12 * HOUR + 59}, "Likely today 21:00, at the latest Sun 22:00"),
        # A P90 that was limited by the promise says nothing.
        ({"expected_by": NOW + 61 * HOUR}, "Likely today 21:00, at the latest Sun 22:00"),
        ({"expected": NOW + 61 * HOUR, "expected_by": NOW + 61 * HOUR}, "At the latest Sun 22:00"),
        # After its P50 a job may start at any time, after its P90 the forecast is void.
        ({"expected": NOW}, "Any time now (90 % by Sat 11:00), at the latest Sun 22:00"),
        (
            {"expected": NOW - 60, "expected_by": NOW},
            "No current forecast; planned Sun 01:00, at the latest Sun 22:00",
        ),
        (
            {"expected_as_of": NOW - 5 * HOUR},
            "No current forecast; planned Sun 01:00, at the latest Sun 22:00",
        ),
        (
            {"expected": None, "expected_by": None, "expected_as_of": None},
            "No forecast yet; planned Sun 01:00, at the latest Sun 22:00",
        ),
        (
            {"expected": None, "expected_by": None, "predicted": False},
            "Planned Sun 01:00, at the latest Sun 22:00",
        ),
        ({"expected": None, "promised": None, "predicted": False}, "Planned Sun 01:00"),
        # A broken promise is not repeated.
        ({"promised": NOW - 60}, "Likely today 21:00 (90 % by Sat 11:00)"),
        ({"planned": NOW - 59}, "Starts now"),
        ({"planned": NOW - 60}, "Due since today 08:59, at the latest Sun 22:00"),
        # While no jobs are started, none starts now.
        (
            {"planned": NOW - 59, "stopped": True},
            f"{WHEN_STARTS_RESUME}, at the latest Sun 22:00",
        ),
        ({"expected": NOW, "stopped": True}, f"{WHEN_STARTS_RESUME}, at the latest Sun 22:00"),
        (
            {"stopped": True},
            f"{HALT}; if that is in time, likely today 21:00, at the latest Sun 22:00",
        ),
        (
            {"expected": None, "stopped": True},
            f"{HALT}; if that is in time, planned Sun 01:00, at the latest Sun 22:00",
        ),
        (
            {"expected": NOW + 61 * HOUR, "stopped": True},
            f"{HALT}, at the latest Sun 22:00",
        ),
        (
            {"planned": NOW - 60, "stopped": True},
            "Due since today 08:59; no jobs are started at present, at the latest Sun 22:00",
        ),
        ({"state": "starting"}, "Starts now"),
        ({"state": "running", "started": NOW - HOUR}, "Running since today 08:00"),
        (
            {"state": "running", "started": NOW - HOUR, "suspended": True},
            "Suspended, started today 08:00",
        ),
        ({"state": "waiting", "planned": None, "expected": None}, "Start not known, at the latest Sun 22:00"),
        (
            {"state": "waiting", "planned": None, "expected": None, "waits_for": "waiting for a user hold"},
            "Start not known: waiting for a user hold, at the latest Sun 22:00",
        ),
        (
            {"state": "never", "planned": None, "waits_for": f"{NEVER}: no node has bigmem"},
            "Never on this cluster: no node has bigmem",
        ),
        # Under a queue policy a job may have a forecast without a planned start.
        (
            {"state": "waiting", "planned": None, "promised": None},
            "Likely today 21:00 (90 % by Sat 11:00)",
        ),
    ],
)
def test_the_sentence_has_what_is_known(changes: dict[str, Any], text: str) -> None:
    assert sentence(**changes) == text


def test_no_sentence_has_a_time_in_the_past_or_a_90_percent_time_at_the_promise() -> None:
    dice = random.Random(1)
    some = [None, NOW - 30, *(NOW + dice.randrange(-40 * HOUR, 80 * HOUR) for _ in range(30))]
    seen = set()
    for _ in range(20_000):
        expected, by = dice.choice(some), dice.choice(some)
        promised = dice.choice([*some, by])
        facts = StartFacts(
            planned=dice.choice(some),
            expected=expected,
            expected_by=by if expected is None or by is None else max(expected, by),
            expected_as_of=NOW - dice.choice([0, 60, 1_000, 90_000]),
            promised=promised,
            predicted=dice.random() < 0.8,
            stopped=dice.random() < 0.3,
        )
        found = describe_start(facts, NOW)
        seen.add(found.certainty)
        assert not (facts.stopped and (found.certainty in ("now", "any time") or found.by))
        assert not facts.stopped or found.certainty == "unknown" or "started" in found.text(format_utc)
        ahead = (found.by, found.latest, found.likely if found.certainty != "due" else None)
        assert all(time is None or time > NOW for time in ahead)
        assert found.by is None or found.latest is None or found.by < found.latest
        assert (
            found.likely is None
            or found.latest is None
            or found.certainty != "likely"
            or (found.likely < found.latest)
        )
        text = found.text(format_utc)
        assert text[:1].isupper()
        assert ("forecast" in text) is bool(found.no_forecast)
        assert re.fullmatch(r"[^.]*", text)
    assert seen == {"likely", "any time", "planned", "latest", "now", "due", "stopped", "unknown"}


def test_a_forecast_stays_fresh_for_15_minutes_or_a_quarter_of_its_wait() -> None:
    day = NOW + 24 * HOUR
    assert is_forecast_fresh(day, None, NOW, NOW + 6 * HOUR)
    assert not is_forecast_fresh(day, None, NOW, NOW + 6 * HOUR + 1)
    assert is_forecast_fresh(NOW + 1_000, None, NOW, NOW + 900)
    assert not is_forecast_fresh(NOW + 1_000, None, NOW, NOW + 901)
    assert not is_forecast_fresh(NOW + 100, None, NOW, NOW + 100)
    assert is_forecast_fresh(NOW + 100, NOW + 900, NOW, NOW + 100)


@pytest.mark.parametrize(
    ("moment", "near", "day"),
    [
        (NOW + 60, "today 09:01", "Fri 27 Nov 09:01"),
        (NOW + 15 * HOUR, "Sat 00:00", "Sat 28 Nov 00:00"),
        (NOW + 6 * 24 * HOUR, "Thu 09:00", "Thu 3 Dec 09:00"),
        (NOW + 7 * 24 * HOUR, "Fri 4 Dec 09:00", "Fri 4 Dec 09:00"),
        (NOW - 24 * HOUR, "Thu 26 Nov 09:00", "Thu 26 Nov 09:00"),
        (NOW + 40 * 24 * HOUR, "6 Jan 2027 09:00", "6 Jan 2027 09:00"),
        (538_000_000_000, "beyond the calendar", "beyond the calendar"),
    ],
)
def test_times_name_the_day_only_as_far_as_needed(moment: int, near: str, day: str) -> None:
    assert format_near_time(moment, NOW, UTC) == near
    assert format_day_time(moment, NOW, UTC) == day


@pytest.mark.parametrize(
    ("late", "likely", "sure", "words"),
    [
        (None, None, None, "not met, no start is known"),
        (0, None, None, "met as planned"),
        (60, 80, 100, "met with a probability of 90 % or more, though planned 60 s after it"),
        (60, 80, 101, "met with a probability of 50 % or more, though planned 60 s after it"),
        (60, 101, 200, "not met: planned 60 s after it"),
        (60, None, None, "not met: planned 60 s after it"),
    ],
)
def test_a_wished_start_is_met_by_plan_or_by_forecast(
    late: int | None, likely: int | None, sure: int | None, words: str
) -> None:
    assert describe_requested_start(100, late, likely, sure, lambda seconds: f"{seconds} s") == words


def test_a_cell_of_a_table_has_words_of_the_sentence() -> None:
    """`showq` and `showstart` say the same of a job, in every state of the cluster."""
    random_numbers = random.Random(7)
    moments = (None, NOW - 3 * HOUR, NOW - 30, NOW, NOW + 60, NOW + 12 * HOUR, NOW + 90 * HOUR)
    seen = set()
    for _ in range(2_000):
        times = ("planned", "expected", "expected_by", "expected_as_of", "promised")
        chosen: dict[str, Any] = {name: random_numbers.choice(moments) for name in times}
        facts = StartFacts(
            state=random_numbers.choice(("planned", "waiting", "starting", "running", "never")),
            suspended=random_numbers.random() < 0.5,
            started=NOW - HOUR,
            **chosen,
            predicted=random_numbers.random() < 0.5,
            stopped=random_numbers.random() < 0.5,
        )
        found = describe_start(facts, NOW)
        seen.add(found.certainty)

        def write(moment: int) -> str:
            return format_near_time(moment, NOW, UTC)

        words = found.brief(write).lower().replace("plan ", "planned ")
        text = found.text(write).lower().replace("jobs are started again", "started again")
        assert words in text, (words, text)
        assert bool(words) == (found.certainty not in ("latest", "never", "unknown"))
    assert seen == set(get_args(Certainty))


@pytest.mark.parametrize("kind", ["risk", "breach"])
def test_history_describes_the_cause_of_a_promise_at_risk_or_broken_as_other_answers_do(kind: str) -> None:
    words = "server, adapter or daemon outage, by clock:5"
    before, _ = history_entry_parts(kind, words)
    assert before == "the server, the adapter or the daemon was slow or away (event clock:5); planned start "
    assert history_entry_parts(kind, "node lost")[0] == "a node was lost; planned start "


def test_history_of_a_planned_start_has_no_empty_parentheses_and_names_the_event_that_ended_a_promise() -> (
    None
):
    assert history_entry_parts("published", "") == ("planned start ", "")
    assert history_entry_parts("published", "planned") == ("planned start ", "")
    ended = history_entry_parts("promise", "ended: it was held, by 7:3")[0]
    assert ended == "ended: it was held (event 7:3); it was "
