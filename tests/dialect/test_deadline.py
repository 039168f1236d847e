"""Deadlines: the forms in which an owner may give one."""

import pytest

from schedd.dialect import parse_openpbs, parse_torque
from schedd.dialect.deadline import parse_deadline, read_deadline

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
def test_a_deadline_is_a_moment_or_so_long_after_the_submission(text: str, deadline: int) -> None:
    assert parse_deadline(text, T) == deadline


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "2026-12-24", "2026-12-24T18:00", "+soon", "12", "9" * 11, "0001-01-01T00:00Z"]
)
def test_what_is_no_deadline_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="is not understood: seconds since the epoch, a date with an offset"):
        parse_deadline(text, T)


def test_a_deadline_stands_among_the_resources_or_the_extensions() -> None:
    assert read_deadline({"deadline": "+60"}, T) == T + 60
    assert read_deadline({"x.deadline": "1800000000"}, T) == 1_800_000_000
    assert read_deadline({"deadline": "soon"}, T) is None
    assert read_deadline({}, T) is None


def test_a_deadline_that_is_understood_is_not_among_the_notes_and_another_is() -> None:
    for resources in ({"nodes": "1", "x.deadline": "+60"}, {"nodes": "1", "deadline": "1800000000"}):
        assert parse_torque(resources).notes == ()
        assert parse_openpbs(resources).notes == ()
    assert parse_torque({"nodes": "1", "deadline": "soon"}).notes == ("not planned: deadline=soon",)
    assert parse_openpbs({"nodes": "1", "deadline": "soon"}).notes == ("not planned: deadline=soon",)
