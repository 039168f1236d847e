"""Licence counts and leases of a federation: the component's part of the engine's state."""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import index
from typing import Any, Final

from schedd.engine.facts.state import EngineState
from schedd.plan.schema import NAMES, FieldRule, declared
from schedd.policy.limits import Limit


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
    """By licence with a counting program: the maximum age of its count, in seconds."""
    lent: dict[str, int] = declared(_LEASES, make=dict, carried=True, lasting=True)
    """By licence lent by a federation: the number of the latest lease."""
    old: set[str] = declared(_OLD, make=set, carried=True)  # licences with an alert about an outdated count

    def limits(self) -> tuple[Limit, ...]:
        """Return each count as a limit on the copies in use."""
        return tuple(Limit(amount=amount, what=name) for name, (amount, _) in self.counted.items())

    def set_polled(self, polled: dict[str, int]) -> None:
        """Replace the polled licences; drop the counts of removed ones.

        A licence has 0 copies until its first count, because a job without its licence would fail.
        """
        for name in self.polled.keys() - polled.keys():
            self.counted.pop(name, None)
        for name in polled:
            self.counted.setdefault(name, (0, 0))
        self.polled = dict(polled)
        self.old &= polled.keys()

    def outdated(self, now: int) -> list[tuple[str, str]]:
        """Return each licence with a newly outdated count, with a text for an alert."""
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
