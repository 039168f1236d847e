"""Run time from the throughput that the owner or the site has measured, on the planned nodes.

Netto, *Adaptive co-allocation of distributed resources* (2009), chapter 5: units of work divided by the
throughput of the slowest node. A move to nodes of another kind changes the prediction.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from schedd.dialect.throughput import Work, read_work
from schedd.dialect.units import LONGEST_TIME
from schedd.engine.facts.records import JobRecord
from schedd.plan.plan import Plan
from schedd.predict import LEVELS, Prediction

RatedNode = tuple[str, Iterable[str], float]  # a node's name, its properties, and its speed
AppRates = Mapping[str, Mapping[str, float]]
"""By application, its units a second by node or property; ``*``: on all others, of speed 1."""
_SPREAD: Final = ((0.02, 0.1, 0.5, 0.9, 0.98), (0.8, 0.9, 1.0, 1.1, 1.2))
"""Probabilities, and run times over the predicted one: the thesis found mean errors of 7 to 9 %."""


def rate_on(work: Work, node: RatedNode, apps: AppRates) -> float | None:
    """Return the units per second on a node: the largest rate for its name or properties, else ``plain rate *
    speed``; None if unknown. The owner's rates precede the site's.
    """
    name, properties, speed = node
    site = apps.get(work.app, {})
    for rates in (dict(work.rates), site):
        found = [rates[one] for one in (name, *properties) if one in rates]
        if found:
            return max(found)
        if rates is not site and work.plain:
            return work.plain * speed
    plain = site.get("*")
    return plain * speed if plain is not None else None


def run_time(work: Work, nodes: Iterable[RatedNode], apps: AppRates) -> int | None:
    """Return the run time on these nodes, in seconds: all processes run at once, and the slowest ends last.
    None if a node's rate is unknown, or without nodes.
    """
    rates = [rate_on(work, node, apps) for node in nodes]
    known = [rate for rate in rates if rate is not None]
    if not known or len(known) < len(rates):
        return None
    return max(1, math.ceil(min(LONGEST_TIME, work.units / min(known))))


def rated_nodes(plan: Plan, names: Iterable[str]) -> list[RatedNode]:
    """Return those of the plan's nodes that have these names."""
    nodes = (plan.nodes[name] for name in names if name in plan.nodes)
    return [(one.name, one.features, one.speed) for one in nodes]


def measured_run_times(records: Iterable[JobRecord | None], plan: Plan, apps: AppRates) -> dict[str, int]:
    """Return run times by job, in seconds, from their throughput on the nodes where they run or are
    planned.
    """
    found = {}
    for record in records:
        work = read_work(record.facts.resources) if record is not None else None
        if record is None or work is None or record.slot < 0 or plan.start(record.slot) < 0:
            continue
        names = {plan.node_names[take.row] for take in plan.takes(record.slot)}
        seconds = run_time(work, rated_nodes(plan, names), apps)
        if seconds is not None:
            found[record.id] = seconds
    return found


def with_measured_run_times(
    predictions: Mapping[str, Prediction], seconds: Mapping[str, int]
) -> dict[str, Prediction]:
    """Return the predictions, with those of jobs of known throughput replaced."""
    found = dict(predictions)
    for job, run in seconds.items():
        if (known := found.get(job)) is not None:
            found[job] = with_measured_run_time(known, run)
    return found


def with_measured_run_time(known: Prediction, seconds: int) -> Prediction:
    """Return the prediction of a job that runs for ``seconds`` by its throughput."""
    quantiles = np.clip(np.rint(seconds * np.interp(LEVELS, *_SPREAD)), 1, known.walltime).astype(np.int64)
    return replace(known, quantiles=quantiles, elapsed=0)
