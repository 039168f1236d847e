"""Ranks of jobs by the formula in force, and jobs that wait because of its threshold."""

from collections.abc import Sequence
from functools import partial
from math import isnan
from typing import Final

import numpy as np

from schedd.engine.component.hook_values import RunTimeSource
from schedd.engine.component.job_hooks import job_labels, run_time_predictions
from schedd.engine.component.ranking_hooks import label_points, owner_shares, present_shares
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.place.placement import plan_job, replan
from schedd.engine.rank.ranking import set_rank
from schedd.features.formula.state import (
    FormulaInForce,
    formula_faults,
    formula_in_force,
    formula_state,
    job_row,
    job_rows,
)
from schedd.features.formula.terms import Circumstances, cluster_totals
from schedd.model import FOREVER, WaitingFor
from schedd.plan.backfill import EXPECTED_QUANTILE
from schedd.plan.columns import PLANNED
from schedd.policy.expressions import Columns, Floats
from schedd.policy.protocol import Breakdown, Term
from schedd.policy.ranks import encode_rank, encode_ranks
from schedd.wire import ServerFacts

WAIT_KIND: Final = "formula"  # of `WaitingFor`
_EXAMINED_AT_ONCE: Final = 500
_MOVED_AT_ONCE: Final = 20
"""Jobs that are planned or removed in one batch because their value passed the threshold."""


# ---- values ---------------------------------------------------------------------------------------


def ranks(state: EngineState, records: Sequence[JobRecord]) -> list[int] | None:
    """Return the ranks of these jobs; None: no formula is in force."""
    formula = formula_in_force(state)
    if formula is None:
        return None
    if len(records) == 1:  # of an arrival
        return [encode_rank(_value(state, formula, records[0]))]
    found: list[int] = encode_ranks(_values(state, formula, records)).tolist()
    return found


def breakdown(state: EngineState, record: JobRecord) -> Breakdown | None:
    """Return the value of a job with the share of each addend, and the values of the terms."""
    formula = formula_in_force(state)
    if formula is None:
        return None
    return compute_breakdown(formula, _job_columns(state, formula, record))


def compute_breakdown(formula: FormulaInForce, columns: Columns) -> Breakdown:
    """Return the breakdown for the first job of the columns."""
    expression = formula.terms.expression
    value = float(expression.values(columns)[0])
    shares = [(text, float(points[0])) for text, points in expression.shares(columns)]
    terms = tuple(Term(text, 1.0, points, points) for text, points in shares if not np.isnan(points))
    values = tuple((name, float(np.ravel(columns.numbers[name])[0])) for name in sorted(expression.names))
    texts = tuple((name, columns.texts[name][0]) for name in sorted(expression.text_names))
    failed = bool(np.isnan(value))
    return Breakdown(
        total=0.0 if failed else value,
        terms=() if failed else terms,
        formula=expression.text,
        formula_source=formula.name,
        values=values,
        texts=texts,
        threshold=formula.threshold,
        failing=expression.failing_part(columns) if failed else "",
    )


def _values(state: EngineState, formula: FormulaInForce, records: Sequence[JobRecord]) -> Floats:
    """The value of each job; 0 where the formula has none."""
    found = formula.terms.expression.values(_columns(state, formula, records, circumstances(state)))
    return np.where(np.isnan(found), 0.0, found)


def _value(state: EngineState, formula: FormulaInForce, record: JobRecord) -> float:
    """The same for one job."""
    found = formula.terms.expression.single_value(_job_columns(state, formula, record))
    return 0.0 if isnan(found) else found


def _job_columns(state: EngineState, formula: FormulaInForce, record: JobRecord) -> Columns:
    terms, predicted = formula.terms, None
    if "predicted_run_time" in terms.expression.names:
        source = run_time_predictions(state)
        predicted = _predicted(source, record) if source is not None else None
    return terms.single_columns(job_row(state, terms, record), circumstances(state), predicted)


def _columns(
    state: EngineState, formula: FormulaInForce, records: Sequence[JobRecord], around: Circumstances
) -> Columns:
    terms = formula.terms
    rows = job_rows(state, terms, records)
    predicted: list[float | None] = []
    if "predicted_run_time" in terms.expression.names:
        source = run_time_predictions(state)
        predicted = [_predicted(source, record) for record in records] if source is not None else []
    return terms.columns(rows, around, predicted)


def _predicted(source: RunTimeSource, record: JobRecord) -> float | None:
    found = source(record.id)
    return None if found is None else min(found.quantiles[EXPECTED_QUANTILE], record.understood.walltime)


def circumstances(state: EngineState) -> Circumstances:
    """Return the present inputs of terms that do not come from the job.

    The fair shares date from the last ranking. Questions do not renew them, because a replay of the same
    events without the questions must lead to the same ranks.
    """
    part = formula_state(state)
    if part.totals is None:
        part.totals = cluster_totals(list(state.node_facts.values()))
    return Circumstances(
        now=state.now,
        types=state.limits.types,
        shared=state.limits.shared,
        queues=state.queues,
        server=state.server,
        weights=state.site.weights,
        labels=partial(job_labels, state),
        points=partial(label_points, state),
        shares=owner_shares(state),
        totals=part.totals,
    )


# ---- the threshold --------------------------------------------------------------------------------


