"""The workloads and machines of D. Paul (2013), chapter 4, under this planner: jobs, machines, and what ran
where.

The traces are drawn by the ranges and rules that the thesis gives, since the enriched ones were not
published. All jobs of a batch are there at once, each asks for one core. Run times are for the slowest
machine, and are divided by the speed of others; the planner knows only walltimes on the slowest, as users of
PBS state them, and the speeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from research.experiments.alternative_runs import AlternativeRuns, make_alternative_search
from research.experiments.promises import NO_ADMISSION
from schedd.alternatives.node_economics import NodeEconomics
from schedd.alternatives.objective_weights import Objective
from schedd.alternatives.objectives import ObjectiveInput
from schedd.alternatives.pareto_front import pareto_front
from schedd.alternatives.pareto_search import ParetoSettings
from schedd.dialect.cost_limit import read_cost_limit
from schedd.engine import Engine, EngineSettings, EngineState
from schedd.policy.site import parse_economy, site_policy
from schedd.policy.slack import Slack
from schedd.replay.driver import run
from schedd.replay.prepared import Prepared, prepare
from schedd.replay.simulation import PLANNING_POLICY
from schedd.replay.site import ReplaySite
from schedd.replay.workload import Trace, TraceJob, select
from schedd.wire import JobQueued, NodeChanged, NodeFacts

_TYPES: Final = ("cpu", "io")
_LONGEST: Final = {"DAS-2": 20_000, "SHARCNET": 100_000}
_SLOWEST: Final = 9_726
_PATIENCE: Final = 3660 * 86_400  # the most that the settings allow


@dataclass(frozen=True, slots=True)
class Model:
    """A processor: million instructions a second of a core, watts, dollars a second."""

    name: str
    mips: int
    watts: float
    price: float

    @property
    def speed(self) -> float:
        """Without the slowest."""
        return self.mips / _SLOWEST


MODELS: Final = {
    "p4": Model("Pentium 4", 9_726, 92.1, 0.05),
    "x6800": Model("C2E X6800", 13_539, 75.0, 0.09),
    "qx6700": Model("C2E QX6700", 12_290, 95.0, 0.165),
    "i7-920": Model("i7 920", 20_575, 130.0, 0.10),
    "i7x": Model("i7 Extreme", 29_621, 130.0, 0.15),
    "i7-2600": Model("i7-2600", 32_075, 95.0, 0.18),
}


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs and machines; ``models`` of the machines in the order of their ids, ``kinds`` which jobs run
    there.
    """

    prepared: Prepared
    models: tuple[str, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Resource:
    """One machine of a table: when its last job ended, and for how long it was busy, both in seconds."""

    id: int
    model: str
    kind: str
    exec_s: float
    used_s: float


@dataclass(frozen=True, slots=True)
class ThesisBatchResult:
    """What came of a batch. ``energy`` as the thesis has it: busy seconds times watts, 130 W being 1.
    ``late`` jobs ended after their time limit, ``dear`` ones cost more than theirs. ``choices`` of other
    plans were made.
    """

    how: str
    resources: tuple[Resource, ...]
    energy: float
    cost: float
    late: int
    dear: int
    choices: int

    @property
    def makespan(self) -> float:
        """The last end of all."""
        return max(one.exec_s for one in self.resources)

    @property
    def utilisation(self) -> tuple[float, float, float]:
        """Mean, least and most of Used / Exec, over machines that had a job."""
        shares = [one.used_s / one.exec_s for one in self.resources if one.exec_s]
        return float(np.mean(shares)), min(shares), max(shares)


def machines(models: Sequence[str], kinds: Sequence[str]) -> ReplaySite:
    """One core each, of these models, each for jobs of one kind (empty: of all)."""
    return ReplaySite(
        tuple(
            NodeFacts(
                name=f"r{i}",
                cpus=1,
                properties=(model, *([kind] if kind else [])),
                speed=MODELS[model].speed,
            )
            for i, (model, kind) in enumerate(zip(models, kinds, strict=True), 1)
        ),
        shaped=True,
        paced=True,
    )


def batch(
    workload: int,
    jobs: int,
    models: Sequence[str],
    kinds: Sequence[str],
    *,
    share: float = 0.5,
    seed: int = 1,
) -> Batch:
    """Workload 1 to 8 of the thesis: odd ones are DAS-2, even ones SHARCNET; from 3 on in turns with types,
    from 5 on with predecessors. ``share`` of the jobs are of the first type. Not given there, and drawn here:
    run times log-uniform in the trace's range; time limits uniform up to twice what all walltimes take on all
    machines; limits of cost 0.6 to 1.4 times what the job costs on the machine of the median price for its
    work.
    """
    if not 1 <= workload <= 8:
        raise ValueError(f"workload {workload}: there are 1 to 8")
    random = np.random.default_rng((workload, seed))
    trace = "DAS-2" if workload % 2 else "SHARCNET"
    typed, chained = workload in (3, 4, 7, 8), workload >= 5
    run_times = np.exp(random.uniform(0, np.log(_LONGEST[trace]), jobs)).astype(np.int64) + 1
    first = random.random(jobs) < share
    horizon = 2 * int(run_times.sum()) // len(models)
    due = run_times + (random.random(jobs) * horizon).astype(np.int64)
    price = float(np.median([MODELS[one].price / MODELS[one].speed for one in models]))
    limits = run_times * price * random.uniform(0.6, 1.4, jobs)
    behind = random.random(jobs) < 0.5
    back = np.clip(np.rint(random.normal(50, np.sqrt(20), jobs)), 1, 100).astype(np.int64)
    traced = []
    for i in range(jobs):
        kind = _TYPES[0 if first[i] else 1] if typed else ""
        head = i + 1 - int(back[i])
        traced.append(
            TraceJob(
                id=i + 1,
                submit=0,
                run=int(run_times[i]),
                procs=1,
                estimate=int(run_times[i]),
                user="u1",
                nodes_spec=f"1:ppn=1:{kind}" if kind else "1:ppn=1",
                deadline=int(due[i]),
                after=head if chained and behind[i] and head >= 1 else None,
                cost_limit=float(limits[i]),
            )
        )
    site = machines(models, kinds)
    chosen = select(Trace(f"workload {workload} ({trace})", tuple(traced)), procs=site.procs)
    return Batch(prepare(chosen, site), tuple(models), tuple(kinds))


def _site(models: Sequence[str]) -> dict[str, Any]:
    """Watts and prices per second of walltime, as the planner needs them; a fast machine uses only a part of
    the walltime.
    """
    used = {name: MODELS[name] for name in models}
    return {
        "power": {name: {"idle": 0.0, "core": one.watts / one.speed} for name, one in used.items()},
        "prices": [
            {"core_hour": 3600 * one.price / one.speed, "nodes": [name]} for name, one in used.items()
        ],
        "currency": "$",
    }


def _facts(site: dict[str, Any], state: EngineState) -> ObjectiveInput:
    plan = state.plan
    jobs = plan.jobs
    end = int((jobs.starts + jobs.durations).max(initial=state.now + 1))
    books = NodeEconomics.from_economy(parse_economy(site), plan.node_names, state.node_facts, state.now, end)
    limits = np.full(jobs.size, np.inf)
    for record in state.records.values():
        limit = read_cost_limit(record.facts.resources)
        if record.slot >= 0 and limit is not None:
            limits[record.slot] = limit
    return ObjectiveInput(state.columns, books, limits)


def _settings(site: dict[str, Any], *, thrifty: bool) -> EngineSettings:
    slack = Slack.parse("off")
    whole = {**site, **NO_ADMISSION} | ({"thrift": {"prefer": True}} if thrifty else {})
    return EngineSettings(site=site_policy(whole), slack=str(slack), search_patience=_PATIENCE)


def ran(
    what: Batch,
    how: str,
    weights: dict[Objective, float] | None = None,
    *,
    thrifty: bool = False,
    every: int = 1,
    evaluations: int = 0,
) -> ThesisBatchResult:
    """Run a batch to its end. With ``weights``, alternatives are sought after every ``every`` seconds, with
    ``evaluations`` plans each time; ``thrifty``: jobs prefer machines that need less energy for their work.
    """
    site = _site(what.models)
    improver = None
    if weights is not None:
        improver = AlternativeRuns(weights, lambda state: _facts(site, state), every, evaluations)
    found = run(what.prepared, PLANNING_POLICY, settings=_settings(site, thrifty=thrifty), improver=improver)
    jobs = what.prepared.jobs
    busy = np.zeros(len(what.models))
    last = np.zeros(len(what.models))
    cost = np.zeros(len(jobs))
    for i, names in enumerate(found.where):
        at = int(names[0][1:]) - 1
        seconds = float(found.end[i] - found.start[i])
        busy[at] += seconds
        last[at] = max(last[at], float(found.end[i]))
        cost[i] = seconds * MODELS[what.models[at]].price
    watts = np.array([MODELS[model].watts for model in what.models])
    return ThesisBatchResult(
        how,
        tuple(
            Resource(i + 1, what.models[i], what.kinds[i], float(last[i]), float(busy[i]))
            for i in range(len(what.models))
        ),
        float((busy * watts).sum()) / 130.0,
        float(cost.sum()),
        sum(int(found.end[i]) > (job.deadline or 0) for i, job in enumerate(jobs)),
        sum(float(cost[i]) > (job.cost_limit or np.inf) for i, job in enumerate(jobs)),
        len(improver.chosen) if improver is not None else 0,
    )


def front_of(
    what: Batch, aims: Sequence[Objective], evaluations: int, most: int, seed: int = 1
) -> tuple[tuple[float, ...], list[tuple[float, ...]]]:
    """The live plan of a batch after all its jobs have come, and its Pareto set of alternatives by ``aims``;
    each as its values.
    """
    site = _site(what.models)
    now = what.prepared.offset  # all are submitted at the log's second 0
    engine = Engine(_settings(site, thrifty=False), now)
    engine.handle([NodeChanged(id=node.name, time=now, node=node) for node in what.prepared.site.nodes], now)
    jobs = range(len(what.prepared.jobs))
    engine.handle([JobQueued(id=f"q{i}", time=now, job=what.prepared.facts(i)) for i in jobs], now)
    while engine.state.plan.freed:
        engine.handle((), now)
    how = ParetoSettings(seconds=None, evaluations=evaluations, seed=seed, most=most, population=48)
    weights = dict.fromkeys(aims, 1.0)
    engine_run, _, live = make_alternative_search(engine.state, _facts(site, engine.state), weights, how)
    plans = [one.values for one in engine_run.run().plans]
    both = np.array([live, *plans])
    best = pareto_front(both)
    return tuple(live.tolist()), [plans[i - 1] for i in best.tolist() if i > 0]
