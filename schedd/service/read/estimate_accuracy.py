"""Accuracy of expected starts: by period, queue, user, kind of estimate and lead time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schedd.predict import (
    ESTIMATE_KINDS,
    NO_HALTS,
    AccuracyFigures,
    EstimateKind,
    EstimateOutcomes,
    Halts,
    measure_accuracy,
)
from schedd.predict.accuracy import NOT_YET
from schedd.store import Store
from schedd.store.decision_records import LEADS
from schedd.store.expected_starts import MAX_ROWS
from schedd.store.records import ExpectedStartRecord

"""Lower bounds of the classes of lead time, in seconds."""


@dataclass(frozen=True, slots=True)
class Horizon:
    """Accuracy of estimates of one ``kind`` with a lead time of at least ``lead`` seconds (None: all)."""

    kind: EstimateKind
    lead: int | None
    figures: AccuracyFigures
    halted: int = 0
    """Further estimates, which do not count: starts were halted during their wait."""


@dataclass(frozen=True, slots=True)
class EstimateAccuracy:
    """Accuracy in a period, by kind; for estimates at submission also by lead time; and broken promises."""

    horizons: tuple[Horizon, ...]
    breaches: int
    since: int | None = None
    """Time of the oldest estimate, if the number of estimates was limited; None: all are included."""


def estimate_accuracy(
    store: Store,
    cluster: int,
    since: int,
    until: int,
    now: int,
    halts: Halts = NO_HALTS,
    *,
    queue: str = "",
    user: str = "",
) -> EstimateAccuracy:
    """Return the accuracy of the estimates published in ``[since, until)``, at most the newest 100,000.

    Those with a wait that overlaps one of the ``halts`` of starts do not count. Raises StoreError.
    """
    rows = store.expected_starts(cluster, since, until, queue=queue, user=user, kinds=ESTIMATE_KINDS)
    decided = [row for row in rows if _is_decided(row, now)]
    known = [row for row in decided if not _is_halted(row, halts)]
    found = []
    for kind in ESTIMATE_KINDS:
        outcomes = _outcomes([row for row in known if row.kind == kind])
        halted = sum(row.kind == kind for row in decided) - outcomes.at.shape[0]
        found.append(Horizon(kind, None, measure_accuracy(outcomes), halted))
        if kind != "submission":
            continue
        place = np.searchsorted(np.array(LEADS), outcomes.p50 - outcomes.at, side="right") - 1
        found += [
            Horizon(kind, lead, measure_accuracy(outcomes.select(place == i))) for i, lead in enumerate(LEADS)
        ]
    broken = store.count_broken_promises(cluster, since, until, queue=queue, user=user)
    return EstimateAccuracy(tuple(found), broken, rows[-1].time if len(rows) >= MAX_ROWS else None)


def _is_decided(row: ExpectedStartRecord, now: int) -> bool:
    """Whether the estimate counts: its P90 has passed, and its job was not deleted before. An early start
    does not count sooner: late ones of the same age could not, and nearly all would seem to be in time.
    """
    return row.latest < now and (row.actual is not None or row.ended is None or row.latest < row.ended)


def _is_halted(row: ExpectedStartRecord, halts: Halts) -> bool:
    until = row.latest if row.actual is None else min(row.latest, row.actual)
    return halts.affect(row.time, row.latest, until)


def _outcomes(rows: Sequence[ExpectedStartRecord]) -> EstimateOutcomes:
    columns = [
        (one.time, one.start, one.latest, one.planned, one.actual if one.actual is not None else NOT_YET)
        for one in rows
    ]
    table = np.array(columns, np.int64).reshape(-1, 5)
    return EstimateOutcomes(*(table[:, i] for i in range(5)))
