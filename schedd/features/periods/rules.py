"""The policy of the present period, in place of parts of the site's policy."""

from dataclasses import replace
from typing import Final

from schedd.engine.facts.explanations import format_moment
from schedd.engine.facts.state import EngineState
from schedd.engine.handlers import apply_site_policy
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.periods.settings import PeriodSettings, with_period
from schedd.features.periods.state import period_state
from schedd.model import FOREVER
from schedd.policy.recurrence import Recurrence, occurrences
from schedd.policy.site import site_policy

_AHEAD_S: Final = 8 * 86_400
"""Without a change in this time, the windows are examined again then."""


def present_period(settings: PeriodSettings, now: int) -> tuple[str, int]:
    """Return the period that contains ``now`` (empty: none), and when that may change; 0: never."""
    if not settings.sets:
        return "", 0
    found, until = "", now + _AHEAD_S
    for name, period in settings.sets.items():
        for text in period.windows:
            for begin, end in occurrences(Recurrence.parse(text), now, until):
                if begin <= now < end:
                    found = found or name
                # The next begin or end of any window, also of periods that come later.
                until = min(until, *(edge for edge in (begin, end, until) if edge > now))
    return found, until


def enter_period(state: EngineState) -> None:
    """Put the policy of the present period in force."""
    part = period_state(state)
    part.name, part.until = present_period(state.settings.site.part(PeriodSettings), state.now)
    restore_policy(state)


def restore_policy(state: EngineState) -> None:
    """Put the policy of the known period in force, after the state was restored."""
    part, site = period_state(state), state.settings.site
    state.idle_hooks = None
    period = site.part(PeriodSettings).sets.get(part.name)
    if period is None:  # there is none, or the settings are others, which are applied next
        state.site = site
    else:
        state.site = replace(site_policy(with_period(site.plain, period.tables)), plain=site.plain)


def follow_time(state: EngineState, event: str) -> None:
    """Change the policy at the beginning and at the end of a period."""
    part = period_state(state)
    if state.now < part.until:
        return
    before = part.name
    enter_period(state)
    if part.name != before:
        words = f"the rules of period {part.name} apply now" if part.name else f"period {before} is over"
        apply_site_policy(state, event, words)


def describe_period(published: PlanSnapshot) -> str:
    """Say which period is in force, what it replaces, and until when; empty: none is."""
    settings = PeriodSettings.model_validate(published.settings.site.plain.get("periods") or {})
    name, until = present_period(settings, published.as_of)
    if not name:
        return ""
    end = f" until {format_moment(until)}" if until < published.as_of + _AHEAD_S else ""
    tables = settings.sets[name].tables
    verb = "replaces" if len(tables) == 1 else "replace"
    return f"The rules of period {name} apply{end}: its {', '.join(tables)} {verb} the policy's."


def next_change(state: EngineState) -> int:
    """When the period may change; FOREVER: never."""
    return period_state(state).until or FOREVER
