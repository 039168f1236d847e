"""Run-time learner and start calibrations of one cluster.

Start estimates of three kinds are calibrated apart, because their errors differ: estimates at submission,
estimates at half of the expected wait (or for a job found waiting), and estimates less than an hour before
the start.
"""

from collections.abc import Mapping
from operator import index
from typing import Any, Final, Literal, get_args

from schedd.plan.columns import Ints
from schedd.predict.arrivals import RecentArrivals
from schedd.predict.delays import LONGEST_DELAY_S, Delay, RecentDelays
from schedd.predict.halts import Halts
from schedd.predict.learner import Learner
from schedd.predict.start_calibration import CalibratedStart, StartCalibration

EstimateKind = Literal["submission", "waiting", "hour"]
ESTIMATE_KINDS: Final[tuple[EstimateKind, ...]] = get_args(EstimateKind)
_VERSION: Final = 6
_HOUR_S: Final = 3600
_SUBMISSION_S: Final = 600  # longest wait in seconds of an estimate that still counts as made at submission
_UNCHANGED_PART: Final = 4


class RunTimePredictor:
    """Learner and calibrations of one cluster; not thread-safe. Times never go back."""

    def __init__(self, learner: Learner | None = None) -> None:
        self.learner = learner if learner is not None else Learner()
        self.calibrations: dict[EstimateKind, StartCalibration] = {
            kind: StartCalibration() for kind in ESTIMATE_KINDS
        }
        self._share_halts(Halts())
        self.start_delays = RecentDelays()  # from due to started
        self.end_delays = RecentDelays()  # from an end to its report
        self.arrivals = RecentArrivals()
        self._due: dict[str, int] = {}  # when each job with an open run decision was due
        self.as_of = -1  # time of the latest round of all expected starts; -1: none yet
        self.near_as_of = self.near_until = -1
        """Time of the latest round of near starts, and its latest considered start; -1: none yet."""

    def _share_halts(self, halts: Halts) -> None:
        self.halts = halts
        for one in self.calibrations.values():
            one.halts = halts

    def record_dispatch(self, job: str, due: int) -> None:
        """Record that a run decision was made for a job that was ``due``."""
        self._due[job] = due

    def record_start_delay(self, job: str, at: int) -> None:
        """Learn the delay of a dispatched job that started at ``at``, unless starts were halted meanwhile; of
        other jobs none is known.
        """
        due = self._due.pop(job, None)
        if due is not None and not self.halts.overlap(due, at):
            self.start_delays.record(at - due)

    @property
    def end_delay(self) -> Delay:
        """Delay of the report of an end; until enough are known, that of starts, whose messages take the same
        path.
        """
        return self.end_delays.current if self.end_delays.known else self.start_delays.current

    def record_end_delay(self, at: int, now: int) -> None:
        """Learn the delay of the report, at ``now``, of an end at ``at``, unless an outage caused it."""
        if now - at <= LONGEST_DELAY_S and not self.halts.overlap(at, now):
            self.end_delays.record(now - at)

    def withdraw_dispatch(self, job: str) -> None:
        """Forget the run decision of a job that did not start."""
        self._due.pop(job, None)

    def record_start(self, job: str, now: int, at: int, *, counts: bool, speed: float = 1.0) -> None:
        """Record that a job started at ``at``. ``counts``, ``speed``: see ``Learner.record_start``."""
        self.learner.record_start(job, now, at, counts=counts, speed=speed)
        for kind in self.calibrations.values():
            kind.record_start(job, now)

    def record_end(self, job: str, now: int, at: int) -> None:
        """Record that a job ended normally at ``at``."""
        self.learner.record_end(job, now, at)
        self._discard_estimates(job)

    def without_jobs(self) -> "RunTimePredictor":
        """Return a copy without the open jobs, which will be listed again."""
        new = RunTimePredictor(Learner(self.learner.run_times))
        new.calibrations = {kind: one.without_estimates() for kind, one in self.calibrations.items()}
        new._share_halts(self.halts.copy())
        new.start_delays, new.end_delays = self.start_delays.copy(), self.end_delays.copy()
        new.arrivals = self.arrivals.copy()
        return new

    def forget(self, job: str, now: int) -> None:
        """Drop a job without learning from it."""
        self.withdraw_dispatch(job)
        self.learner.forget(job, now)
        self._discard_estimates(job)

    def discard_estimates(self, job: str) -> None:
        """Drop the start estimates of a job that was held or changed its request."""
        self._discard_estimates(job)

    def _discard_estimates(self, job: str) -> None:
        for kind in self.calibrations.values():
            kind.forget(job)

    def advance_clock(self, now: int) -> None:
        """Count the run-time predictions and start estimates that ``now`` has passed."""
        self.learner.advance_clock(now)
        for kind in self.calibrations.values():
            kind.advance_clock(now)

    # ---- saved ----------------------------------------------------------------------------------

    def copy(self) -> "RunTimePredictor":
        """Return an independent copy."""
        new = RunTimePredictor(self.learner.copy())
        new.calibrations = {kind: one.copy() for kind, one in self.calibrations.items()}
        new._share_halts(self.halts.copy())
        new.start_delays, new.end_delays = self.start_delays.copy(), self.end_delays.copy()
        new.arrivals = self.arrivals.copy()
        new._due = dict(self._due)
        new.as_of, new.near_as_of, new.near_until = self.as_of, self.near_as_of, self.near_until
        return new

    def save(self) -> tuple[dict[str, Any], dict[str, Ints]]:
        """Return the state as JSON values and 64-bit arrays by name. Slow: save a copy in a thread."""
        plain, arrays = self.learner.save()
        kinds = {kind: one.save() for kind, one in self.calibrations.items()}
        rounds = {"as_of": self.as_of, "near_as_of": self.near_as_of, "near_until": self.near_until}
        delays = {
            "start_delays": self.start_delays.save(),
            "end_delays": self.end_delays.save(),
            "due": self._due,
            "halts": self.halts.save(),
            "arrivals": self.arrivals.save(),
        }
        return {"version": _VERSION, "learner": plain, "kinds": kinds, **rounds, **delays}, arrays

    @classmethod
    def load(cls, plain: Mapping[str, Any], arrays: Mapping[str, Ints]) -> "RunTimePredictor":
        """Restore from the result of ``save``.

        Raises KeyError, TypeError or ValueError for other input, including other versions.
        """
        if plain["version"] != _VERSION:
            raise ValueError(f"predictor state has version {plain['version']}, this program reads {_VERSION}")
        new = cls(Learner.load(plain["learner"], arrays))
        new.calibrations = {kind: StartCalibration.load(plain["kinds"][kind]) for kind in ESTIMATE_KINDS}
        new.as_of, new.near_as_of, new.near_until = (
            plain[name] for name in ("as_of", "near_as_of", "near_until")
        )
        new._share_halts(Halts.load(plain["halts"]))
        new.start_delays = RecentDelays.load(plain["start_delays"])
        new.end_delays = RecentDelays.load(plain["end_delays"])
        new._due = {job: index(due) for job, due in plain["due"].items()}
        new.arrivals = RecentArrivals.load(plain["arrivals"])
        return new


