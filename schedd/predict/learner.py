"""Learning from the events of jobs: predicted at submission, learned from when they end or run long."""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from schedd.plan.columns import Ints
from schedd.predict.kernels import KINDS
from schedd.predict.layout import LEVELS, Ask, Prediction
from schedd.predict.open_jobs import OpenJobs
from schedd.predict.run_times import RunTimes

__all__ = ["Learner"]


@dataclass(frozen=True, slots=True)
class _Job:
    """A job that has not ended."""

    prediction: Prediction
    started: int = -1
    outlived: bool = False
    """Whether it was counted as a hit or miss already, or is not to be."""


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

    def get(self, job: str) -> Prediction | None:
        """The same; None of one that is not known."""
        one = self._jobs.get(job)
        return one.prediction if one is not None else None

    def open(self, now: int) -> OpenJobs:
        """All that are known, as they are now."""
        jobs = self._jobs.values()
        at_first = tuple(one.prediction for one in jobs)
        keys = np.concatenate([one.keys for one in at_first]) if at_first else np.zeros(0, np.int64)
        known = self.run_times.known(keys.reshape(-1, KINDS))
        return OpenJobs(tuple(self._jobs), at_first, tuple(one.started for one in jobs), now, known)

    def predictions(self, now: int) -> dict[str, Prediction]:
        """Of all that are known, renewed; the dictionary is the caller's own."""
        return self.open(now).predictions()

    def started(self, job: str, now: int, at: int | None = None, *, counts: bool = True) -> None:
        """A known job began to run, ``at`` a moment before ``now`` where that is known.

        One that ``counts`` not teaches how long such jobs run, and nothing of how good predictions are: of
        those that are found running many run long.
        """
        self.advance(now)
        one = self._jobs.get(job)
        if one is not None:
            begun = now if at is None else at
            self._jobs[job] = replace(one, started=begun, outlived=one.outlived or not counts)
            if (
                one.prediction.p90 < one.prediction.walltime
            ):  # who is killed at the walltime runs no longer than that
                heapq.heappush(self._due, (begun + one.prediction.p90, job))

    def back(self, job: str, now: int) -> None:
        """A job that ran is queued again; what it did until then says nothing of its run time."""
        self.advance(now)
        one = self._jobs.get(job)
        if one is not None:
            self._jobs[job] = replace(one, started=-1)

    def ended(self, job: str, now: int, at: int | None = None) -> None:
        """A job ran to its end, ``at`` a moment before ``now`` where that is known."""
        self.advance(now)
        one = self._jobs.pop(job, None)
        if one is not None and one.started >= 0:
            run = (now if at is None else at) - one.started
            self.run_times.ended(one.prediction, run, outlived=one.outlived)

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
                self._jobs[job] = replace(one, outlived=True)
                self.run_times.outlived(one.prediction)

    # ---- saved ----------------------------------------------------------------------------------

    def copy(self) -> "Learner":
        """One that goes on by itself."""
        new = Learner(self.run_times.copy())
        new._jobs, new._due = dict(self._jobs), list(self._due)
        return new

    def save(self) -> tuple[dict[str, Any], dict[str, Ints]]:
        """JSON-able values, and arrays of 64-bit integers by name."""
        run_times, arrays = self.run_times.save()
        jobs = list(self._jobs.values())
        kept = [job.prediction for job in jobs]
        width = LEVELS.shape[0]
        told = np.stack([one.told for one in kept]) if kept else np.zeros((0, width), np.int64)
        raw = np.stack([one.raw for one in kept]) if kept else np.zeros((0, width))
        keys = np.stack([one.keys for one in kept]) if kept else np.zeros((0, 0), np.int64)
        plain = {"run_times": run_times, "jobs": list(self._jobs), "due": sorted(self._due)}
        return plain, {
            **{f"run_times.{name}": array for name, array in arrays.items()},
            "jobs.told": told,
            "jobs.raw": raw.view(np.int64),
            "jobs.keys": keys,
            "jobs.walltime": np.array([one.walltime for one in kept], np.int64),
            "jobs.started": np.array([job.started for job in jobs], np.int64),
            "jobs.outlived": np.array([job.outlived for job in jobs], np.int64),
        }

    @classmethod
    def load(cls, plain: Mapping[str, Any], arrays: Mapping[str, Ints]) -> Self:
        """What ``save`` saved. Raises KeyError, TypeError and ValueError for anything else."""
        prefix = "run_times."
        of = {name.removeprefix(prefix): one for name, one in arrays.items() if name.startswith(prefix)}
        new = cls(RunTimes.load(plain["run_times"], of))
        raw = arrays["jobs.raw"].view(np.float64)
        names = ("jobs.walltime", "jobs.started", "jobs.outlived")
        rest = zip(*(arrays[name].tolist() for name in names), strict=True)
        for job, told, share, keys, (walltime, started, outlived) in zip(
            plain["jobs"], arrays["jobs.told"], raw, arrays["jobs.keys"], rest, strict=True
        ):
            new._jobs[job] = _Job(Prediction(walltime, told, share, keys), started, bool(outlived))
        new._due = [(moment, job) for moment, job in plain["due"]]
        heapq.heapify(new._due)
        return new
