"""State of fair share: usage of ended runs, and the shares by which jobs are ranked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from schedd.engine.component.hook_values import Floats
from schedd.engine.facts.state import EngineState
from schedd.features.fair_share.settings import FairShareSettings
from schedd.features.fair_share.tree import Names, RatedTree, ShareTree
from schedd.features.fair_share.usage import Usage
from schedd.plan.schema import MOMENT, FieldRule, declared


@dataclass(frozen=True, slots=True)
class RatedUsage:
    """What the shares of a ranking were computed from: owners, and their decayed usage and waits."""

    at: int
    owners: tuple[Names, ...]
    used: Mapping[Names, tuple[float, float]]


def _save_rated(rated: RatedUsage | None) -> Any:
    if rated is None:
        return None
    return [rated.at, [[list(names), *rated.used.get(names, ())] for names in rated.owners]]


def _load_rated(saved: Any) -> RatedUsage | None:
    if saved is None:
        return None
    at, rows = saved
    owners = tuple(tuple(names) for names, *_ in rows)
    used = {tuple(names): (both[0], both[1]) for names, *both in rows if both}
    return RatedUsage(at, owners, used)


_USAGE: Final = FieldRule(
    lambda usage: usage and usage.copy(),
    lambda usage: usage.saved() if usage is not None else None,
    lambda saved: Usage.load(saved) if saved is not None else None,
)
_RATED: Final = FieldRule(save=_save_rated, load=_load_rated)


@dataclass(slots=True)
class FairShareState:
    """The component's part of the engine's state."""

    usage: Usage | None = declared(_USAGE, default=None, carried=True, lasting=True)
    """Usage of ended runs; None where fair share is off."""
    rated: RatedUsage | None = declared(_RATED, default=None)
    """Usage at the last ranking; None before the first."""
    shares: RatedTree | None = declared(MOMENT, default=None)
    """The shares of the last ranking, or of this batch before the first ranking."""
    history: tuple[RatedUsage, int, Floats] | None = declared(MOMENT, default=None)
    """The usage, the number of known users, and their ``usage_history``."""
    shares_generation: int | None = declared(MOMENT, default=None)
    """The generation of ``shares`` before the first ranking."""


def limit_moments(part: FairShareState, now: int, _: int) -> None:
    """Let no usage be in the future when the clock was set back."""
    if part.usage is not None:
        part.usage = part.usage.no_later_than(now)


def fair_share_state(state: EngineState) -> FairShareState:
    """The component's part of the engine's state."""
    found: FairShareState = state.parts[FairShareState]  # no call: arrivals ask often
    return found


def share_tree(state: EngineState) -> ShareTree | None:
    """The tree of the site; None where fair share is off."""
    return state.site.part(FairShareSettings).tree
