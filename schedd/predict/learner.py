"""Learning of run times: predict at submission, learn at the end or beyond P90."""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from schedd.plan.columns import Ints
from schedd.predict.kernels import TEMPLATES_PER_JOB
from schedd.predict.open_jobs import OpenJobs
from schedd.predict.predictions import LEVELS, JobFeatures, Prediction
from schedd.predict.run_times import RunTimes


@dataclass(frozen=True, slots=True)
class _OpenJob:
    """A job that has not ended."""

    prediction: Prediction
    started: int = -1
    speed: float = 1.0  # speed of the slowest node of the run
    outlived: bool = False  # already counted as a hit or miss, or excluded from counting


class Learner:
    """Open jobs of a cluster and the run times learned from ended jobs.

    Times are seconds since the epoch and never go back. Predictions use only earlier events.
    """

    def __init__(self, run_times: RunTimes | None = None) -> None:
        self.run_times = run_times if run_times is not None else RunTimes()
        self._jobs: dict[str, _OpenJob] = {}
        self._due: list[tuple[int, str]] = []
        """Heap of (time of P90, job); entries of ended or restarted jobs are stale and skipped."""

    def __contains__(self, job: str) -> bool:
        return job in self._jobs

    def predict_job(self, job: str, ask: JobFeatures, now: int) -> Prediction:
        """Return the prediction of a submitted or changed job, and record the job as open."""
        self.advance_clock(now)
        prediction = self.run_times.predict(ask)
        self._jobs[job] = _OpenJob(prediction)
        return prediction

    def prediction(self, job: str) -> Prediction:
        """Return the prediction made at submission. Raises KeyError for an unknown job."""
        return self._jobs[job].prediction

    def find_prediction(self, job: str) -> Prediction | None:
        """Return the prediction made at submission; None for an unknown job."""
        one = self._jobs.get(job)
        return one.prediction if one is not None else None

    def snapshot_open_jobs(self, now: int) -> OpenJobs:
        jobs = self._jobs.values()
        at_first = tuple(one.prediction for one in jobs)
        keys = np.concatenate([one.template_keys for one in at_first]) if at_first else np.zeros(0, np.int64)
        known = self.run_times.snapshot(keys.reshape(-1, TEMPLATES_PER_JOB))
        started, speeds = tuple(one.started for one in jobs), tuple(one.speed for one in jobs)
        return OpenJobs(tuple(self._jobs), at_first, started, speeds, now, known)

    def renew_predictions(
        self, now: int, planned_speed: Callable[[str], float] | None = None
    ) -> dict[str, Prediction]:
        """Return renewed predictions of all open jobs by id; see ``OpenJobs.renew_predictions``."""
        return self.snapshot_open_jobs(now).renew_predictions(planned_speed)

    def record_start(
        self, job: str, now: int, at: int | None = None, *, counts: bool = True, speed: float = 1.0
    ) -> None:
        """Record that a job started at ``at`` (default: ``now``) on nodes of ``speed``; an unknown job is
        ignored.

        ``counts=False`` excludes the job from the calibration: jobs found running are a biased sample of long
        jobs.
        """
        self.advance_clock(now)
        one = self._jobs.get(job)
        if one is not None:
            begun = now if at is None else at
            self._jobs[job] = replace(one, started=begun, speed=speed, outlived=one.outlived or not counts)
            p90, limit = one.prediction.at_speed(speed).p90, one.prediction.work_limit / speed
            if p90 < min(one.prediction.walltime, limit):  # no job runs past its walltime
                heapq.heappush(self._due, (begun + p90, job))

    def record_requeue(self, job: str, now: int) -> None:
        """Record that a running job was requeued; its partial run is not learned from."""
        self.advance_clock(now)
        one = self._jobs.get(job)
        if one is not None:
            self._jobs[job] = replace(one, started=-1, speed=1.0)

    def record_end(self, job: str, now: int, at: int | None = None) -> None:
        """Learn from a job that ended at ``at`` (default: ``now``)."""
        self.advance_clock(now)
        one = self._jobs.pop(job, None)
        if one is not None and one.started >= 0:
            run = (now if at is None else at) - one.started
            self.run_times.record_end(one.prediction, run, outlived=one.outlived, speed=one.speed)

    def forget(self, job: str, now: int) -> None:
        """Drop a job without learning from it: it was deleted or lost with its node."""
        self.advance_clock(now)
        self._jobs.pop(job, None)

    def advance_clock(self, now: int) -> None:
        """Count each running job that exceeds its predicted P90 before ``now``."""
        while self._due and self._due[0][0] < now:
            moment, job = heapq.heappop(self._due)
            one = self._jobs.get(job)
            if one is None or one.outlived or one.started < 0:
                continue
            if one.started + one.prediction.at_speed(one.speed).p90 == moment:
                self._jobs[job] = replace(one, outlived=True)
                self.run_times.record_outlived(one.prediction)

    # ---- saved ----------------------------------------------------------------------------------

    def copy(self) -> "Learner":
        """Return an independent copy."""
        new = Learner(self.run_times.copy())
        new._jobs, new._due = dict(self._jobs), list(self._due)
        return new

    def save(self) -> tuple[dict[str, Any], dict[str, Ints]]:
        """Return the state as JSON values and arrays of 64-bit integers by name."""
        run_times, arrays = self.run_times.save()
        jobs = list(self._jobs.values())
        kept = [job.prediction for job in jobs]
        width = LEVELS.shape[0]
        quantile_rows = np.stack([one.quantiles for one in kept]) if kept else np.zeros((0, width), np.int64)
        raw = np.stack([one.uncalibrated for one in kept]) if kept else np.zeros((0, width))
        keys = np.stack([one.template_keys for one in kept]) if kept else np.zeros((0, 0), np.int64)
        plain = {"run_times": run_times, "jobs": list(self._jobs), "due": sorted(self._due)}
        return plain, {
            **{f"run_times.{name}": array for name, array in arrays.items()},
            "jobs.quantile_rows": quantile_rows,
            "jobs.raw": raw.view(np.int64),
            "jobs.keys": keys,
            "jobs.walltime": np.array([one.walltime for one in kept], np.int64),
            "jobs.most_work": np.array([one.work_limit for one in kept], np.int64),
            "jobs.speed": np.array([job.speed for job in jobs], np.float64).view(np.int64),
            "jobs.started": np.array([job.started for job in jobs], np.int64),
            "jobs.outlived": np.array([job.outlived for job in jobs], np.int64),
        }

    @classmethod
    def load(cls, plain: Mapping[str, Any], arrays: Mapping[str, Ints]) -> Self:
        """Restore from the result of ``save``. Raises KeyError, TypeError or ValueError for other input."""
        prefix = "run_times."
        of = {name.removeprefix(prefix): one for name, one in arrays.items() if name.startswith(prefix)}
        new = cls(RunTimes.load(plain["run_times"], of))
        raw = arrays["jobs.raw"].view(np.float64)
        names = ("jobs.walltime", "jobs.started", "jobs.outlived", "jobs.most_work")
        columns = [arrays[name] for name in names]
        speeds = arrays["jobs.speed"].view(np.float64)
        rest = zip(*(column.tolist() for column in (*columns, speeds)), strict=True)
        for job, quantile_rows, share, keys, (walltime, started, outlived, most_work, speed) in zip(
            plain["jobs"], arrays["jobs.quantile_rows"], raw, arrays["jobs.keys"], rest, strict=True
        ):
            prediction = Prediction(walltime, quantile_rows, share, keys, most_work=most_work)
            new._jobs[job] = _OpenJob(prediction, started, speed, bool(outlived))
        new._due = [(moment, job) for moment, job in plain["due"]]
        heapq.heapify(new._due)
        return new