def wait_for_threshold(state: EngineState, record: JobRecord) -> WaitingFor | None:
    """Return why a job waits if its value is not above the threshold; None: it need not wait."""
    formula = formula_in_force(state)
    if formula is None or formula.threshold is None:
        return None
    return threshold_wait(formula, _value(state, formula, record))


def threshold_wait(formula: FormulaInForce, value: float) -> WaitingFor | None:
    """Return what a job with this value waits for; None: it may be planned."""
    if formula.threshold is None or value > formula.threshold:
        return None
    return WaitingFor(
        WAIT_KIND,
        f"its value by {formula.name} to be above the threshold {formula.threshold:g} (it is {value:.6g})",
    )


def next_examination(state: EngineState) -> int:
    """When values are next compared with the threshold; FOREVER: never."""
    return _next_examination(state, formula_in_force(state))


def _next_examination(state: EngineState, formula: FormulaInForce | None) -> int:
    part = formula_state(state)
    if part.left:
        return state.now
    if formula is None or formula.threshold is None:
        return state.now if part.had_threshold else FOREVER
    return part.examined + state.settings.priority_every


def follow_time(state: EngineState, event: str) -> None:
    """Renew the fair shares, and compare values with the threshold, each when it is due."""
    formula = formula_in_force(state)
    if formula is not None and formula.terms.needs_shares:
        shares = owner_shares(state)
        if shares is not None and shares.at <= state.now - state.settings.priority_every:
            present_shares(state, keep=True)
    if _next_examination(state, formula) <= state.now:
        _examine_threshold(state, event)


def _examine_threshold(state: EngineState, event: str) -> None:
    """Plan the jobs with a value above the threshold, and remove all others from the plan."""
    part, formula = formula_state(state), formula_in_force(state)
    if not part.left:
        part.examined = state.now
        part.had_threshold = formula is not None and formula.threshold is not None
        part.left = dict.fromkeys(record.id for record in state.records.values() if _may_change(record))
    moved = 0
    while part.left and moved < _MOVED_AT_ONCE:
        names = [job for job, _ in zip(part.left, range(_EXAMINED_AT_ONCE), strict=False)]
        records = [state.records[job] for job in names if job in state.records]
        records = [record for record in records if _may_change(record)]
        waits = _threshold_waits(state, formula, records)
        for record, wait in zip(records, waits, strict=True):
            moved += _follow_threshold(state, record, wait, event)
            part.left.pop(record.id, None)
            if moved == _MOVED_AT_ONCE:
                return
        for job in names:
            part.left.pop(job, None)


def _may_change(record: JobRecord) -> bool:
    waits = isinstance(record.answer, WaitingFor) and record.answer.kind == WAIT_KIND
    return record.slot >= 0 and (record.phase is Phase.WAITING or (record.phase is Phase.BLOCKED and waits))


def _threshold_waits(
    state: EngineState, formula: FormulaInForce | None, records: Sequence[JobRecord]
) -> list[WaitingFor | None]:
    if formula is None or formula.threshold is None or not records:
        return [None] * len(records)
    return [threshold_wait(formula, value) for value in _values(state, formula, records).tolist()]


def _follow_threshold(state: EngineState, record: JobRecord, wait: WaitingFor | None, event: str) -> bool:
    """Plan the job or take it out of the plan, if its value passed the threshold; returns whether it did."""
    blocked = record.phase is Phase.BLOCKED
    if blocked and wait is None:
        set_rank(state, record)  # it was not ranked while it waited
        plan_job(state, record, event, Cause.RELEASED, "its value by the formula is above the threshold")
        return True
    if not blocked and wait is not None:
        replan(state, record, event, Cause.ADMIN, "its value by the formula is not above the threshold")
        return state.plan.state(record.slot) != PLANNED
    return False


# ---- what changed ---------------------------------------------------------------------------------


def follow_server(state: EngineState, before: ServerFacts, event: str) -> None:
    """Rank all jobs again if the server's formula or threshold changed; report what cannot be used."""
    if before.attributes != state.server.attributes:
        ranking = state.ranking
        ranking.next_at, ranking.has_effect, ranking.rerank_all = state.now, True, True
        follow_site(state)
    elif before.resources != state.server.resources:
        _report_faults(state, event)


def note_formula(state: EngineState) -> None:
    """Note whether a formula of the site or of the server is in force."""
    formula_state(state).in_force = formula_in_force(state) is not None


def follow_site(state: EngineState) -> None:
    """Compare all jobs with the threshold again, since it or the formula may be another."""
    note_formula(state)
    part = formula_state(state)
    part.left = {}
    part.examined = state.now - state.settings.priority_every
    _report_faults(state, state.at_event)


def is_faulty(state: EngineState, fault: str) -> bool:
    """Whether this fault of the formula is still there."""
    return fault in formula_faults(state)


def _report_faults(state: EngineState, event: str) -> None:
    for fault in formula_faults(state):
        state.alert(event, "formula", fault, fault)


def forget_nodes(state: EngineState, _: object = None) -> None:
    """Nodes were changed: the totals of the cluster are computed again."""
    formula_state(state).totals = None


def forget_job(state: EngineState) -> None:
    """Drop rows of jobs that are gone."""
    rows = formula_state(state).rows
    for job in [job for job in rows if job not in state.records]:
        del rows[job]
