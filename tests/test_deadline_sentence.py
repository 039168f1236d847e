"""The forecast of a deadline in one clause."""

import pytest

from schedd.deadline_sentence import DeadlineFacts, describe_deadline_forecast, format_percent


@pytest.mark.parametrize(
    ("facts", "clause"),
    [
        (("accepted", 0.95, 0.979, None), "accepted at 95 % (97 % now): a forecast, no guarantee"),
        (("at_risk", 0.95, 0.9499, None), "at risk: accepted at 95 %, 94 % now"),
        (("wished", 0.95, 0.71, 1030), "refused: 71 %; with 95 % by t1030"),
        (("wished", 0.995, 0.29, None), "refused: 29 %; none has 99.5 %, since nodes may fail"),
        (("wished", 0.95, None, None), "not judged yet: there is no forecast (95 % is requested)"),
        (("missed", 0.95, None, None), "missed"),
    ],
)
def test_each_state_has_its_words(facts: tuple[str, float, float | None, int | None], clause: str) -> None:
    assert describe_deadline_forecast(DeadlineFacts(*facts), lambda time: f"t{time}") == clause


def test_requested_percentages_are_shown_as_requested() -> None:
    assert [format_percent(share) for share in (0.95, 0.995, 0.29, 0.05)] == ["95 %", "99.5 %", "29 %", "5 %"]
