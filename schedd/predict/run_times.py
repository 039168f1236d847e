"""Run-time prediction: distributions over similar jobs, calibrated by the outcomes of earlier predictions.

Templates after Gibbons (1997) and Smith, Foster and Taylor (1998), the most specific first, weighted by their
latest ends. All quantiles are calibrated by conformal prediction (Romano, Patterson and Candès 2019), the
high ones also by steps per user and for all users (Gibbs and Candès 2021). Figures:
research/results/prediction.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from math import log
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from schedd.plan.columns import Ints
from schedd.predict.kernels import (
    BUCKET_SIZE,
    ENDS_PER_TEMPLATE,
    USER_TEMPLATE,
    Templates,
    copy_into,
    entries_of,
    learn_end,
    predict_open,
    predict_submitted,
    shift_user,
)
from schedd.predict.predictions import LEVELS, P90_INDEX, Floats, JobFeatures, Prediction

MOST_TEMPLATES: Final = 1 << 20
"""Largest number of templates (150 MiB); the least recently updated one is evicted."""
_FIRST_TEMPLATES: Final = 1 << 10
_MAX_LOAD: Final = 0.25  # load factor above which the table is doubled

_WINDOW: Final = 1000  # latest ends used for the calibration
_CALIBRATION_INTERVAL: Final = 100  # ends between two calibrations

_ENDS_PER_RUNNING: Final = 4  # the calibration counts in full from this number of ends per running job

_STEP_USER: Final = 0.3
_STEP_ALL: Final = 0.01
_MOST_SHIFT: Final = 6.0
_FIRST_SHIFTED: Final = P90_INDEX - 1  # index of the lowest quantile corrected by shifts (80 %)

_MASK: Final = (1 << 64) - 1


@lru_cache(maxsize=1 << 16)
def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _mix(h: int, part: int) -> int:
    """Return the hash ``h`` extended by ``part``."""
    h = ((h ^ part) * 0xBF58476D1CE4E5B9) & _MASK
    return h ^ (h >> 31)


def _template_keys(features: JobFeatures) -> Ints:
    """Return the keys of a job's templates, most specific first; key 0: no template."""
    user = _mix(1, _digest(features.user))
    alike = _mix(user, features.walltime)
    shaped = _mix(alike, features.procs)
    named = _mix(shaped, _digest(features.name)) or 1 if features.name else 0
    every = (named, shaped, _mix(alike, _MASK), user, _mix(2, features.walltime), 1)
    return np.array(every, np.uint64).view(np.int64)


def _table(size: int) -> Templates:
    return Templates(
        keys=np.zeros(size, np.int64),
        learned=np.zeros(size, np.int64),
        used=np.zeros(size, np.int64),
        shift=np.zeros(size, np.float64),
        ends=np.zeros((size, ENDS_PER_TEMPLATE), np.float32),
    )


def _filled(learned: Ints) -> npt.NDArray[np.bool_]:
    """Return a mask of the used places of the rings."""
    found: npt.NDArray[np.bool_] = np.arange(ENDS_PER_TEMPLATE) < learned[:, None]
    return found


