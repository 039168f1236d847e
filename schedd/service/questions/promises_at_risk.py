"""Promises that a reload of settings would put at risk, found before the settings take effect."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from schedd.engine import Engine, EngineSettings, OwnerAtRisk, preview_settings

_MAX_OWNERS_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class PromisesAtRisk:
    """Jobs whose promises changed settings put at risk, and their owners in words."""

    jobs: frozenset[str]
    text: str


def describe_owners(owners: Sequence[OwnerAtRisk]) -> tuple[str, str]:
    """Return the number of promises and their owners, such as `3 promises` and `ann (2), bob (1)`."""
    broken = sum(one.promises for one in owners)
    shown = owners[:_MAX_OWNERS_NAMED]
    named = ", ".join(f"{one.owner.partition('@')[0]} ({one.promises})" for one in shown)
    more = f" and {len(owners) - _MAX_OWNERS_NAMED} more" if len(owners) > _MAX_OWNERS_NAMED else ""
    return "1 promise" if broken == 1 else f"{broken} promises", named + more


def promises_at_risk_by(
    engine: Engine, settings: EngineSettings, now: int, seconds: float
) -> PromisesAtRisk | None:
    """Return the promises that these settings would put at risk, or None.

    ``engine`` is a copy, of no use afterwards. Raises TimeoutError after ``seconds``.
    """
    until = time.monotonic() + seconds

    def go_on() -> None:
        if time.monotonic() > until:
            raise TimeoutError(f"the preview of the settings took longer than {seconds:g} s")

    found = preview_settings(engine, settings, now, go_on)
    if not (owners := found.owners_at_risk):
        return None
    promises, named = describe_owners(owners)
    jobs = frozenset(one.job for one in found.moved if one.broken)
    return PromisesAtRisk(jobs, f"{promises} of {named} are at risk")
