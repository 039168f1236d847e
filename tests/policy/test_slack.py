"""The text of a slack reads as the same slack."""

import pytest

from schedd.policy.slack import Slack


@pytest.mark.parametrize(
    "text", ["off", "0", "90", "4h", "0.5w", "1h+0.5w", "12.345678w", "0.000001w", "0.1w+0.2w", "999999w"]
)
def test_text_of_a_slack_reads_as_the_same_slack(text: str) -> None:
    slack = Slack.parse(text)
    assert Slack.parse(str(slack)) == slack


def test_a_share_that_would_have_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 999999w"):
        Slack.parse("999999w+1w")
