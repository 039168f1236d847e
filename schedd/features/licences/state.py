"""What the engine knows of licences: their counts, and the leases of a federation."""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import index
from typing import Any, Final

from schedd.engine.facts.state import EngineState
from schedd.plan.schema import NAMES, FieldRule, declared
from schedd.policy.limits import Limit

__all__ = ["LicenceCounts", "licence_counts"]


def _load_counts(saved: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {name: (amount, time) for name, (amount, time) in saved.items()}


def _load_numbers(saved: dict[str, Any]) -> dict[str, int]:
    return {name: index(number) for name, number in saved.items()}


def _save_names(names: Iterable[str]) -> list[str]:
    return sorted(names)


_COUNTS: Final = FieldRule(dict, load=_load_counts)
_LEASES: Final = FieldRule(dict, load=_load_numbers)
_OLD: Final = FieldRule(set, _save_names, set)


@dataclass(slots=True)
class LicenceCounts:
    """The component's part of the engine's state."""

    counted: dict[str, tuple[int, int]] = declared(_COUNTS, make=dict, carried=True, lasting=True)
    """By licence: the number of its copies, and when it was last counted (0: never)."""
    polled: dict[str, int] = declared(NAMES, make=dict, carried=True)
    """By licence that a program counts: the age at which its count is out of date, in seconds."""
    lent: dict[str, int] = declared(_LEASES, make=dict, carried=True, lasting=True)
    """By licence that a federation lends: the number of the latest lease."""
    old: set[str] = declared(_OLD, make=set, carried=True)
    """Licences with an alert because their count is out of date."""

    def limits(self) -> tuple[Limit, ...]:
        """Return each count as a limit on the copies in use."""
        return tuple(Limit(amount=amount, what=name) for name, (amount, _) in self.counted.items())

    def set_polled(self, polled: dict[str, int]) -> None:
        """Replace the polled licences; counts of licences that are polled no longer are dropped.

        A licence has 0 copies until its first count: a job without its licence would fail.
        """
        for name in self.polled.keys() - polled.keys():
            self.counted.pop(name, None)
        for name in polled:
            self.counted.setdefault(name, (0, 0))
        self.polled = dict(polled)
        self.old &= polled.keys()

    def outdated(self, now: int) -> list[tuple[str, str]]:
        """Return each licence whose count became out of date since the last call, with a text for it."""
        found = []
        for name, max_age in self.polled.items():
            amount, time = self.counted[name]
            if now - time < max_age:
                self.old.discard(name)
            elif name not in self.old:
                self.old.add(name)
                age = f"was last counted {now - time} s ago" if time else "was never counted"
                found.append((name, f"licence {name} {age}; it is planned with {amount} of it"))
        return found


def licence_counts(state: EngineState) -> LicenceCounts:
    """The component's part of the engine's state."""
    return state.part(LicenceCounts)
