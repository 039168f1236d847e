"""Learning from the events of jobs: predicted at submission, learned from when they end or run long."""

import heapq
from dataclasses import dataclass

from schedd.predict.layout import Ask, Prediction
from schedd.predict.run_times import RunTimes

__all__ = ["Learner"]


@dataclass(slots=True)
class _Job:
    """A job that has not ended."""

    prediction: Prediction
    started: int = -1
    outlived: bool = False


class Learner:
    """The open jobs of a cluster, and the run times learned from those that ended.

    All times are seconds since the epoch and never go back. What it says of a moment depends on nothing that
    happens later.
    """

    def __init__(self, run_times: RunTimes | None = None) -> None:
        self.run_times = run_times if run_times is not None else RunTimes()
        self._jobs: dict[str, _Job] = {}
        self._due: list[tuple[int, str]] = []
        """When running jobs pass their P90; entries of jobs that are gone or run anew are passed over."""

    def __contains__(self, job: str) -> bool:
        return job in self._jobs

    def queued(self, job: str, ask: Ask, now: int) -> Prediction:
        """Predict a job that was submitted, or whose request changed."""
        self.advance(now)
        prediction = self.run_times.predict(ask)
        self._jobs[job] = _Job(prediction)
        return prediction

    def prediction(self, job: str) -> Prediction:
        """What was predicted at its submission. Raises KeyError."""
        return self._jobs[job].prediction

    def started(self, job: str, now: int) -> None:
        """A known job began to run."""
        self.advance(now)
        one = self._jobs.get(job)
        if one is not None:
            one.started = now
            if (
                one.prediction.p90 < one.prediction.walltime
            ):  # who is killed at the walltime runs no longer than that
                heapq.heappush(self._due, (now + one.prediction.p90, job))

    def back(self, job: str, now: int) -> None:
        """A job that ran is queued again; what it did until then says nothing of its run time."""
        self.advance(now)
        one = self._jobs.get(job)
        if one is not None:
            one.started = -1

    def ended(self, job: str, now: int) -> None:
        """A job ran to its end."""
        self.advance(now)
        one = self._jobs.pop(job, None)
        if one is not None and one.started >= 0:
            self.run_times.ended(one.prediction, now - one.started, outlived=one.outlived)

    def forget(self, job: str, now: int) -> None:
        """A job is gone, and nothing is to be learned: deleted, or ended with its node."""
        self.advance(now)
        self._jobs.pop(job, None)

    def advance(self, now: int) -> None:
        """The clock reads ``now``: note who outlived what was told of it."""
        while self._due and self._due[0][0] < now:
            moment, job = heapq.heappop(self._due)
            one = self._jobs.get(job)
            if one is None or one.outlived or one.started < 0:
                continue
            if one.started + one.prediction.p90 == moment:
                one.outlived = True
                self.run_times.outlived(one.prediction)
