"""What predictions cost: run times learned and told, job by job, and the starts of a whole queue."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from statistics import median
from time import perf_counter, process_time

import numpy as np
from rich.table import Table

from schedd.bench.grow import Grower
from schedd.bench.workload import Profile
from schedd.predict import Ask, Learner, decoded, waiting

__all__ = ["PredictResult", "bench_predict", "table_of", "to_json"]

_ROUNDS = 5
_HABITS = 40
_AT_ONCE = 100
"""Jobs that run at the same time, about."""


@dataclass(frozen=True, slots=True)
class PredictResult:
    """``ended`` jobs of ``users`` were predicted at submission and learned from: µs of processor for each
    job, and MiB of all that is kept of them. The starts of ``jobs`` waiting jobs on ``nodes`` nodes, with
    memory, by predicted run times: seconds of the wall, median and longest of some rounds.
    """

    profile: str
    nodes: int
    jobs: int
    seed: int
    ended: int
    users: int
    us_per_job: float
    mib: float
    templates: int
    starts_s: float
    starts_longest_s: float


def bench_predict(
    profile: Profile,
    nodes: int,
    jobs: int,
    seed: int,
    *,
    ended: int,
    users: int,
    tell: Callable[[str], None] = lambda _: None,
) -> PredictResult:
    """Measure. Raises ValueError for fewer than 10 jobs or 1,000 ended ones, and for no nodes or users."""
    if jobs < 10 or ended < 1_000 or users < 1:
        raise ValueError(f"{jobs} jobs, {ended} ended, {users} users: at least 10, 1000 and 1 are needed")
    tell(f"learning from {ended:,} jobs")
    _learn(1_000, 10, seed)  # loads the kernels
    spent, learner = _learn(ended, users, seed)
    tell(f"planning {jobs:,} jobs")
    grower = Grower(profile, nodes, jobs, seed)
    grower.fill(jobs)
    plan = grower.plan
    since = np.zeros(plan.jobs.durations.shape[0], np.int64)
    order = waiting(plan, since)
    shares = np.random.default_rng(seed).uniform(0.05, 1.0, since.shape[0])
    duration = np.maximum((plan.jobs.durations * shares).astype(np.int64), 1)
    tell("starts of the whole queue")
    rounds = []
    for _ in range(_ROUNDS):
        before = perf_counter()
        decoded(plan, order, duration, grower.now)
        rounds.append(perf_counter() - before)
    return PredictResult(
        profile=profile,
        nodes=nodes,
        jobs=int(order.shape[0]),
        seed=seed,
        ended=ended,
        users=users,
        us_per_job=1e6 * spent / ended,
        mib=learner.run_times.nbytes / (1 << 20),
        templates=int(learner.run_times.save()[1]["at"].shape[0]),
        starts_s=median(rounds),
        starts_longest_s=max(rounds),
    )


def _learn(ended: int, users: int, seed: int) -> tuple[float, Learner]:
    """Users with some habits each; seconds of the processor, without the drawing."""
    rng = np.random.default_rng(seed)
    who = (users * rng.random(ended) ** 2).astype(np.int64)
    habit = rng.integers(0, _HABITS, ended)
    walltime = 600 * (1 + (who * 7 + habit) % 144)
    run = np.maximum((walltime * rng.beta(0.6, 2, ended)).astype(np.int64), 1)
    asks = [
        Ask(f"user{w}", t, 1 << (h % 6), f"job{h}")
        for w, t, h in zip(who.tolist(), walltime.tolist(), habit.tolist(), strict=True)
    ]
    runs = run.tolist()
    submit = np.cumsum(rng.integers(0, 2 * int(run.mean()) // _AT_ONCE + 1, ended)).tolist()
    ends: list[tuple[int, int]] = []
    learner = Learner()
    before = process_time()
    for i, ask in enumerate(asks):
        now = submit[i]
        while ends and ends[0][0] <= now:
            moment, one = heappop(ends)
            learner.ended(str(one), moment)
        learner.queued(str(i), ask, now)
        learner.started(str(i), now)
        heappush(ends, (now + runs[i], i))
    return process_time() - before, learner


def to_json(result: PredictResult) -> str:
    """The whole result as JSON."""
    return json.dumps(asdict(result), indent=2)


def table_of(result: PredictResult) -> Table:
    """One line."""
    table = Table(title=f"{result.profile}: {result.jobs:,} jobs wait for {result.nodes:,} nodes")
    for name in ("ended", "users", "µs/job", "MiB", "templates", "starts of all [s]", "longest"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row(
        f"{result.ended:,}",
        f"{result.users:,}",
        f"{result.us_per_job:.1f}",
        f"{result.mib:.0f}",
        f"{result.templates:,}",
        f"{result.starts_s:.2f}",
        f"{result.starts_longest_s:.2f}",
    )
    return table
