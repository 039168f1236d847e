"""Order of jobs in a table, by a column of the reader's choice.

A cluster has tens of thousands of jobs, and each page asks for their order: the sort keys are columns of
numbers, not tuples of each job.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import numpy as np

from schedd.array_ids import submission_order
from schedd.engine import JobRecord, Phase, PlanSnapshot
from schedd.model import FOREVER
from schedd.plan.columns import Ints
from schedd.start_sentence import FORECAST_FRESH_S, FRESH_SHARE

Sort = Literal["start", "expected", "promised", "job", "user", "queue", "walltime", "submitted"]
JobAndStart = tuple[JobRecord, int]
"""A job and its planned or actual start (-1: none)."""
_Keys = tuple[Ints, ...]


def order_jobs(
    published: PlanSnapshot, rows: Sequence[JobAndStart], sort: Sort, *, down: bool
) -> list[JobAndStart]:
    """Return the rows by ``sort``, and in order of submission where they are equal in it."""
    submissions = [submission_order(record.id) for record, _ in rows]
    keys = _KEYS[sort](published, rows)
    keys += tuple(np.array([one[part] for one in submissions], np.int64) for part in (0, 1))
    places = np.lexsort(keys[::-1])
    equal = np.logical_and.reduce([key[places[1:]] == key[places[:-1]] for key in keys])
    if equal.any():  # jobs of different servers have equal numbers
        _, of_ids = np.unique([record.id for record, _ in rows], return_inverse=True)
        places = np.lexsort((of_ids, *keys[::-1]))
    return [rows[place] for place in (places[::-1] if down else places).tolist()]


def _start_keys(_: PlanSnapshot, rows: Sequence[JobAndStart]) -> _Keys:
    starts = np.array([start for _, start in rows], np.int64)
    return (np.where(starts >= 0, starts, FOREVER),)


def _promise_keys(published: PlanSnapshot, rows: Sequence[JobAndStart]) -> _Keys:
    return (_of_jobs(published.promise, rows, FOREVER),)


def _expected_keys(published: PlanSnapshot, rows: Sequence[JobAndStart]) -> _Keys:
    """Return the starts of the headlines, and their P90: the likely start, or the displayed one if no
    forecast holds. For one job: `job_expected_start`, `job_displayed_start`, `is_forecast_fresh`.
    """
    now, forecasts = published.as_of, published.forecasts
    (starts,) = _start_keys(published, rows)
    phases = [record.phase for record, _ in rows]
    queued = np.array([phase in (Phase.BLOCKED, Phase.WAITING) for phase in phases], np.bool_)
    before = _of_jobs(published.published_start, rows, -1)
    displayed = np.where(queued & (starts > now) & (before > now) & (starts < FOREVER), before, starts)
    for i, phase in enumerate(phases):
        if phase is Phase.RUNNING and starts[i] < FOREVER:
            displayed[i] = rows[i][0].begin_from(int(displayed[i]))
    expected = _of_jobs(published.expected, rows, -1)
    by = np.minimum(
        _of_jobs(published.expected_by, rows, FOREVER), _of_jobs(published.promise, rows, FOREVER)
    )
    near_as_of, near_until = forecasts.near
    as_of = np.where(expected <= near_until, max(forecasts.as_of, near_as_of), forecasts.as_of)
    fresh = now - as_of <= np.maximum(FORECAST_FRESH_S, (expected - as_of) // FRESH_SHARE)
    fresh &= np.maximum(expected, by) > now
    fresh &= np.array([phase is Phase.WAITING for phase in phases], np.bool_)
    fresh &= (expected >= 0) & (displayed > now) & (starts < FOREVER)
    return np.where(fresh, expected, displayed), np.where(fresh, by, displayed)


def _of_jobs(column: Ints, rows: Sequence[JobAndStart], otherwise: int) -> Ints:
    """Return the values of a column by slot; ``otherwise`` for jobs without a slot."""
    slots = np.array([record.slot for record, _ in rows], np.int64)
    found: Ints = np.where(slots >= 0, column[np.maximum(slots, 0)], otherwise) if column.size else slots
    return found


def _text_keys(texts: Sequence[str]) -> _Keys:
    number = {text: i for i, text in enumerate(sorted(set(texts)))}
    return (np.array([number[text] for text in texts], np.int64),)


_KEYS: Final[Mapping[Sort, Callable[[PlanSnapshot, Sequence[JobAndStart]], _Keys]]] = {
    "start": _start_keys,
    "expected": _expected_keys,
    "promised": _promise_keys,
    "job": lambda _published, _rows: (),
    "user": lambda _, rows: _text_keys([record.facts.owner for record, _ in rows]),
    "queue": lambda _, rows: _text_keys([record.facts.queue for record, _ in rows]),
    "walltime": lambda _, rows: (np.array([record.understood.walltime for record, _ in rows], np.int64),),
    "submitted": lambda _, rows: (np.array([record.facts.submitted for record, _ in rows], np.int64),),
}
