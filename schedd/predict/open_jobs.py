"""Renewed predictions of open jobs, from the jobs that ended since their submission and from the running
ones.

A user may submit hundreds of jobs at once; all initial predictions are then made before the first job has
run. Learning still uses the initial predictions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from schedd.predict.predictions import Prediction
from schedd.predict.run_times import TemplateSnapshot


@dataclass(frozen=True, slots=True, eq=False)
class OpenJobs:
    """Snapshot of the open jobs and their templates; immutable, for any thread."""

    ids: tuple[str, ...]
    initial_predictions: tuple[Prediction, ...] = field(repr=False)  # predictions at submission
    started: tuple[int, ...]  # start of each job, seconds since the epoch; -1: waiting
    speeds: tuple[float, ...]  # speed of the nodes of each running job; 1 for a waiting one
    now: int
    snapshot: TemplateSnapshot = field(repr=False)

    def predictions_by_id(self) -> dict[str, Prediction]:
        """Return the predictions at submission by job id."""
        return dict(zip(self.ids, self.initial_predictions, strict=True))

    def renew_predictions(self, planned_speed: Callable[[str], float] | None = None) -> dict[str, Prediction]:
        """Return renewed predictions by job id, in seconds on the job's nodes; the fields used for learning
        stay those of the initial ones.

        ``planned_speed`` is the speed of a waiting job's planned nodes; None: 1 for all.
        """
        started = np.array(self.started, np.int64)
        limits = np.array([one.work_limit for one in self.initial_predictions], np.int64)
        speeds = np.array(self.speeds, np.float64)
        running = np.flatnonzero(started >= 0)
        running = running[np.argsort(-started[running], kind="stable")]
        ran = np.log(np.maximum(self.now - started[running], 1) * speeds[running] / limits[running])
        # Waiting jobs with equal templates share one prediction.
        alike: dict[tuple[int, int, bytes], int] = {}
        which = []
        jobs: list[int] = []
        for i, one in enumerate(self.initial_predictions):
            k = len(jobs)
            if self.started[i] < 0:
                k = alike.setdefault((one.walltime, one.work_limit, one.template_keys.tobytes()), k)
            if k == len(jobs):
                jobs.append(i)
            which.append(k)
        chosen = np.array(jobs, np.int64)
        quantiles = self.snapshot.predict(chosen, limits[chosen], running, ran)
        found = {}
        rows = zip(self.ids, self.initial_predictions, self.started, self.speeds, which, strict=True)
        for job, one, began, speed, k in rows:
            if began < 0 and planned_speed is not None:
                speed = planned_speed(job)
            elapsed = max(self.now - began, 0) if began >= 0 else 0
            # Not by `replace`, which takes three times as long: all open jobs come here in each round.
            renewed = Prediction(
                one.walltime, quantiles[k], one.uncalibrated, one.template_keys, elapsed, one.most_work
            )
            found[job] = renewed.at_speed(speed)
        return found