def _packed(values: npt.NDArray[np.float32]) -> Ints:
    """Return pairs of 32-bit numbers as 64-bit ones, padded with a zero."""
    even = np.append(values, np.zeros(values.shape[0] % 2, np.float32))
    return even.view(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class TemplateSnapshot:
    """Read-only copy of the templates of some jobs."""

    _tb: Templates
    _entries: Ints
    _keys: Ints
    _offset: Floats
    _shift: float
    _ends: int

    def predict(self, jobs: Ints, limits: Ints, running: Ints, ran: Floats) -> Ints:
        """Return quantiles of the work, (n, levels), of ``jobs``, (n,) positions in this snapshot.

        ``limits``: the largest work of each; ``running``: positions of the running jobs, latest start first;
        ``ran``: their log(work done / largest work).

        The calibration of waiting jobs is scaled by ``ends / (_ENDS_PER_RUNNING * running)``, at most 1:
        while most jobs still run, those that ended are the short ones.
        """
        known = min(1.0, self._ends / max(1, _ENDS_PER_RUNNING * running.shape[0]))
        place = np.full(self._keys.shape[0], -1, np.int64)
        place[running] = np.arange(running.shape[0])
        return predict_open(
            self._tb, self._entries[jobs], self._keys[jobs], limits, self._keys[running], ran,
            place[jobs], LEVELS, self._offset * known, self._shift, _FIRST_SHIFTED,
        )  # fmt: skip


class RunTimes:
    """Learned run times. Only ``record_end`` and ``record_outlived`` change them. Not thread-safe."""

    def __init__(self, most: int = MOST_TEMPLATES) -> None:
        """``most``: largest number of templates, a power of two from ``BUCKET_SIZE`` on."""
        if most < BUCKET_SIZE or most & (most - 1):
            raise ValueError(f"{most} templates: a power of two, at least {BUCKET_SIZE}")
        self._most = most
        self._tb = _table(min(most, _FIRST_TEMPLATES))
        self._filled = 0
        self._errors: Floats = np.zeros((_WINDOW, LEVELS.shape[0]))
        self._ends = 0
        self._offset: Floats = np.zeros(LEVELS.shape[0])
        self._shift = 0.0

    @property
    def ends(self) -> int:
        """Number of ends learned from."""
        return self._ends

    @property
    def nbytes(self) -> int:
        """Size of all arrays in bytes."""
        return sum(array.nbytes for array in (*self._tb, self._errors, self._offset))

    def predict(self, features: JobFeatures) -> Prediction:
        """Return the prediction for a job submitted now."""
        keys, most = _template_keys(features), features.most_work
        raw, quantiles = predict_submitted(
            self._tb, keys, LEVELS, self._offset, self._shift, _FIRST_SHIFTED, most
        )
        return Prediction(features.walltime, quantiles, raw, keys, most_work=most)

    def snapshot(self, keys: Ints) -> TemplateSnapshot:
        """Return a copy of these keys' templates, (jobs, TEMPLATES_PER_JOB), for another thread."""
        entries, where = np.unique(entries_of(self._tb, keys), return_inverse=True)
        absent = int(entries.shape[0] > 0 and entries[0] < 0)
        columns = self._tb._asdict()
        own = Templates(**{name: array[entries[absent:]] for name, array in columns.items()})
        return TemplateSnapshot(
            own, where.reshape(keys.shape) - absent, keys, self._offset.copy(), self._shift, self._ends
        )

    def record_end(self, prediction: Prediction, run: int, *, outlived: bool, speed: float = 1.0) -> None:
        """Learn from a job that ran ``run`` seconds on nodes of ``speed``; ``prediction`` is the one made at
        its submission.

        ``outlived``: the job was already counted by ``record_outlived``.
        """
        run = min(max(run, 1), prediction.walltime)
        value = log(min(run * speed / prediction.work_limit, 1.0))
        keys = prediction.template_keys
        self._ends += 1
        self._filled += learn_end(self._tb, keys, value, self._ends)
        self._errors[(self._ends - 1) % _WINDOW] = value - prediction.uncalibrated
        if self._ends % _CALIBRATION_INTERVAL == 0:
            errors = np.sort(self._errors[: self._ends], axis=0)
            n = errors.shape[0]
            at = (n - 1) * LEVELS
            low, column = at.astype(np.int64), np.arange(LEVELS.shape[0])
            part = at - low
            self._offset = (1 - part) * errors[low, column] + part * errors[low + 1, column]
        if not outlived:
            self._shift_quantiles(int(keys[USER_TEMPLATE]), run > prediction.at_speed(speed).p90)
        size = self._tb.keys.shape[0]
        if self._filled > _MAX_LOAD * size and size < self._most:
            self.grow()

    def record_outlived(self, prediction: Prediction) -> None:
        """Count a running job that exceeds its predicted P90 as a miss; its end is learned later.

        Waiting for the end would bias the calibration towards short jobs, which end first.
        """
        self._shift_quantiles(int(prediction.template_keys[USER_TEMPLATE]), True)

    def _shift_quantiles(self, user: int, missed: bool) -> None:
        by = float(missed) - (1.0 - float(LEVELS[P90_INDEX]))
        self._shift += _STEP_ALL * by
        shift_user(self._tb, user, _STEP_USER * by, _MOST_SHIFT, self._ends)

    def grow(self) -> None:
        """Double the table."""
        larger = _table(2 * self._tb.keys.shape[0])
        copy_into(self._tb, larger)
        self._tb = larger
        self._filled = int((larger.keys != 0).sum())

    def copy(self) -> "RunTimes":
        """Return an independent copy."""
        new = RunTimes(self._most)
        new._tb = self._tb._replace(**{name: array.copy() for name, array in self._tb._asdict().items()})
        new._errors, new._offset = self._errors.copy(), self._offset.copy()
        new._filled, new._ends, new._shift = self._filled, self._ends, self._shift
        return new

    # ---- saved ----------------------------------------------------------------------------------

    def save(self) -> tuple[dict[str, Any], dict[str, Ints]]:
        """Return the state as JSON values and arrays by name, without free table entries.

        All arrays hold 64-bit integers; floating-point numbers are stored by their bits.
        """
        at = np.flatnonzero(self._tb.keys)
        columns = self._tb._asdict()
        ends = columns.pop("ends")
        arrays = {name: array[at].view(np.int64) for name, array in columns.items()}
        arrays["ends"] = _packed(ends[at][_filled(arrays["learned"])])
        errors = self._errors[: self._ends]
        arrays |= {
            "at": at,
            "errors": errors.copy().view(np.int64),
            "offset": self._offset.copy().view(np.int64),
        }
        plain = {
            "size": self._tb.keys.shape[0],
            "most": self._most,
            "filled": self._filled,
            "ends": self._ends,
            "shift": self._shift,
        }
        return plain, arrays

    @classmethod
    def load(cls, plain: Mapping[str, Any], arrays: Mapping[str, Ints]) -> Self:
        """Restore from the result of ``save``. Raises KeyError, TypeError or ValueError for other input."""
        new = cls(plain["most"])
        size = plain["size"]
        if not BUCKET_SIZE <= size <= new._most or size & (size - 1):
            raise ValueError(f"a table of {size} templates")
        new._tb = _table(size)
        at = arrays["at"]
        if at.size and not (at.min() >= 0 and at.max() < size):
            raise ValueError("a template outside of the table")
        columns = new._tb._asdict()
        ends = columns.pop("ends")
        for name, array in columns.items():
            array[at] = arrays[name].view(array.dtype)
        filled = _filled(arrays["learned"])
        known = np.zeros(filled.shape, np.float32)
        known[filled] = arrays["ends"].view(np.float32)[: int(filled.sum())]
        ends[at] = known
        new._filled, new._ends, new._shift = plain["filled"], plain["ends"], plain["shift"]
        new._errors[: min(new._ends, _WINDOW)] = arrays["errors"].view(np.float64)
        new._offset[:] = arrays["offset"].view(np.float64)
        return new
