"""Small PBS server for tests: it carries out run decisions and reports events."""

from dataclasses import dataclass, field, replace

from schedd.wire import (
    Event,
    ExtendRun,
    JobAltered,
    JobDeleted,
    JobEnded,
    JobFacts,
    JobHeld,
    JobQueued,
    JobReleased,
    JobStarted,
    NodeChanged,
    NodeFacts,
    QueueChanged,
    QueueFacts,
    Run,
    RunAccepted,
    RunRefused,
    ServerChanged,
    ServerFacts,
    ShareFacts,
    Snapshot,
)


@dataclass
class Server:
    """State of the server. Methods with an effect return the events that an adapter would send."""

    now: int
    jobs: dict[str, JobFacts] = field(default_factory=dict)
    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    queues: dict[str, QueueFacts] = field(default_factory=dict)
    facts: ServerFacts = field(default_factory=ServerFacts)
    runtime: dict[str, int] = field(default_factory=dict)
    suspended: dict[str, int] = field(default_factory=dict)
    sequence: int = 0

    def event_id(self) -> str:
        self.sequence += 1
        return f"sim:{self.sequence}"

    def _store_job(self, job: JobFacts) -> JobFacts:
        """Keep the job with a new version; holds are looked at apart from it."""
        _, _, number = job.version.partition(":")
        self.jobs[job.id] = job = replace(job, version=f"v:{int(number or 0) + 1}")
        return job

    # ---- jobs -----------------------------------------------------------------------------------

    def submit(self, job: JobFacts, runtime: int) -> list[Event]:
        self.runtime[job.id] = runtime
        return [JobQueued(id=self.event_id(), time=self.now, job=self._store_job(job))]

    def alter(self, job_id: str, **changes: object) -> list[Event]:
        job = self._store_job(replace(self.jobs[job_id], **changes))  # type: ignore[arg-type]
        return [JobAltered(id=self.event_id(), time=self.now, job=job)]

    def hold(self, job_id: str, letters: str = "u") -> list[Event]:
        self.jobs[job_id] = replace(self.jobs[job_id], holds=letters, state="H")
        return [JobHeld(id=self.event_id(), time=self.now, job_id=job_id, holds=letters)]

    def release(self, job_id: str) -> list[Event]:
        self.jobs[job_id] = replace(self.jobs[job_id], holds="", state="Q")
        return [JobReleased(id=self.event_id(), time=self.now, job_id=job_id)]

    def delete(self, job_id: str) -> list[Event]:
        del self.jobs[job_id]
        return [JobDeleted(id=self.event_id(), time=self.now, job_id=job_id)]

    def requeue(self, job_id: str) -> list[Event]:
        job = self._store_job(replace(self.jobs[job_id], state="Q", started=None, shares=()))
        return [JobQueued(id=self.event_id(), time=self.now, job=job)]

    def suspend(self, job_id: str) -> list[Event]:
        """Suspend a running job: its program stops, and its cpus are free."""
        self.suspended[job_id] = self.now
        return self.alter(job_id, state="S")

    def resume(self, job_id: str) -> list[Event]:
        """Let a suspended job go on."""
        self.runtime[job_id] += self.now - self.suspended.pop(job_id)
        return self.alter(job_id, state="R")

    def extend(self, order: ExtendRun) -> list[Event]:
        """Set the walltime of a running job; its program goes on until then, if it has to."""
        resources = {**self.jobs[order.job_id].resources, "walltime": str(order.walltime)}
        return self.alter(order.job_id, resources=resources)

    def start(self, job_id: str, shares: tuple[ShareFacts, ...]) -> list[Event]:
        job = self.jobs[job_id]
        self._store_job(replace(job, state="R", started=self.now, shares=shares, starts=job.starts + 1))
        return [JobStarted(id=self.event_id(), time=self.now, job_id=job_id, shares=shares)]

    def run(self, decision: Run) -> list[Event]:
        """Carry out a run decision, or refuse it because of a check or missing capacity."""
        job = self.jobs.get(decision.job_id)
        if self.now > decision.expires:
            return self.refuse(decision, 0, "the decision has expired")
        if job is None or job.state != "Q" or job.version != decision.version:
            return self.refuse(decision, 0, "the job is not as it was")
        if any(self.nodes[share.node].state != "up" for share in decision.shares):
            return self.refuse(decision, 0, "a node is not free")
        if any(share.cpus > self.free(share.node) for share in decision.shares):
            return self.refuse(decision, 15046, "resource temporarily unavailable")
        accepted = RunAccepted(
            id=self.event_id(), time=self.now, decision_id=decision.id, job_id=decision.job_id
        )
        return [accepted, *self.start(decision.job_id, decision.shares)]

    def refuse(self, decision: Run, code: int, text: str, *, fragmented: bool = False) -> list[Event]:
        return [
            RunRefused(
                id=self.event_id(),
                time=self.now,
                decision_id=decision.id,
                job_id=decision.job_id,
                code=code,
                text=text,
                fragmented=fragmented,
            )
        ]

    def free(self, node: str) -> int:
        """Cpus of the node that no job holds."""
        holding = [job for job in self.jobs.values() if job.state != "S" and not job.run_lost]
        held = sum(share.cpus for job in holding for share in job.shares if share.node == node)
        return self.nodes[node].cpus - held

    def ends(self) -> list[Event]:
        """End the jobs that reached their run time."""
        events: list[Event] = []
        for job in list(self.jobs.values()):
            if job.state == "S" or job.started is None:
                continue
            if self.now >= job.started + self.runtime[job.id]:
                del self.jobs[job.id]
                events.append(JobEnded(id=self.event_id(), time=self.now, job_id=job.id))
        return events

    # ---- nodes, queues, the server --------------------------------------------------------------

    def change_node(self, node: NodeFacts) -> list[Event]:
        self.nodes[node.name] = node
        return [NodeChanged(id=self.event_id(), time=self.now, node=node)]

    def change_queue(self, queue: QueueFacts) -> list[Event]:
        self.queues[queue.name] = queue
        return [QueueChanged(id=self.event_id(), time=self.now, queue=queue)]

    def change_server(self, facts: ServerFacts) -> list[Event]:
        self.facts = facts
        return [ServerChanged(id=self.event_id(), time=self.now, server=facts)]

    def snapshot(self, *, complete: bool = True, age: int | None = None) -> Snapshot:
        return Snapshot(
            id=self.event_id(),
            time=self.now,
            jobs=tuple(self.jobs.values()),
            nodes=tuple(self.nodes.values()),
            queues=tuple(self.queues.values()),
            server=self.facts,
            complete=complete,
            server_age=age,
        )
