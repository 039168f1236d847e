"""Warm-up: compiles every kernel before the daemon is ready, by planning a small artificial cluster."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import replace

import structlog

from schedd.engine import Engine, EngineSettings, movable_slots, publish_snapshot
from schedd.feature_list import feature_modules
from schedd.optimize import PlanSearch, SearchSettings
from schedd.plan.criteria import DEFAULT_WEIGHTS
from schedd.plan.evaluate import CriterionWeights
from schedd.plan.kernel_status import count_compiled
from schedd.plan.latest_starts import latest_starts
from schedd.plan.placements import current_allocation
from schedd.plan.rebase import rebase
from schedd.plan.trials import startable
from schedd.policy.feature_settings import site_defaults
from schedd.policy.site import site_policy
from schedd.service.questions.plan_fork import fork_plan
from schedd.service.questions.summaries import evaluate_criteria
from schedd.supervision import run_in_thread
from schedd.wire import (
    Event,
    JobAltered,
    JobDeleted,
    JobEnded,
    JobFacts,
    JobQueued,
    JobStarted,
    NodeChanged,
    NodeFacts,
    Reserve,
    ShareFacts,
    Unreserve,
)

_log = structlog.get_logger(__name__)

_T = 1_000_000_000
_GIB = 1 << 20


def _job(number: int, **resources: str) -> JobFacts:
    return JobFacts(id=str(number), owner="warm", queue="warm", submitted=_T, resources=resources)


def _queued(number: int, **resources: str) -> JobQueued:
    return JobQueued(id=f"warm-{number}", time=_T, job=_job(number, **resources))


def _node(name: str, state: str = "up", cpus: int = 4) -> NodeChanged:
    facts = NodeFacts(name=name, cpus=cpus, mem=8 * _GIB, state=state)  # type: ignore[arg-type]
    return NodeChanged(id=f"warm-{name}", time=_T, node=facts)


@contextmanager
def log_compilation(every_s: float = 10.0) -> Iterator[None]:
    """Log the progress of compilation periodically during the block; nothing if it is quick."""
    ended = threading.Event()
    begun = time.monotonic()

    def log_progress() -> None:
        while not ended.wait(every_s):
            done, of = count_compiled()
            _log.info("kernels are compiled", done=done, of=of, seconds=round(time.monotonic() - begun))

    logger = run_in_thread("compilation log", log_progress)
    try:
        yield
    finally:
        ended.set()
        wait((logger,))


def warm_up() -> None:
    """Call everything that the engine calls, once. Quick if the compiled kernels are cached on disk."""
    _without_policy()
    _with_policy()


def _with_policy() -> None:
    """Plan with limits, priorities and an access list."""
    window = {"first": "2001-09-09T02:00:00", "last": "2001-09-09T03:00:00", "rule": "FREQ=DAILY"}
    site = {
        "priority": {"wish": 1.0},
        "limits": [{"amount": 6, "what": "cpus", "who": "user", **window}, {"amount": 3, "who": "user"}],
    }
    engine = Engine(EngineSettings(slack="1000000", site=site_policy(site)), _T)
    staff = Reserve(id="r", time=_T, name="r", nodes=("b",), start=_T + 900, end=_T + 1800, groups=("x",))
    _run(
        engine,
        [
            (0, [_node("a"), _node("b")]),
            (0, [_queued(i, nodes="1:ppn=4", walltime=str(600 + i)) for i in range(6)]),
            (0, [_queued(20, nodes="2:ppn=1", walltime="60"), _queued(21, procs="3", walltime="60")]),
            (
                1,
                [
                    JobAltered(id=f"p{i}", time=_T, job=replace(_queued_job(i), priority=9))
                    for i in (4, 20, 21)
                ],
            ),
            (2, [staff]),
            (9, [JobDeleted(id="d", time=_T, job_id="0")]),
            (300, []),
        ],
    )


def _queued_job(number: int) -> JobFacts:
    if number < 20:
        return _job(number, nodes="1:ppn=4", walltime=str(600 + number))
    return _job(number, **({"nodes": "2:ppn=1"} if number == 20 else {"procs": "3"}), walltime="60")


def _run(engine: Engine, steps: list[tuple[int, list[Event]]]) -> None:
    for after, events in steps:
        engine.handle(events, _T + after)
        for _ in range(20):
            if engine.next_wake != _T + after:
                break
            engine.handle([], _T + after)


def _without_policy() -> None:
    engine = Engine(EngineSettings(node_grace=60).with_changes(**site_defaults()), _T)
    steps: list[tuple[int, list[Event]]] = [
        (0, [_node("a"), _node("b"), _node("c", cpus=8)]),
        (0, [_queued(i, nodes="1:ppn=4", walltime="3600", mem="1gb") for i in range(3)]),
        (0, [_queued(10 + i, nodes="2:ppn=2+1:ppn=1", walltime="600", mem="2gb") for i in range(40)]),
        (0, [_queued(60 + i, procs="7", walltime="900") for i in range(6)]),
        (0, [_queued(70, nodes="1:ppn=1", naccesspolicy="singlejob", walltime="60")]),
        (0, [_queued(80 + i, nodes="1:ppn=1", walltime=str(60 << i)) for i in range(12)]),
        (1, [JobStarted(id="s", time=_T, job_id="0", shares=(ShareFacts("a", 4),))]),
        (2, [JobAltered(id="l", time=_T, job=_job(11, nodes="3:ppn=2", walltime="300"))]),
        (2, [Reserve(id="r", time=_T, name="r", nodes=("b",), start=_T + 900, end=_T + 1800)]),
        (9, [JobEnded(id="e", time=_T + 9, job_id="0"), JobDeleted(id="d", time=_T, job_id="61")]),
        (20, [_node("c", "down", 8)]),
        (90, []),
        (99, [Unreserve(id="u", time=_T, name="r"), _node("c", "up", 6)]),
        (120, []),
    ]
    _run(engine, steps)
    copy = fork_plan(engine, publish_snapshot(engine.state))
    copy.what_if(_job(1000, nodes="1:ppn=2", walltime="60"), _T + 200)
    evaluate_criteria(copy)
    state = engine.state
    for module in feature_modules("warmup"):
        module.warm_up(state)
    latest = latest_starts(state.plan, state.bound, state.columns, state.now)
    startable(state.plan, movable_slots(state), state.now)
    for newcomers in (None, movable_slots(state)):
        settings = SearchSettings(moves=50)
        PlanSearch(state.plan.fork(), state.columns, latest, state.now, settings, newcomers=newcomers).run()
    plan = state.plan.fork()
    two = plan.planned()[:2]
    plan.displace(two, latest[two], state.now)
    plan.first_startable(two, 0, state.now)
    plan.set_pools(int(plan.planned()[0]), {}, state.now)
    sooner = [
        replace(current_allocation(plan, slot), start=plan.start(slot) - 1)
        for slot in movable_slots(state).tolist()
    ]
    rebase(plan, sooner, state.columns, latest, state.now, CriterionWeights(DEFAULT_WEIGHTS))
