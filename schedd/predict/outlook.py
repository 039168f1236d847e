"""What a cluster knows of how long its jobs run and when they start: learned, told, calibrated.

Three kinds of told starts are told apart, since they come true differently: the one told at submission; one
at half of the expected wait, or of a job that was found waiting; one within an hour of the start.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from schedd.plan.columns import Ints
from schedd.predict.learner import Learner
from schedd.predict.starts import Calibration, Expected

__all__ = ["KINDS", "Kind", "Outlook", "calm", "kind_of"]

Kind = Literal["submission", "waiting", "hour"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_VERSION: Final = 1
_HOUR: Final = 3600
_PROMPT: Final = 600
"""What is told of a job that waits for longer already is not told at its submission."""


class Outlook:
    """One cluster's; one thread at a time. Times are seconds since the epoch and never go back."""

    def __init__(self, learner: Learner | None = None) -> None:
        self.learner = learner if learner is not None else Learner()
        self.kinds: dict[Kind, Calibration] = {kind: Calibration() for kind in KINDS}
        self.as_of = -1
        """When expected starts were last worked out; -1: never."""

    def started(self, job: str, now: int, at: int, *, counts: bool) -> None:
        """A job runs since ``at``."""
        self.learner.started(job, now, at, counts=counts)
        for kind in self.kinds.values():
            kind.started(job, now)

    def ended(self, job: str, now: int, at: int) -> None:
        """A job ran to its end, which was ``at`` a moment."""
        self.learner.ended(job, now, at)
        self._forget(job)

    def forget(self, job: str, now: int) -> None:
        """A job is gone without an end from which something is to be learned, or is not to be told of."""
        self.learner.forget(job, now)
        self._forget(job)

    def waits_anew(self, job: str) -> None:
        """What was told of a job is of no use any more: it was held, or asks for something else."""
        self._forget(job)

    def _forget(self, job: str) -> None:
        for kind in self.kinds.values():
            kind.forget(job)

    def advance(self, now: int) -> None:
        """The clock reads ``now``: note who outlived, or outwaited, what was told of it."""
        self.learner.advance(now)
        for kind in self.kinds.values():
            kind.advance(now)

    # ---- saved ----------------------------------------------------------------------------------

    def copy(self) -> "Outlook":
        """One that goes on by itself."""
        new = Outlook(self.learner.copy())
        new.kinds = {kind: one.copy() for kind, one in self.kinds.items()}
        new.as_of = self.as_of
        return new

    def save(self) -> tuple[dict[str, Any], dict[str, Ints]]:
        """JSON-able values, and arrays of 64-bit integers by name. Give a copy: this may take a while."""
        plain, arrays = self.learner.save()
        kinds = {kind: one.save() for kind, one in self.kinds.items()}
        return {"version": _VERSION, "learner": plain, "kinds": kinds, "as_of": self.as_of}, arrays

    @classmethod
    def load(cls, plain: Mapping[str, Any], arrays: Mapping[str, Ints]) -> "Outlook":
        """What ``save`` saved.

        Raises KeyError, TypeError and ValueError for anything else, another version's included.
        """
        if plain["version"] != _VERSION:
            raise ValueError(f"an outlook of version {plain['version']}, this program reads {_VERSION}")
        new = cls(Learner.load(plain["learner"], arrays))
        new.kinds = {kind: Calibration.load(plain["kinds"][kind]) for kind in KINDS}
        new.as_of = plain["as_of"]
        return new


def kind_of(
    told: Mapping[Kind, Calibration], job: str, now: int, since: int, predicted: int
) -> tuple[Kind, bool]:
    """By which calibration a start is told at ``now``, and whether it is one to learn from.

    The job waits ``since`` a moment, and starts at ``predicted`` by predicted run times. Of each kind the
    first is learned from: those told last come right before the start, and are right for no other reason.
    """
    first = told["submission"].told.get(job)
    later = job in told["waiting"].told
    if first is None and not later:
        return ("submission", True) if now <= since + _PROMPT else ("waiting", True)
    near = predicted <= now + _HOUR
    if first is not None and first.expected.p50 <= first.at + _HOUR:
        near = False  # it was told within an hour of its start from the beginning
    if near:
        return "hour", job not in told["hour"].told
    if first is None or later:
        return "waiting", False
    return "waiting", 2 * now >= first.at + first.expected.p50


def calm(old: Expected | None, new: Expected, now: int) -> bool:
    """Whether what was told may stand: it moved by no more than its own uncertainty, and is not over yet."""
    if old is None or old.p50 <= now:
        return False
    before = old.p90 - old.p50
    least = max(60, min(before, new.p90 - new.p50))
    return abs(new.p50 - old.p50) <= least and abs(new.p90 - old.p90) <= max(60, before)
