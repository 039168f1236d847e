"""An endless workload with a queue of constant length: jobs arrive as fast as the cluster runs them.

A fixed rate of arrivals is not stable: a little above the capacity the queue grows without bound, a little
below it runs empty. Here the interval to the next job grows with the queue.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from statistics import median_low
from typing import Final

import numpy as np

from schedd.cli.demo.arrivals import arrivals
from schedd.replay.lublin import generate
from schedd.replay.workload import Trace, TraceJob
from server_adapter.emulator import Arrival, JobOrder, NodeSpec

_BATCH: Final = 2_000  # jobs of the model made at a time
_PAST_BATCH: Final = 100_000  # number of the batch of jobs that ran before the demo
MAX_RUN_S: Final = 12 * 3600  # jobs that run for longer are left out: they make a dull picture
_MEAN_MACHINE_S: Final = 1_607
"""Walltime times cpus of a job of the model, as seconds of the whole machine; measured for 320 cpus."""
_MAX_HORIZON_S: Final = 5 * 86_400
"""Approximate maximum length of a plan of all waiting jobs: with more jobs, narrower ones are created."""
_NODES_PER_RACK: Final = 20  # nodes of one rack, which they have as a property
_MIN_WIDTH: Final = 16
_MAX_SHARE: Final = 20  # on a large machine no job takes more than this part of the cores
_MAX_WIDTH: Final = 1_200  # cores that one job may take even so
_USERS: Final = 40
_FIRST_PLACE: Final = 16  # so that user1 has neither the shortest nor the longest jobs
_HABIT_SPREAD: Final = (
    0.05  # standard deviation of a user's run times, as a share of all jobs' order by length
)
_STARTS_PER_CORE_S: Final = 1.5
"""Jobs that one processor of this machine may start in a real second, with all that follows."""
_FORECAST_S_PER_JOB: Final = 0.0025
"""Processor seconds of a round of forecasts for each waiting job, measured with 1,000 nodes."""
_FORECAST_ROUNDS: Final = 11
"""Maximum age of a forecast in durations of a round: after a round, the next one rests ten times as long."""
_MAX_FORECAST_AGE_S: Final = 900
"""Maximum age of a forecast, in seconds of the cluster. Older ones are overtaken by the jobs that end."""


class SteadyWorkload:
    """Jobs of Lublin and Feitelson's model for ``nodes`` nodes of ``cpus`` cores, ``waiting`` of them in the
    queue. The same seed gives the same jobs.
    """

    def __init__(self, nodes: int, cpus: int, waiting: int, seed: int) -> None:
        if min(nodes, waiting) < 1:
            raise ValueError(f"{nodes} nodes, {waiting} jobs: both must be at least 1")
        self.nodes = tuple(
            NodeSpec(f"node{i}", cpus, (f"rack{-(-i // _NODES_PER_RACK)}",)) for i in range(1, nodes + 1)
        )
        self.cpus = nodes * cpus
        self._waiting, self._seed = waiting, seed
        widest = _MAX_HORIZON_S * self.cpus // (_MEAN_MACHINE_S * waiting)
        large = max(_MAX_WIDTH, self.cpus // _MAX_SHARE)
        self._widest = max(min(_MIN_WIDTH, self.cpus), min(widest, self.cpus // 2, large))
        self._walltimes: dict[int, int] = {}  # by user, from the first jobs
        first = self._made(0)
        self._first = first
        work = sum(_actual_core_seconds(order) for order in first)
        self.gap = work / len(first) / self.cpus  # seconds between two jobs that just fill the machine
        self._share = sum(core_seconds(order) for order in first) / len(first)

    def _made(self, batch: int) -> list[JobOrder]:
        trace = generate(_BATCH, self._widest, self._seed + batch)
        short = [job for job in trace.jobs if job.run <= MAX_RUN_S]
        jobs = self._with_habits(short, self._seed + batch)
        return [one.order for one in arrivals(Trace(trace.name, jobs, self._widest), self.nodes)[0]]

    def _with_habits(self, jobs: Sequence[TraceJob], seed: int) -> tuple[TraceJob, ...]:
        """Return the jobs; each user's jobs run about equally long and mostly ask for one walltime.

        In the model users are drawn without regard to the job, so that nothing could be predicted from them.
        """
        order = np.argsort(np.argsort([job.run for job in jobs], kind="stable"), kind="stable") / len(jobs)
        order += np.random.default_rng(seed).normal(0.0, _HABIT_SPREAD, len(jobs))
        places = (np.clip(order, 0.0, 1.0 - 1e-9) * _USERS).astype(np.int64)
        users = [1 + (place + _FIRST_PLACE) % _USERS for place in places.tolist()]
        if not self._walltimes:
            for user in set(users):
                known = [job.estimate for job, by in zip(jobs, users, strict=True) if by == user]
                self._walltimes[user] = median_low(known)
        found = []
        for job, user in zip(jobs, users, strict=True):
            usual = self._walltimes.get(user, 0)
            estimate = usual if job.run <= usual else job.estimate
            found.append(replace(job, user=f"user{user}", group=f"group{user % 5}", estimate=estimate))
        return tuple(found)

    def past_orders(self) -> list[JobOrder]:
        """Return jobs of the same model that ran before the arrivals."""
        return self._made(_PAST_BATCH)

    def _orders(self) -> Iterator[JobOrder]:
        for batch in count():
            yield from self._made(batch) if batch else self._first

    def speed(self, wanted: float, cores: float) -> float:
        """Cluster seconds per real second: ``wanted``, or the highest rate at which the free cores
        start all jobs and a single core keeps the forecasts fresh.
        """
        starts = _STARTS_PER_CORE_S * cores * self.gap
        round_s = self._waiting * _FORECAST_S_PER_JOB / min(1.0, cores)
        forecasts = _MAX_FORECAST_AGE_S / (_FORECAST_ROUNDS * round_s)
        return min(wanted, max(1.0, float(round(min(starts, forecasts)))))

    def arrivals(
        self, waiting: Callable[[], tuple[int, float]], now: Callable[[], float]
    ) -> Iterator[Arrival]:
        """As many at once as fill the machine and the queue, then one by one.

        Each is made when the one before has come. ``waiting`` says how many jobs wait and what these ask for,
        walltimes times cpus; ``now`` how many seconds have passed since the first came. Small jobs fill gaps
        and are gone, so a queue of the same length would be of ever larger ones: while it asks for more than
        its length should, large jobs stay away.
        """
        orders = self._orders()
        room = self.cpus
        left = self._waiting
        while left:
            order = next(orders)
            if room > 0:
                room -= requested_cores(order)
            else:
                left -= 1
            yield Arrival(0.0, order)
        dice = random.Random(self._seed)
        for order in orders:
            count, asked = waiting()
            if asked > self._waiting * self._share and core_seconds(order) > self._share / 2:
                continue
            pressure = min(4.0, max(0.1, count / self._waiting)) ** 2
            yield Arrival(now() + dice.expovariate(1.0) * self.gap * pressure, order)


def node_parts(order: JobOrder) -> Iterator[tuple[int, int]]:
    """The parts of a job's request: nodes, and cores of each."""
    for part in order.resources["nodes"].split("+"):
        number, *more = part.split(":")
        yield int(number), next((int(word[4:]) for word in more if word.startswith("ppn=")), 1)


def requested_cores(order: JobOrder) -> int:
    return sum(nodes * cores for nodes, cores in node_parts(order))


def core_seconds(order: JobOrder) -> float:
    """Walltime times cores, in seconds."""
    hours, minutes, seconds = order.resources["walltime"].split(":")
    return requested_cores(order) * (int(hours) * 3600.0 + int(minutes) * 60 + int(seconds))


def _actual_core_seconds(order: JobOrder) -> float:
    return requested_cores(order) * (order.outcome.runtime if order.outcome is not None else 0.0)
