"""Predicted run times: distributions from what jobs alike did, calibrated by how earlier predictions fared.

Templates after Gibbons (1997) and Smith, Foster and Taylor (1998), the most exact first, each by the weight
of its latest ends; conformal calibration of all quantiles (Romano, Patterson and Candès 2019), and for the
high ones a correction in steps for each user and for all (Gibbs and Candès 2021). Figures:
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
    RING,
    USER,
    WAYS,
    Templates,
    copy_into,
    entries_of,
    learn,
    move,
    predict,
    predict_open,
)
from schedd.predict.layout import LEVELS, P90, Ask, Floats, Prediction

__all__ = ["MOST_TEMPLATES", "Known", "RunTimes"]

MOST_TEMPLATES: Final = 1 << 20
"""Of them all, 150 MiB; beyond that, those give way that nobody learned from for longest."""
_FIRST_TEMPLATES: Final = 1 << 10
_FULL: Final = 0.25
"""A table that is fuller than this is doubled."""

_WINDOW: Final = 1000
"""Quantiles are calibrated by so many of the latest ends ..."""
_RENEWED: Final = 100
"""... anew after so many."""

_STEP_USER: Final = 0.3
_STEP_ALL: Final = 0.01
_MOST_SHIFT: Final = 6.0
_SHIFTED: Final = P90 - 1
"""The lowest of the quantiles that shifts correct: that of 80 %."""

_MASK: Final = (1 << 64) - 1


@lru_cache(maxsize=1 << 16)
def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _mixed(h: int, part: int) -> int:
    """A key with one more number in it."""
    h = ((h ^ part) * 0xBF58476D1CE4E5B9) & _MASK
    return h ^ (h >> 31)


def _keys(ask: Ask) -> Ints:
    """The keys of its templates, the most exact first: see ``KINDS`` and ``USER``."""
    user = _mixed(1, _digest(ask.user))
    alike = _mixed(user, ask.walltime)
    shaped = _mixed(alike, ask.procs)
    named = _mixed(shaped, _digest(ask.name)) or 1 if ask.name else 0
    every = (named, shaped, _mixed(alike, _MASK), user, _mixed(2, ask.walltime), 1)
    return np.array(every, np.uint64).view(np.int64)


def _table(size: int) -> Templates:
    return Templates(
        keys=np.zeros(size, np.int64),
        learned=np.zeros(size, np.int64),
        used=np.zeros(size, np.int64),
        shift=np.zeros(size, np.float64),
        ends=np.zeros((size, RING), np.float32),
    )


def _filled(learned: Ints) -> npt.NDArray[np.bool_]:
    """Which places of the rings hold an end."""
    found: npt.NDArray[np.bool_] = np.arange(RING) < learned[:, None]
    return found


def _packed(values: npt.NDArray[np.float32]) -> Ints:
    """Pairs of 32-bit numbers as 64-bit ones; an odd one out gets a zero beside it."""
    even = np.append(values, np.zeros(values.shape[0] % 2, np.float32))
    return even.view(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What a moment knew of some jobs: the templates that are theirs."""

    _tb: Templates
    _entries: Ints
    _keys: Ints
    _offset: Floats
    _shift: float

    def predict(self, jobs: Ints, walltimes: Ints, running: Ints, ran: Floats) -> Ints:
        """Seconds for the ``LEVELS``, (n, levels), of ``jobs``, (n,) positions among those that it knows.

        ``running``: the positions of those that run, who began last first; ``ran``: logarithms of what they
        ran over the walltime.
        """
        place = np.full(self._keys.shape[0], -1, np.int64)
        place[running] = np.arange(running.shape[0])
        return predict_open(
            self._tb, self._entries[jobs], self._keys[jobs], walltimes, self._keys[running], ran,
            place[jobs], LEVELS, self._offset, self._shift, _SHIFTED,
        )  # fmt: skip


