"""What happens on the server in random lives: jobs, nodes, queues, limits."""

from dataclasses import replace
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from schedd.wire import JobFacts, NodeFacts, QueueFacts, ServerFacts, ShareFacts
from schedd.wire.facts import NodeStateName
from tests.engine.chaos.shell import Shell
from tests.engine.chaos.values import (
    JOBS,
    QUEUES,
    REQUESTS,
    STATES,
    TOUCHES,
    WALLTIMES,
    jobs,
    limits,
    names,
    queues,
    requests,
    seeds,
    walltimes,
)


class OnServer(Shell):
    """Jobs come, change and go; nodes, queues and the server change."""

    @initialize(seed=seeds)
    def begin(self, seed: int) -> None:
        random = Random(seed)
        for i, properties in enumerate([(), ("big",), ()], 1):
            node = NodeFacts(name=f"n{i}", cpus=4, mem=8 << 20, properties=properties)
            self.server.nodes[node.name] = node
        for name in ("batch", "long"):
            self.server.queues[name] = QueueFacts(name=name)
        self._handle([self.server.snapshot()])
        for job in JOBS[: random.randint(0, 8)]:
            choice = random.choice
            self.submit(job, choice(REQUESTS), choice(WALLTIMES), choice(QUEUES), random.randint(0, 1200))

    # ---- what happens on the server --------------------------------------------------------------

    @rule(job=jobs, asked=requests, walltime=walltimes, queue=queues, runtime=st.integers(0, 1200))
    def submit(self, job: str, asked: dict[str, str], walltime: str, queue: str, runtime: int) -> None:
        if job in self.server.jobs:
            return
        # A server never reuses an id; here a reused id is another job without an open decision.
        self.open = {number: run for number, run in self.open.items() if run.job_id != job}
        resources = {**asked, "walltime": walltime} if walltime else asked
        facts = JobFacts(
            id=job,
            owner="bob" if job < "3" else "ann",
            group="staff" if queue == "long" else "",
            queue=queue,
            submitted=self.server.now,
            resources=resources,
            array="7[].s" if job > "5" else "",
            slot_limit=1 + runtime % 2 if job > "5" else None,
            priority=runtime % 7,
            depend=f"afterok:{int(job[0]) - 1}.s" if runtime % 5 == 0 else "",
            state="H" if runtime % 5 == 0 else "Q",
            holds="s" if runtime % 5 == 0 else "",
        )
        self.line += self.server.submit(facts, runtime)
        self._deliver()

    @rule(job=jobs, asked=requests, walltime=walltimes, queue=queues, later=st.sampled_from([None, 50, 500]))
    def alter(self, job: str, asked: dict[str, str], walltime: str, queue: str, later: int | None) -> None:
        if job in self.server.jobs:
            resources = {**asked, "walltime": walltime} if walltime else asked
            state = self.server.jobs[job].state
            not_before = self.server.now + later if later and state == "Q" else None
            changes: dict[str, object] = {"resources": resources, "not_before": not_before}
            if state in ("Q", "W"):
                changes |= {"queue": queue, "state": "W" if not_before else "Q"}
            self.line += self.server.alter(job, **changes)
            self._deliver()

    @rule(job=jobs, what=st.sampled_from(TOUCHES))
    def touch(self, job: str, what: str) -> None:
        facts = self.server.jobs.get(job)
        if facts is None:
            return
        if what == "hold" and facts.state == "Q":
            self.line += self.server.hold(job)
        elif what == "hold_slot" and facts.state == "Q" and facts.array:
            self.line += self.server.hold(job, "l")
        elif what == "release" and facts.state == "H":
            self.line += self.server.release(job)
        elif what == "delete":
            self.line += self.server.delete(job)
        elif what == "requeue" and facts.state == "R":
            self.line += self.server.requeue(job)
        elif what == "wake" and facts.state == "W":
            self.line += self.server.alter(job, state="Q", not_before=None)
        self._deliver()

    @rule(job=jobs, node=names, cpus=st.integers(1, 6))
    def start_by_hand(self, job: str, node: str, cpus: int) -> None:
        facts = self.server.jobs.get(job)
        if facts is not None and facts.state in ("Q", "H"):
            self.line += self.server.start(job, (ShareFacts(node, cpus),))
            self._deliver()

    @rule(name=names, state=st.sampled_from(STATES), cpus=st.sampled_from([4, 4, 2, 8]))
    def node(self, name: str, state: NodeStateName, cpus: int) -> None:
        properties = ("big",) if cpus == 8 or name == "n2" else ()
        mem = 0 if state == "down" else 8 << 20
        node = replace(self.server.nodes[name], state=state, cpus=cpus, mem=mem, properties=properties)
        self.line += self.server.change_node(node)
        self._deliver()

    @rule(cpus=st.integers(0, 4), gpus=st.integers(0, 2))
    def new_node(self, cpus: int, gpus: int) -> None:
        if len(self.server.nodes) < 5:
            name = f"n{len(self.server.nodes) + 1}"
            generic = {"fpga": 1} if gpus == 2 else {}
            node = NodeFacts(name=name, cpus=cpus, gpus=gpus, resources=generic, vmem=gpus << 20)
            self.line += self.server.change_node(node)
            self._deliver()

    @rule(name=queues, started=st.booleans(), walltime=st.sampled_from(["", "200"]), limits=limits)
    def queue(self, name: str, started: bool, walltime: str, limits: dict[str, str]) -> None:
        defaults = {"walltime": walltime} if walltime else {}
        facts = QueueFacts(name=name, started=started, defaults=defaults, limits=limits)
        self.line += self.server.change_queue(facts)
        self._deliver()

    @rule(scheduling=st.booleans(), walltime=st.sampled_from(["", "400"]), limits=limits)
    def change_server(self, scheduling: bool, walltime: str, limits: dict[str, str]) -> None:
        defaults = {"walltime": walltime} if walltime else {}
        facts = ServerFacts(scheduling=scheduling, defaults=defaults, limits=limits)
        self.line += self.server.change_server(facts)
        self._deliver()

    @rule(job=jobs, most=st.sampled_from([None, 1, 2]))
    def slot_limit(self, job: str, most: int | None) -> None:
        facts = self.server.jobs.get(job)
        if facts is not None and facts.array and facts.state in ("Q", "H"):
            self.line += self.server.alter(job, slot_limit=most)
            self._deliver()
