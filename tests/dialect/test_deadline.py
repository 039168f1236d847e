"""Parsing of deadlines: absolute times, and times relative to the submission."""

import pytest

from schedd.dialect import parse_openpbs, parse_torque
from schedd.dialect.deadline import (
    deadline_fault,
    parse_deadline,
    parse_required_probability,
    read_deadline,
    read_required_probability,
)

T = 1_700_000_000


@pytest.mark.parametrize(
    ("text", "deadline"),
    [
        ("1800000000", 1_800_000_000),
        (" 1800000000 ", 1_800_000_000),
        ("+1:00:00", T + 3600),
        ("+90", T + 90),
        ("2023-11-14T22:13:20Z", T),
        ("2023-11-14T23:13:20+01:00", T),
        ("2023-11-14 22:13:20+00:00", T),
    ],
)
def test_deadline_is_an_absolute_time_or_an_offset_from_the_submission(text: str, deadline: int) -> None:
    assert parse_deadline(text, T) == deadline


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "2026-12-24", "2026-12-24T18:00", "+soon", "12", "9" * 11, "0001-01-01T00:00Z"]
)
def test_invalid_deadline_is_refused_with_the_allowed_forms(text: str) -> None:
    with pytest.raises(ValueError, match="is not understood: seconds since the epoch, a date with an offset"):
        parse_deadline(text, T)


def test_deadline_is_read_from_resources_and_extensions() -> None:
    assert read_deadline({"deadline": "+60"}, T) == T + 60
    assert read_deadline({"x.deadline": "1800000000"}, T) == 1_800_000_000
    assert read_deadline({"deadline": "soon"}, T) is None
    assert read_deadline({}, T) is None


@pytest.mark.parametrize(
    ("text", "probability"),
    [("+60", None), ("+60@95%", 0.95), ("2023-11-14T22:13:20Z@99.5%", 0.995), ("1:00:00 @ 5% ", 0.05)],
)
def test_deadline_may_carry_a_probability(text: str, probability: float | None) -> None:
    assert parse_required_probability(text) == probability
    assert parse_deadline(text, T) == parse_deadline(text.partition("@")[0], T)
    assert read_required_probability({"x.deadline": text}) == probability
    assert deadline_fault({"x.deadline": text}, T) == ""


@pytest.mark.parametrize("text", ["+60@", "+60@95", "+60@0%", "+60@100%", "+60@95%@95%", "+60@0.95"])
def test_invalid_probability_is_refused_with_place_and_allowed_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"a percentage above 0 and below 100, such as @95%"):
        parse_deadline(text, T)
    assert read_required_probability({"deadline": text}) is None
    assert deadline_fault({"deadline": text}, T).startswith("in -l deadline: deadline '+60@")


def test_only_an_invalid_deadline_is_noted() -> None:
    for resources in ({"nodes": "1", "x.deadline": "+60"}, {"nodes": "1", "deadline": "1800000000"}):
        assert parse_torque(resources).notes == ()
        assert parse_openpbs(resources).notes == ()
    assert parse_torque({"nodes": "1", "deadline": "soon"}).notes == ("not planned: deadline=soon",)
    assert parse_openpbs({"nodes": "1", "deadline": "soon"}).notes == ("not planned: deadline=soon",)
