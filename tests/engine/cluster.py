"""Engine with a small simulated server, for scenarios over time."""

from dataclasses import replace
from typing import Any

from schedd.engine import Engine, EngineSettings
from schedd.engine.facts.records import JobRecord
from schedd.engine.show.job_view import JobView, job_view
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.model import FOREVER
from schedd.wire import (
    Alert,
    Decision,
    Event,
    JobFacts,
    NodeFacts,
    QueueFacts,
    Reserve,
    Run,
    Unreserve,
    WriteAttributes,
)
from tests.engine.server import Server

T = 1_700_000_000
"""Start of each scenario; its times are seconds after it."""


class Cluster:
    """``nodes`` nodes n1, n2, ... of ``cpus`` cpus; events are handled at once.

    Run decisions are carried out at once unless ``obeys`` is False; all decisions are kept.
    """

    def __init__(self, nodes: int = 1, cpus: int = 4, **settings: Any) -> None:
        chosen: dict[str, Any] = {"validate": True, "publish_starts": False, **settings}
        self.engine = Engine(EngineSettings(**chosen), T)
        self.server = Server(T)
        self.decisions: list[Decision] = []
        self.obeys = True
        for i in range(1, nodes + 1):
            self.server.nodes[f"n{i}"] = NodeFacts(name=f"n{i}", cpus=cpus)
        self.server.queues["batch"] = QueueFacts(name="batch")
        self.send(self.server.snapshot())

    # ---- time and events ------------------------------------------------------------------------

    def send(self, *events: Event) -> tuple[Decision, ...]:
        """Handle one batch; returns the decisions on it and on its consequences at this moment."""
        before = len(self.decisions)
        self._handle(events)
        return tuple(self.decisions[before:])

    def _handle(self, events: tuple[Event, ...]) -> None:
        while True:
            decisions = self.engine.handle(events, self.server.now).decisions
            self.decisions += decisions
            wake = self.engine.next_wake
            events = ()
            if self.obeys:
                events = tuple(e for d in decisions if isinstance(d, Run) for e in self.server.run(d))
            if not events and (wake is None or wake > self.server.now):
                return

    def at(self, moment: int) -> None:
        """Let time pass until ``moment``, with all that happens on the way."""
        while True:
            ends = [
                j.started + self.server.runtime[j.id]
                for j in self.server.jobs.values()
                if j.started is not None and j.state != "S"
            ]
            moments = [*ends, *([self.engine.next_wake] if self.engine.next_wake is not None else [])]
            following = [m for m in moments if self.server.now < m <= T + moment]
            self.server.now = min(following, default=T + moment)
            self.send(*self.server.ends())
            if not following:
                return

    # ---- jobs -----------------------------------------------------------------------------------

    def submit(self, job_id: str, nodes: str = "1:ppn=4", walltime: int | None = 100, **more: Any) -> None:
        """Queue a job that runs for its walltime (or ``runtime``)."""
        resources = {"nodes": nodes, **({"walltime": str(walltime)} if walltime is not None else {})}
        resources |= more.pop("resources", {})
        runtime = more.pop("runtime", walltime if walltime is not None else 10**6)
        facts = JobFacts(
            id=job_id,
            owner=more.pop("owner", "ann@login"),
            queue=more.pop("queue", "batch"),
            submitted=self.server.now,
            resources=resources,
            **more,
        )
        self.send(*self.server.submit(facts, runtime))

    def alter(self, job_id: str, **changes: Any) -> None:
        self.send(*self.server.alter(job_id, **changes))

    def alter_request(self, job_id: str, **resources: str) -> None:
        """Alter what a job asks for."""
        self.alter(job_id, resources={**self.server.jobs[job_id].resources, **resources})

    def node(self, name: str, **changes: Any) -> None:
        facts = self.server.nodes.get(name, NodeFacts(name=name, cpus=4))
        self.send(*self.server.change_node(replace(facts, **changes)))

    def reserve(self, name: str, *nodes: str, start: int, end: int | None = None) -> None:
        until = T + end if end is not None else None
        event_id = self.server.event_id()
        self.send(
            Reserve(id=event_id, time=self.server.now, name=name, nodes=nodes, start=T + start, end=until)
        )

    def unreserve(self, name: str) -> None:
        self.send(Unreserve(id=self.server.event_id(), time=self.server.now, name=name))

    # ---- queries ------------------------------------------------------------------------------------

    def record(self, job_id: str) -> JobRecord:
        return self.engine.state.records[job_id]

    def view(self, job_id: str) -> JobView:
        view = job_view(publish_snapshot(self.engine.state), job_id)
        assert view is not None
        return view

    def start(self, job_id: str) -> int | None:
        """The planned or actual start, in seconds after the beginning."""
        start = self.view(job_id).planned_start
        return start - T if start is not None else None

    def promise(self, job_id: str) -> int | None:
        promised = self.engine.state.promise[self.record(job_id).slot]
        return int(promised) - T if promised < FOREVER else None

    def planned_node_names(self, job_id: str) -> list[str]:
        return [share.node for share in self.view(job_id).planned_nodes]

    def at_risk(self, job_id: str) -> str:
        """The cause that put the job's promise at risk; empty when it is not."""
        risk = self.record(job_id).risk
        return risk.cause.value if risk is not None else ""

    def breaches(self, job_id: str) -> list[str]:
        """The causes of the promises that were not kept."""
        return [breach.cause.value for breach in self.record(job_id).breaches]

    def runs(self, job_id: str) -> list[int]:
        """When run decisions were made for the job."""
        return [d.time - T for d in self.decisions if isinstance(d, Run) and d.job_id == job_id]

    def alerts(self, kind: str) -> list[str]:
        return [d.text for d in self.decisions if isinstance(d, Alert) and d.kind == kind]

    def attribute_writes(self, job_id: str) -> list[WriteAttributes]:
        return [d for d in self.decisions if isinstance(d, WriteAttributes) and d.job_id == job_id]