class RunTimes:
    """What was learned of run times. It changes by ``ended`` and ``outlived`` alone; one thread at a time."""

    def __init__(self, most: int = MOST_TEMPLATES) -> None:
        """At most so many templates are kept, a power of two and at least 8."""
        if most < WAYS or most & (most - 1):
            raise ValueError(f"{most} templates: a power of two, at least {WAYS}")
        self._most = most
        self._tb = _table(min(most, _FIRST_TEMPLATES))
        self._filled = 0
        self._errors: Floats = np.zeros((_WINDOW, LEVELS.shape[0]))
        self._ends = 0
        self._offset: Floats = np.zeros(LEVELS.shape[0])
        self._shift = 0.0

    @property
    def ends(self) -> int:
        """How many ends were learned from."""
        return self._ends

    @property
    def nbytes(self) -> int:
        """The size of all arrays."""
        return sum(array.nbytes for array in (*self._tb, self._errors, self._offset))

    def predict(self, ask: Ask) -> Prediction:
        """How long such a job would run, were it submitted now."""
        keys = _keys(ask)
        raw, told = predict(self._tb, keys, LEVELS, self._offset, self._shift, _SHIFTED, ask.walltime)
        return Prediction(ask.walltime, told, raw, keys)

    def known(self, keys: Ints) -> Known:
        """What is known of jobs with these keys, (jobs, KINDS): a copy, to be asked later, by any thread."""
        entries, where = np.unique(entries_of(self._tb, keys), return_inverse=True)
        absent = int(entries.shape[0] > 0 and entries[0] < 0)
        columns = self._tb._asdict()
        own = Templates(**{name: array[entries[absent:]] for name, array in columns.items()})
        return Known(own, where.reshape(keys.shape) - absent, keys, self._offset.copy(), self._shift)

    def ended(self, prediction: Prediction, run: int, *, outlived: bool) -> None:
        """A job ended after ``run`` seconds for which this had been predicted at its submission.

        ``outlived``: that it ran beyond its P90 was told already.
        """
        run = min(max(run, 1), prediction.walltime)
        value = log(run / prediction.walltime)
        keys = prediction.keys
        self._ends += 1
        self._filled += learn(self._tb, keys, value, self._ends)
        self._errors[(self._ends - 1) % _WINDOW] = value - prediction.raw
        if self._ends % _RENEWED == 0:
            errors = np.sort(self._errors[: self._ends], axis=0)
            n = errors.shape[0]
            at = (n - 1) * LEVELS
            low, column = at.astype(np.int64), np.arange(LEVELS.shape[0])
            part = at - low
            self._offset = (1 - part) * errors[low, column] + part * errors[low + 1, column]
        if not outlived:
            self._note(int(keys[USER]), run > prediction.p90)
        size = self._tb.keys.shape[0]
        if self._filled > _FULL * size and size < self._most:
            self.grow()

    def outlived(self, prediction: Prediction) -> None:
        """A job runs longer than the P90 predicted at its submission; its end is learned later.

        Ends alone would tell of short jobs first: who waited for them would believe too little.
        """
        self._note(int(prediction.keys[USER]), True)

    def _note(self, user: int, missed: bool) -> None:
        by = float(missed) - (1.0 - float(LEVELS[P90]))
        self._shift += _STEP_ALL * by
        move(self._tb, user, _STEP_USER * by, _MOST_SHIFT, self._ends)

    def grow(self) -> None:
        """Make room for twice as many templates."""
        larger = _table(2 * self._tb.keys.shape[0])
        copy_into(self._tb, larger)
        self._tb = larger
        self._filled = int((larger.keys != 0).sum())

    def copy(self) -> "RunTimes":
        """One that goes on by itself."""
        new = RunTimes(self._most)
        new._tb = self._tb._replace(**{name: array.copy() for name, array in self._tb._asdict().items()})
        new._errors, new._offset = self._errors.copy(), self._offset.copy()
        new._filled, new._ends, new._shift = self._filled, self._ends, self._shift
        return new

    # ---- saved ----------------------------------------------------------------------------------

    def save(self) -> tuple[dict[str, Any], dict[str, Ints]]:
        """JSON-able values, and arrays by name; free entries of the table are left out.

        All arrays are of 64-bit integers, which hold the bits of floating-point numbers where need be.
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
        """What ``save`` saved. Raises KeyError, TypeError and ValueError for anything else."""
        new = cls(plain["most"])
        size = plain["size"]
        if not WAYS <= size <= new._most or size & (size - 1):
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
