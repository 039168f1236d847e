"""When a search of the plan is due, and how long it may take: one rule for the daemon and for a replay."""

from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from schedd.engine.facts.records import Cause
from schedd.engine.facts.state import EngineState
from schedd.engine.plan_improvements import movable_slots
from schedd.plan.columns import Ints
from schedd.plan.trials import startable
from schedd.policy.engine_settings import EngineSettings

SearchReason = Literal["periodic", "cpus freed", "new jobs", "cpus freed early", "continued", "asked for"]

MOST_MOVED: Final = 500
"""Maximum number of moved jobs per search: applying more would delay events for too long."""
_SHARE: Final = 0.1
"""Of ``search_seconds``, for trying newcomers: a storm of arrivals is to leave processors free."""


@dataclass(frozen=True, slots=True)
class SearchHistory:
    """What searches have tried. Times are seconds of the caller's clock, which never goes back."""

    whole: float  # when the last search of the whole plan ended
    tried: float  # when the last search of any kind ended
    change: int = 0  # the whole plan was searched up to the change of this number
    frees: int = 0  # ``state.frees`` at that search
    newest: int = 0  # newcomers were tried up to the change of this number
    tried_frees: int = 0  # ``state.frees`` at that trial
    unfinished: bool = False  # the last search of the whole plan ended because it had moved enough jobs

    def earliest(self, settings: EngineSettings) -> float | None:
        """Return the time before which no search is due, whatever happens; None: no search is ever due."""
        every, newcomers = settings.search_every, settings.search_newcomers
        if every == 0:
            return None
        whole = self.whole + min(settings.search_pause, every)
        return min(whole, self.tried + newcomers) if newcomers else whole

    def after_begin(self, search: "DueSearch") -> "SearchHistory":
        """As ``search`` begins."""
        seen = replace(self, newest=search.change, tried_frees=search.frees)
        if search.newcomers is not None:
            return seen
        return replace(seen, change=search.change, frees=search.frees, unfinished=False)

    def after_end(self, search: "DueSearch", now: float, *, unfinished: bool = False) -> "SearchHistory":
        """As ``search`` ended at ``now``; ``unfinished``: it moved as many jobs as one search may."""
        if search.newcomers is not None:
            return replace(self, tried=now)
        return replace(self, tried=now, whole=now, unfinished=unfinished)


@dataclass(frozen=True, slots=True)
class DueSearch:
    """Search that is due.

    ``why``: ``periodic``; ``cpus freed``; ``new jobs`` or ``cpus freed early`` (``newcomers`` are slots of
    new jobs, or of jobs that may fit into capacity freed early; only these are tried, each before others);
    ``continued`` (the last search reached ``MOST_MOVED``) or ``asked for``. It is limited to ``seconds`` and
    about ``MOST_MOVED`` moves. ``change`` and ``frees`` are the state's counters at its start.
    """

    why: SearchReason
    seconds: float
    change: int
    frees: int
    newcomers: Ints | None = None


def requested_search(state: EngineState) -> DueSearch | None:
    """A search of the whole plan at once; None where fewer than two jobs could be moved."""
    return _full_search(state, "asked for") if _movable(state).shape[0] >= 2 else None


def due_search(state: EngineState, seen: SearchHistory, now: float) -> DueSearch | None:
    """Return the search that is due at ``now``, or None. Full searches precede searches for newcomers."""
    return next((search for moment, search in _coming(state, seen) if moment <= now), None)


def next_search(state: EngineState, seen: SearchHistory) -> float | None:
    """When a search is due, though nothing else happens until then; None: not before something does."""
    return min((moment for moment, _ in _coming(state, seen)), default=None)


def _coming(state: EngineState, seen: SearchHistory) -> list[tuple[float, DueSearch]]:
    """Return the future searches if nothing changes, with their times, in order of precedence.

    None while jobs of a large snapshot arrive: each would copy a plan that is soon out of date.
    """
    settings = state.settings
    if settings.search_every == 0 or state.arriving:
        return []
    slots = _movable(state)
    if slots.shape[0] < 2:
        return []
    coming: list[tuple[float, DueSearch]] = []
    every = settings.search_every
    pause = min(settings.search_pause, every)
    if seen.unfinished:
        coming.append((seen.whole + pause, _full_search(state, "continued")))
    if state.change_number != seen.change:
        coming.append((seen.whole + every, _full_search(state, "periodic")))
        if state.frees != seen.frees:
            coming.append((seen.whole + pause, _full_search(state, "cpus freed")))
    if settings.search_newcomers:
        came, fit = _newcomers(state, seen, slots)
        why: SearchReason = "new jobs" if came.shape[0] else "cpus freed early"
        newcomers = np.union1d(came, fit)
        if newcomers.shape[0]:
            coming.append(
                (seen.tried + settings.search_newcomers, _make_search(state, why, _SHARE, newcomers))
            )
    return coming


def _full_search(state: EngineState, why: SearchReason) -> DueSearch:
    return _make_search(state, why, 1.0, None)


def _make_search(state: EngineState, why: SearchReason, share: float, newcomers: Ints | None) -> DueSearch:
    return DueSearch(why, state.settings.search_seconds * share, state.change_number, state.frees, newcomers)


def _movable(state: EngineState) -> Ints:
    """Under a queue policy there is no plan to improve."""
    return movable_slots(state) if state.policy is None else np.empty(0, np.int64)


def _newcomers(state: EngineState, seen: SearchHistory, slots: Ints) -> tuple[Ints, Ints]:
    """Return the slots of jobs planned for the first time or again since newcomers were tried, and, if
    capacity came back since, those of ``slots`` that may start in free capacity.
    """
    came = []
    for change in reversed(state.changes):
        if change.number < seen.newest:
            break
        if change.cause in (Cause.ARRIVED, Cause.RELEASED):
            came.append(change.slots[(change.old < 0) & (change.new > state.now)])
    none = np.empty(0, np.int64)
    fit = startable(state.plan, slots, state.now) if state.frees != seen.tried_frees else none
    return np.intersect1d(np.concatenate(came), slots) if came else none, fit
