"""Predictions of jobs that have not ended, renewed: by what has ended since, and by who runs for how long.

Those made at the submission, from which is learned, stay as they are. Of hundreds of jobs that a user submits
at once all are predicted before the first has run.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from schedd.predict.layout import Prediction
from schedd.predict.run_times import Known

__all__ = ["OpenJobs"]


@dataclass(frozen=True, slots=True, eq=False)
class OpenJobs:
    """The open jobs of a moment, and what was known of such; any thread may ask."""

    ids: tuple[str, ...]
    at_first: tuple[Prediction, ...] = field(repr=False)
    """As predicted at their submission."""
    started: tuple[int, ...]
    """-1: it waits."""
    now: int
    known: Known = field(repr=False)

    def submitted(self) -> dict[str, Prediction]:
        """By id, as predicted at their submission."""
        return dict(zip(self.ids, self.at_first, strict=True))

    def predictions(self) -> dict[str, Prediction]:
        """By id; each with what is learned from of the first one."""
        started = np.array(self.started, np.int64)
        walltimes = np.array([one.walltime for one in self.at_first], np.int64)
        running = np.flatnonzero(started >= 0)
        running = running[np.argsort(-started[running], kind="stable")]
        ran = np.log(np.maximum(self.now - started[running], 1) / walltimes[running])
        # Who waits, and asks for the same, is told the same.
        alike: dict[tuple[int, bytes], int] = {}
        which = []
        jobs: list[int] = []
        for i, one in enumerate(self.at_first):
            k = len(jobs)
            if self.started[i] < 0:
                k = alike.setdefault((one.walltime, one.keys.tobytes()), k)
            if k == len(jobs):
                jobs.append(i)
            which.append(k)
        chosen = np.array(jobs, np.int64)
        told = self.known.predict(chosen, walltimes[chosen], running, ran)
        return {
            job: replace(one, told=told[k], ran=max(self.now - began, 0) if began >= 0 else 0)
            for job, one, began, k in zip(self.ids, self.at_first, self.started, which, strict=True)
        }
