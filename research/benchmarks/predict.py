"""Cost of predictions: run times learned and predicted job by job, and expected starts of a whole queue."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from statistics import median
from time import process_time

import numpy as np
from rich.table import Table

from research.benchmarks.grow import Grower
from research.benchmarks.workload import Profile
from schedd.plan.columns import Ints
from schedd.predict import LEVELS, JobFeatures, Learner, Prediction, StartSampler, start_quantiles

_ROUNDS = 5
_HABITS = 40
_AT_ONCE = 100  # jobs that run at the same time, about


@dataclass(frozen=True, slots=True)
class PredictResult:
    """``ended`` jobs of ``users`` were predicted at submission and learned from: µs of processor time per
    job, and MiB of all learned data. The starts of ``jobs`` waiting jobs on ``nodes`` nodes, with memory, in
    ``draws`` samples of run times: seconds of processor time, median and longest of some rounds.
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
    draws: int
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
    predictions = _predictions(plan.jobs.durations, seed)
    since = np.zeros(len(predictions), np.int64)
    ids = [str(slot) for slot in range(len(predictions))]
    tell("starts of the whole queue")
    rounds, sizes = [], (0, 0)
    for _ in range(_ROUNDS):
        before = process_time()
        sampler = StartSampler.from_plan(plan, grower.now, since, ids, predictions)
        starts = np.stack([one.starts[sampler.order] for one in sampler.sample_plans()])
        start_quantiles(starts)
        rounds.append(process_time() - before)
        sizes = starts.shape
    return PredictResult(
        profile=profile,
        nodes=nodes,
        jobs=sizes[1],
        seed=seed,
        ended=ended,
        users=users,
        us_per_job=1e6 * spent / ended,
        mib=learner.run_times.nbytes / (1 << 20),
        templates=int(learner.run_times.save()[1]["at"].shape[0]),
        draws=sizes[0],
        starts_s=median(rounds),
        starts_longest_s=max(rounds),
    )


def _predictions(walltimes: Ints, seed: int) -> dict[str, Prediction]:
    """By slot: between nothing and a share of the walltime, which most jobs have much of left."""
    shares = np.random.default_rng(seed).uniform(0.1, 1.0, walltimes.shape[0])
    told = np.maximum((walltimes * shares)[:, None] * LEVELS, 1).astype(np.int64)
    nothing, none = np.zeros(LEVELS.shape[0]), np.zeros(0, np.int64)
    return {
        str(slot): Prediction(max(1, walltime), told[slot], nothing, none)
        for slot, walltime in enumerate(walltimes.tolist())
    }


def _learn(ended: int, users: int, seed: int) -> tuple[float, Learner]:
    """Users with some habits each; seconds of the processor, without the drawing."""
    rng = np.random.default_rng(seed)
    who = (users * rng.random(ended) ** 2).astype(np.int64)
    habit = rng.integers(0, _HABITS, ended)
    walltime = 600 * (1 + (who * 7 + habit) % 144)
    run = np.maximum((walltime * rng.beta(0.6, 2, ended)).astype(np.int64), 1)
    asks = [
        JobFeatures(f"user{w}", t, 1 << (h % 6), f"job{h}")
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
            learner.record_end(str(one), moment)
        learner.predict_job(str(i), ask, now)
        learner.record_start(str(i), now)
        heappush(ends, (now + runs[i], i))
    return process_time() - before, learner


def to_json(result: PredictResult) -> str:
    return json.dumps(asdict(result), indent=2)


def table_of(result: PredictResult) -> Table:
    table = Table(title=f"{result.profile}: {result.jobs:,} jobs wait for {result.nodes:,} nodes")
    for name in ("ended", "users", "µs/job", "MiB", "templates", "draws", "starts, s", "longest"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row(
        f"{result.ended:,}",
        f"{result.users:,}",
        f"{result.us_per_job:.1f}",
        f"{result.mib:.0f}",
        f"{result.templates:,}",
        str(result.draws),
        f"{result.starts_s:.2f}",
        f"{result.starts_longest_s:.2f}",
    )
    return table
