"""Warnings about signals before a preemption."""

import pytest

from schedd.features.preemption.settings import SETTINGS
from schedd.service.settings.site import SiteSettings


@pytest.mark.parametrize(
    ("signal", "warned"),
    [
        ("", False),
        ("URG", False),
        ("SIGWINCH", False),
        ("23", False),
        ("USR1", True),
        ("SIGTERM", True),
        ("10", True),
    ],
)
def test_signal_that_ends_jobs_is_warned_of(signal: str, warned: bool) -> None:
    site = SiteSettings.model_validate({"preemption": {"signal": signal}})
    assert SETTINGS.advice is not None
    found = list(SETTINGS.advice(site.plain))
    assert len(found) == warned
    assert all(
        line.startswith("preemption.signal: ") and "even if its script catches it" in line for line in found
    )
