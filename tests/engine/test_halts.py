"""Starts after a halt, checked against the server's capacity from outside of the engine."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schedd.engine import Engine
from schedd.service.settings.cluster import ClusterSettings
from schedd.wire import BatchSkipped, Event, Run
from tests.engine.cluster import Cluster, T
from tests.property_examples import examples

_DEFAULTS = ClusterSettings.model_validate({}).engine
"""What a site has that sets nothing."""
_STEPS = ["dispatch", "late starts", "overruns", "repair", "outcomes", "promises", "published starts"]


class ResourceCounted(Cluster):
    """Cluster that adds up running jobs and other run decisions at each run decision.

    The sums use the server and the decisions, not the plan. An adapter obeys at once, obeys some seconds
    later, answers "busy", or does nothing.
    """

    def __init__(self, nodes: int = 1, cpus: int = 8, **more: Any) -> None:
        self.open: dict[str, Run] = {}
        """Run decisions that may yet be carried out."""
        self.adapter, self.delay = "obeys", 0
        self.slow: list[tuple[int, Run]] = []
        self.unheard: list[Event] | None = None
        """What happened while the engine hung; None: it does not."""
        chosen = {name: getattr(_DEFAULTS, name) for name in ("slack", "publish_pause", "predict")}
        super().__init__(nodes, cpus, **{"publish_starts": True, "end_allowance": 120, **chosen, **more})

    def _handle(self, events: tuple[Event, ...]) -> None:
        if self.unheard is not None:
            self.unheard += events
            return
        for _ in range(200):
            for event in events:
                self.open.pop(getattr(event, "decision_id", ""), None)
            decisions = self.engine.handle(events, self.server.now).decisions
            self.decisions += decisions
            runs = [decision for decision in decisions if isinstance(decision, Run)]
            for run in runs:
                self._count(run)
            events = tuple(event for run in runs for event in self._carry_out(run))
            wake = self.engine.next_wake
            if not events and (wake is None or wake > self.server.now):
                return
        raise AssertionError("no rest")

    def _carry_out(self, run: Run) -> list[Event]:
        if self.adapter == "obeys":
            return self.server.run(run)
        if self.adapter == "is busy":
            return self.server.refuse(run, 15046, "busy")
        if self.adapter == "is slow":
            self.slow.append((self.server.now + self.delay, run))
        return []

    def _count(self, run: Run) -> None:
        now = self.server.now
        others = [one for one in self.open.values() if one.expires >= now and one.job_id in self.server.jobs]
        for share in run.shares:
            taken = sum(s.cpus for one in others for s in one.shares if s.node == share.node)
            free = self.server.free(share.node) - taken
            assert share.cpus <= free, f"{run.job_id} on {share} at {run.time - T}: {free} free"
        assert run.job_id not in {one.job_id for one in others}
        self.open[run.id] = run

    def at(self, moment: int) -> None:
        """Let time pass, including the moments when a slow adapter acts."""
        while due := [when for when, _ in self.slow if when <= T + moment]:
            when = max(min(due), self.server.now)
            super().at(when - T)
            runs = [run for due, run in self.slow if due <= when]
            self.slow = [(due, run) for due, run in self.slow if due > when]
            self.send(*(event for run in runs for event in self.server.run(run)))
        super().at(moment)

    def hang(self) -> None:
        self.unheard = []

    def go_on(self) -> None:
        """Continue the engine; it gets all events since the halt at once."""
        events, self.unheard = self.unheard or [], None
        self.send(*events)

    def skip_step(self, *steps: str) -> None:
        event_id = self.server.event_id()
        self.send(BatchSkipped(id=event_id, time=self.server.now, batch=1, why="a test", steps=steps))
        self.send(self.server.snapshot())

    def restart(self) -> None:
        self.engine = Engine.restore(self.engine.checkpoint())

    def resume(self) -> None:
        self.engine.resume()
        self.send()

    def set_mode(self, mode: Any) -> None:
        self.send(replace(self.server.snapshot(), mode=mode))

    def set_scheduling(self, on: bool) -> None:
        self.send(*self.server.change_server(replace(self.server.facts, scheduling=on)))


def _hang_and_restart(cluster: ResourceCounted) -> None:
    cluster.restart()
    cluster.go_on()


_HALTS: dict[str, tuple[Callable[[ResourceCounted], object], Callable[[ResourceCounted], object]]] = {
    "a pause": (lambda c: c.engine.pause("maintenance"), lambda c: c.resume()),
    "another mode": (lambda c: c.set_mode("shadow"), lambda c: c.set_mode("scheduler")),
    "no scheduling": (lambda c: c.set_scheduling(False), lambda c: c.set_scheduling(True)),
    "a hang": (lambda c: c.hang(), lambda c: c.go_on()),
    "a restart": (lambda c: c.hang(), _hang_and_restart),
    "a snapshot that is not believed": (
        lambda c: c.send(c.server.snapshot(complete=False)),
        lambda c: c.send(c.server.snapshot()),
    ),
    "a node that is down": (lambda c: c.node("n1", state="down"), lambda c: c.node("n1", state="up")),
    **{
        f"no {step}": (lambda c, step=step: c.skip_step(step), lambda c: c.send())  # type: ignore[misc]
        for step in _STEPS
    },
}


@pytest.mark.covering
@pytest.mark.parametrize(
    "kind", ["a pause", "another mode", "no scheduling", "a hang", "a restart", "no dispatch"]
)
@pytest.mark.parametrize("length", [10, 30, 59, 115, 130])
def test_jobs_planned_one_after_the_other_start_in_turn_after_a_halt(kind: str, length: int) -> None:
    cluster = ResourceCounted()
    begin, end = _HALTS[kind]
    cluster.submit("0.s", "1:ppn=8", walltime=5)
    for number in range(1, 5):
        cluster.submit(f"{number}.s", "1:ppn=8", walltime=10)
    begin(cluster)
    cluster.at(length)
    end(cluster)
    cluster.at(600)
    runs = [cluster.runs(f"{number}.s") for number in range(1, 5)]
    first = runs[0][0]
    assert first >= (60 if kind == "no dispatch" else length)
    assert runs == [[first], [first + 10], [first + 20], [first + 30]]


def test_a_job_refused_as_busy_after_its_walltime_keeps_its_place_or_gets_another() -> None:
    """A refusal later than the walltime: other jobs wait for the same cores."""
    cluster = ResourceCounted(cpus=2)
    cluster.adapter = "does nothing"
    cluster.submit("1.s", "1:ppn=1", walltime=20)
    (run,) = [one for one in cluster.decisions if isinstance(one, Run)]
    cluster.adapter = "obeys"
    cluster.submit("2.s", "1:ppn=1", walltime=3600)
    cluster.submit("3.s", "1:ppn=1", walltime=3600)
    cluster.at(40)
    cluster.send(*cluster.server.refuse(run, 15046, "busy"))
    cluster.at(41)
    assert cluster.runs("1.s") == [0, 41]
    cluster.at(100)
    assert cluster.runs("3.s") == [61]


@pytest.mark.parametrize("policy", ["fcfs", "easy", "aggressive"])
def test_under_a_queue_policy_a_job_refused_as_busy_is_started_again(policy: str) -> None:
    cluster = ResourceCounted(policy=policy)
    cluster.adapter = "is busy"
    cluster.submit("1.s", "1:ppn=8", walltime=20)
    cluster.adapter = "obeys"
    cluster.at(5)
    assert cluster.runs("1.s") == [0, 1]


@pytest.mark.parametrize("policy", ["fcfs", "easy", "aggressive"])
def test_under_a_queue_policy_jobs_beyond_the_rate_start_in_the_next_seconds(policy: str) -> None:
    cluster = ResourceCounted(policy=policy, start_rate=2)
    cluster.engine.pause("maintenance")
    for number in range(5):
        cluster.submit(f"{number}.s", "1:ppn=1", walltime=20)
    cluster.resume()
    cluster.at(5)
    assert [cluster.runs(f"{number}.s") for number in range(5)] == [[0], [0], [1], [1], [2]]


def test_a_late_job_yields_to_a_reservation_and_planned_jobs_yield_to_it() -> None:
    cluster = ResourceCounted(nodes=2)
    cluster.reserve("r", "n1", start=200, end=1000)
    cluster.engine.pause("maintenance")
    cluster.submit("1.s", "1:ppn=8", walltime=190)
    cluster.submit("2.s", "1:ppn=8", walltime=50)
    cluster.submit("3.s", "1:ppn=8", walltime=50)
    assert [cluster.planned_node_names(job) for job in ("1.s", "2.s", "3.s")] == [["n1"], ["n2"], ["n2"]]
    cluster.at(40)
    cluster.resume()
    cluster.at(300)
    assert [cluster.runs(job) for job in ("1.s", "2.s", "3.s")] == [[90], [40], [40]]


@pytest.mark.parametrize(("reserved", "first"), [("n1", 2000), ("n2", 40)])
def test_a_slightly_late_job_does_not_run_into_a_reservation_that_its_planned_end_touches(
    reserved: str, first: int
) -> None:
    cluster = ResourceCounted(nodes=2)
    cluster.reserve("r", reserved, start=1000, end=2000)
    cluster.engine.pause("maintenance")
    cluster.submit("0.s", "1:ppn=8:n2", walltime=5000)
    cluster.submit("1.s", "1:ppn=8:n1", walltime=1000)
    cluster.at(40)
    cluster.resume()
    cluster.at(2100)
    assert cluster.runs("1.s") == [first]


def live(cluster: ResourceCounted, random: Random, rounds: int) -> None:
    """Halts of every kind and length, and jobs of every walltime, one after the other."""
    number = 0
    for _ in range(rounds):
        for _ in range(random.randint(0, 6)):
            number += 1
            walltime = random.choice([1, 3, 10, 10, 30, 60, 90, 119, 121, 300, 2000])
            runtime = random.choice([walltime, walltime, walltime + 7, walltime + 200, max(1, walltime // 2)])
            nodes = random.choice(["1:ppn=8", "1:ppn=4", "1:ppn=1", "2:ppn=2", "1:ppn=8"])
            cluster.submit(f"{number}.s", nodes, walltime=walltime, runtime=runtime)
        cluster.adapter = random.choice(["obeys", "obeys", "obeys", "is busy", "is slow", "does nothing"])
        cluster.delay = random.choice([1, 5, 30, 59])
        cluster.at(cluster.server.now - T + random.choice([0, 1, 10, 40, 100]))
        begin, end = _HALTS[random.choice(list(_HALTS))]
        begin(cluster)
        cluster.at(cluster.server.now - T + random.choice([0, 1, 5, 10, 30, 61, 119, 121, 400, 4000]))
        end(cluster)
        if random.random() < 0.3:
            cluster.restart()
        cluster.send()


def _any_cluster(random: Random) -> ResourceCounted:
    """Return a small cluster under a random policy, possibly with a low start rate."""
    policy = random.choice(["conservative", "conservative", "fcfs", "easy"])
    backfill = random.choice(["oldest", "shortest"])
    rate = random.choice([(50, 10), (50, 10), (2, 1)])
    nodes = random.randint(1, 3)
    return ResourceCounted(
        nodes, alone=False, policy=policy, backfill=backfill, start_rate=rate[0], start_rate_node=rate[1]
    )


@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), rounds=st.integers(1, 12))
def test_after_halts_no_run_decision_takes_more_than_there_is(seed: int, rounds: int) -> None:
    random = Random(seed)
    live(_any_cluster(random), random, rounds)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(300))
def test_after_many_halts_no_run_decision_takes_more_than_there_is(seed: int) -> None:
    random = Random(seed)
    live(_any_cluster(random), random, 60)