def classify_estimate(
    by_kind: Mapping[EstimateKind, StartCalibration], job: str, now: int, since: int, predicted: int
) -> tuple[EstimateKind, bool]:
    """Return the kind of an estimate issued at ``now``, and whether its outcome is learned from.

    The job has waited from ``since`` and starts at ``predicted`` by predicted run times. Only the first
    estimate of each kind is learned from: the last ones come right before the start and are right only for
    that reason.
    """
    first = by_kind["submission"].estimates.get(job)
    later = job in by_kind["waiting"].estimates
    if first is None and not later:
        return ("submission", True) if now <= since + _SUBMISSION_S else ("waiting", True)
    near = predicted <= now + _HOUR_S
    if first is not None and first.expected.p50 <= first.issued_at + _HOUR_S:
        near = False  # already the estimate at submission was within an hour of the start
    if near:
        return "hour", job not in by_kind["hour"].estimates
    if first is None or later:
        return "waiting", False
    return "waiting", 2 * now >= first.issued_at + first.expected.p50


def is_unchanged(old: CalibratedStart | None, new: CalibratedStart, now: int) -> bool:
    """Return whether the ``old`` estimate holds: ahead, and moved by at most a quarter of its uncertainty.

    The uncertainty is the time from P50 to P90, of the old and the new estimate the shorter one. With all of
    it as the bound, a published P90 stayed at a plan that had improved by hours.
    """
    if old is None or old.p50 <= now:
        return False
    least = max(60, min(old.p90 - old.p50, new.p90 - new.p50) // _UNCHANGED_PART)
    return abs(new.p50 - old.p50) <= least and abs(new.p90 - old.p90) <= least
