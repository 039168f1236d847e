"""Random lives of a cluster: a server, a lossy line, and an engine that checks all its invariants."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from schedd.engine import Engine, EngineSettings
from schedd.engine.facts.records import MAY_BREAK, Phase
from schedd.engine.improve import improvement
from schedd.engine.show.foretelling import foretell, outset
from schedd.engine.show.job_view import job_view
from schedd.engine.show.view import publish
from schedd.optimize import Search, SearchSettings
from schedd.plan.latest import latest_starts
from schedd.wire import (
    Act,
    Book,
    BookingStep,
    Decision,
    Event,
    Improved,
    JobDeleted,
    JobEnded,
    JobFacts,
    JobHeld,
    JobReleased,
    JobStarted,
    NodeFacts,
    QueueFacts,
    Reserve,
    Run,
    RunAccepted,
    RunRefused,
    ServerFacts,
    ShareFacts,
    StartsExpected,
    Unreserve,
)
from schedd.wire.facts import NodeStateName
from tests.engine.server import Server

T = 1_700_000_000
_ROUNDS = 200
"""Calls at one moment in which the engine must come to rest."""

NODES = ["n1", "n2", "n3"]
JOBS = [f"{i}.s" for i in range(8)]
REQUESTS: list[dict[str, str]] = [
    {"nodes": "1:ppn=1"},
    {"nodes": "1:ppn=2"},
    {"nodes": "1:ppn=4"},
    {"nodes": "2:ppn=2"},
    {"nodes": "3:ppn=1"},
    {"nodes": "n2:ppn=2"},
    {"nodes": "1:ppn=1:big"},
    {"nodes": "1:ppn=64"},
    {"nodes": "1:ppn=x"},
    {"procs": "5"},
    {"nodes": "1:ppn=1", "mem": "3gb"},
    {"nodes": "1:ppn=1", "naccesspolicy": "singlejob"},
    {"nodes": "1:ppn=4", "x.deadline": "+0:10:00"},
    {"nodes": "1:ppn=1", "x.advres": "b1"},
    {"nodes": "2:ppn=1", "advres": "b2"},
]
WALLTIMES = ["", "60", "100", "600", "3600"]
QUEUES = ["batch", "long"]
LIMITS: list[dict[str, str]] = [
    {},
    {"max_user_run": "1"},
    {"max_running": "2"},
    {"max_run": "[u:PBS_GENERIC=2],[u:bob=0],[g:staff=1]"},
    {"max_run_res.ncpus": "[o:PBS_ALL=5]"},
    {"max_run_res.mem": "[u:ann=4gb]", "max_run": "x"},
]
MORE: list[dict[str, Any]] = [
    {},
    {"features": ("big",)},
    {"everywhere": True, "users": ("bob",)},
    {"users": ("ann",)},
    {"queues": ("long",), "features": ("big",)},
]
FATES = ["prompt", "prompt", "late", "shuffled", "twice", "lossy"]
ADAPTERS = ["run", "run", "busy", "cannot", "silent", "asynchronous"]
STATES: list[NodeStateName] = ["up", "up", "down", "drain"]
BOOKING_ACTS: list[Act] = ["accept", "freeze", "confirm", "cancel"]
TOUCHES = ["hold", "hold_slot", "release", "delete", "requeue", "wake"]

names, jobs, requests = st.sampled_from(NODES), st.sampled_from(JOBS), st.sampled_from(REQUESTS)
walltimes, queues = st.sampled_from(WALLTIMES), st.sampled_from(QUEUES)
limits = st.sampled_from(LIMITS)
seeds = st.integers(0, 1 << 32)


class Chaos(RuleBasedStateMachine):
    """A server that lives its life, and a lossy line to an engine that checks all its invariants."""

    settings = EngineSettings(
        validate=True,
        slack=30,
        overrun_blocked=900,
        repair_slice=40,
        tell_rate=3,
        tell_pause=20,
        predict=True,
        queue_predict={"long": False},
        site={"bookings": {"most": 3}},
    )

    def __init__(self) -> None:
        super().__init__()
        self.server = Server(T)
        self.engine = Engine(self.settings, T)
        self.line: list[Event] = []
        self.past: list[Event] = []
        self.offered: list[Run] = []
        self.open: dict[str, Run] = {}
        self.fate, self.adapter = "prompt", "run"
        self.found: Improved | None = None
        self.foretold: list[StartsExpected] = []

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

    # ---- the shell ------------------------------------------------------------------------------

    def _handle(self, events: list[Event], now: int | None = None) -> None:
        self.past += events
        now = self.server.now if now is None else now
        for event in events:
            if isinstance(event, RunRefused | RunAccepted):
                self.open.pop(event.decision_id, None)
        self._take(self.engine.handle(events, now).decisions)
        for _ in range(_ROUNDS):
            if self.engine.next_wake is None or self.engine.next_wake > self.engine.state.now:
                return
            self._take(self.engine.handle([], now).decisions)
        raise AssertionError(f"no rest at {now}: it wants to be called again and again")

    def _take(self, decisions: tuple[Decision, ...]) -> None:
        for decision in decisions:
            if not isinstance(decision, Run):
                continue
            waiting = [run for run in self.open.values() if self._may_yet_run(run, decision.job_id)]
            assert not waiting, f"{decision} while {waiting} may still be carried out"
            assert not self.engine.state.paused
            self.open[decision.id] = decision
            self.offered.append(decision)

    def _may_yet_run(self, run: Run, job_id: str) -> bool:
        """Whether the adapter may yet carry out this decision: for the job as it is, before it expires."""
        job = self.server.jobs.get(job_id)
        return (
            run.job_id == job_id
            and self.engine.state.now <= run.expires
            and job is not None
            and (job.state, job.version) == ("Q", run.version)
        )

    # ---- what happens on the server --------------------------------------------------------------

    @rule(job=jobs, asked=requests, walltime=walltimes, queue=queues, runtime=st.integers(0, 1200))
    def submit(self, job: str, asked: dict[str, str], walltime: str, queue: str, runtime: int) -> None:
        if job in self.server.jobs:
            return
        # A server never gives an id again; here that is another job, of which no decision is out.
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

    @rule(seed=seeds, late=st.booleans())
    def search(self, seed: int, late: bool) -> None:
        """A search on a copy; what it finds comes at once, or when the plan has moved on."""
        state = self.engine.state
        if self.found is not None and late:
            return
        found, self.found = self.found, None
        if found is None:
            latest = latest_starts(state.plan, state.promise, state.columns, state.now)
            search = Search(
                state.plan.fork(), state.columns, latest, state.now, SearchSettings(moves=20, seed=seed)
            )
            places = search.run().places
            jobs = {record.slot: record.id for record in state.records.values()}
            found = improvement(self.server.event_id(), self.server.now, state.plan, jobs, places)
            if late:
                self.found = found
                return
        self._handle([found])

    @rule(late=st.booleans())
    def foretell(self, late: bool) -> None:
        """Expected starts, worked out on a copy; they come at once, or when the plan has moved on."""
        if self.foretold and late:
            return
        found, self.foretold = self.foretold, []
        if not found:
            given = outset(self.engine.state)
            assert given is not None
            found = list(foretell(given).events(self.server.event_id()))
            if late:
                self.foretold = found
                return
        self._handle([*found])

    @invariant()
    def what_is_told_is_of_jobs_that_wait(self) -> None:
        state = self.engine.state
        assert state.outlook is not None
        for record in state.records.values():
            known = record.id in state.outlook.learner
            assert known == state.settings.predicts(record.facts.queue)
            if record.slot >= 0 and (not known or record.phase in (Phase.RUNNING, Phase.BLOCKED)):
                assert state.expected[record.slot] == -1
        told = {job for kind in state.outlook.kinds.values() for job in kind.told}
        assert told <= set(state.records)
        assert (state.expected <= state.expected_by).all()

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

    # ---- what the admin does --------------------------------------------------------------------

    @rule(
        name=st.sampled_from(["r1", "r2"]),
        nodes=st.lists(names | st.just("n9"), min_size=1, max_size=3, unique=True),
        start=st.integers(-100, 2000),
        length=st.none() | st.integers(1, 2000),
        more=st.sampled_from(MORE),
    )
    def reserve(
        self, name: str, nodes: list[str], start: int, length: int | None, more: dict[str, Any]
    ) -> None:
        begin = self.server.now + start
        end = begin + length if length else None
        event = Reserve(
            id=self.server.event_id(),
            time=self.server.now,
            name=name,
            nodes=tuple(nodes),
            start=begin,
            end=end,
            **more,
        )
        self.line.append(event)
        self._deliver()

    @rule(name=st.sampled_from(["r1", "r2"]))
    def unreserve(self, name: str) -> None:
        self.line.append(Unreserve(id=self.server.event_id(), time=self.server.now, name=name))
        self._deliver()

    @rule(
        name=st.sampled_from(["b1", "b2", "b3"]),
        nodes=st.sampled_from(["1:ppn=2", "2:ppn=1", "1:ppn=4"]),
        start=st.integers(0, 2000),
        spare=st.integers(0, 2000),
        length=st.integers(1, 1000),
        until=st.none() | st.integers(1, 500),
    )
    def book(self, name: str, nodes: str, start: int, spare: int, length: int, until: int | None) -> None:
        ready = self.server.now + start
        event = Book(
            id=self.server.event_id(),
            time=self.server.now,
            name=name,
            owner="ann",
            resources={"nodes": nodes},
            duration=length,
            ready=ready,
            deadline=ready + length + spare,
            freeze=spare % 101,
            until=self.server.now + until if until is not None else None,
        )
        self.line.append(event)
        self._deliver()

    @rule(name=st.sampled_from(["b1", "b2", "b3"]), act=st.sampled_from(BOOKING_ACTS))
    def do_with_booking(self, name: str, act: Act) -> None:
        self.line.append(
            BookingStep(id=self.server.event_id(), time=self.server.now, name=name, act=act, option=1)
        )
        self._deliver()

    @rule(why=st.sampled_from(["", "upgrade"]))
    def pause(self, why: str) -> None:
        if why:
            self.engine.pause(why)
        else:
            self.engine.resume()

    # ---- the line -------------------------------------------------------------------------------

    @rule(dt=st.sampled_from([0, 1, 7, 60, 130, 300, 1000, 4000]))
    def time_passes(self, dt: int) -> None:
        """The clock goes on to each moment at which the engine wants to be called."""
        target = self.server.now + dt
        for _ in range(_ROUNDS):
            wake = self.engine.next_wake
            if wake is None or wake > target:
                break
            self._at(max(self.server.now, wake))
        self._at(max(target, self.server.now))

    def _at(self, moment: int) -> None:
        self.server.now = moment
        self.line += self.server.ends()
        self._handle([])
        self._deliver()

    @rule(
        fate=st.sampled_from(FATES),
        adapter=st.sampled_from(ADAPTERS),
    )
    def weather(self, fate: str, adapter: str) -> None:
        """How the line and the adapter behave from now on."""
        self.fate, self.adapter = fate, adapter
        self._deliver()

    @rule(seed=seeds)
    def out_of_order(self, seed: int) -> None:
        batch, self.line = self.line, []
        Random(seed).shuffle(batch)
        self._handle(batch)

    def _deliver(self) -> None:
        """Let the adapter work off the decisions that it has read and events arrive, until both are still."""
        for _ in range(20):
            self._work_off()
            batch = self.line
            if not batch or self.fate == "late":
                return
            self.line = []
            if self.fate == "shuffled":
                batch = batch[1::2] + batch[::2]
            elif self.fate == "twice":
                batch = batch + batch
            elif self.fate == "lossy":
                batch = batch[1:]
            self._handle(batch)

    def _work_off(self) -> None:
        offered, self.offered = self.offered, []
        for decision in offered:
            if self.adapter != "silent":
                self.open.pop(decision.id, None)
            if self.adapter == "run":
                self.line += self.server.run(decision)
            elif self.adapter == "asynchronous":
                self.line += self.server.run(decision)[:1]  # the start itself is seen in a snapshot
            elif self.adapter == "busy":
                self.line += self.server.refuse(decision, 15046, "busy")
            elif self.adapter == "cannot":
                self.line += self.server.refuse(decision, 15043, "cannot")

    @rule(back=st.integers(1, 500))
    def clock_set_back(self, back: int) -> None:
        self._handle([], self.server.now - back)

    @rule(complete=st.booleans(), age=st.sampled_from([None, 10, 1000]))
    def snapshot(self, complete: bool, age: int | None) -> None:
        self.line = []
        self._work_off()
        self._handle([self.server.snapshot(complete=complete, age=age)])

    @rule(seed=seeds, job=jobs, node=names | st.just("nowhere"), when=st.integers(-5000, 5000))
    def nonsense(self, seed: int, job: str, node: str, when: int) -> None:
        """Events that fit nothing, and old ones once more."""
        random = Random(seed)
        at, event_id = max(0, self.server.now + when), self.server.event_id()
        shares = (ShareFacts(node, random.randint(0, 9), random.choice([0, 1 << 40])),)
        kinds: list[Event] = [
            JobEnded(id=event_id, time=at, job_id=job),
            JobDeleted(id=event_id, time=at, job_id="no.such"),
            JobHeld(id=event_id, time=at, job_id=job, holds="sx"),
            JobReleased(id=event_id, time=at, job_id=job),
            JobStarted(id=event_id, time=at, job_id=job, shares=shares),
            JobStarted(id=event_id, time=at, job_id=job, shares=()),
            RunRefused(id=event_id, time=at, decision_id="d9", job_id=job, code=1, text="?"),
            RunAccepted(id=event_id, time=at, decision_id="d9", job_id=job),
            Reserve(id=event_id, time=at, name="r3", nodes=(node,), start=at, end=at - 1),
            *random.sample(self.past, min(len(self.past), 6)),
        ]
        self._handle([random.choice(kinds)])

    # ---- what must always hold ------------------------------------------------------------------

    @invariant()
    def every_job_has_an_answer(self) -> None:
        published = publish(self.engine.state)
        for job_id, record in self.engine.state.records.items():
            view = job_view(published, job_id)
            assert view is not None
            assert view.why
            for breach in record.breaches:
                assert breach.cause in MAY_BREAK
            if record.phase is Phase.WAITING:
                assert (view.planned_start is None) == (view.answer != "start_known")

    @invariant()
    def at_rest_nobody_could_start_earlier(self) -> None:
        """Whatever freed room, a repair has used it: a look at all jobs on a copy finds nothing more."""
        state = self.engine.state
        if state.plan.freed:
            return
        copy = state.plan.fork()
        copy.look_at_all()
        moves, done = copy.repair(state.now)
        assert done
        assert moves.slots.tolist() == []


class Ranked(Chaos):
    """The same with priorities, and a class of jobs that may break promises."""

    settings = replace(
        Chaos.settings,
        slack=400,
        priority_every=100,
        site={
            "bookings": {"most": 3, "order": "bjf"},
            "priority": {"wish": 1.0, "waiting": 20.0, "fair_share": 3.0, "short": 2.0},
            "fair_share": {},
            "classes": {"urgent": {"points": 2.0, "groups": ["staff"], "breaks_promises": True}},
            "limits": [{"what": "cpus", "who": "user", "amount": 9}],
        },
    )


class Placed(Chaos):
    """The same with nodes of different speed, some of them worth waiting for, and deadlines that go first."""

    settings = replace(
        Chaos.settings,
        slack=400,
        site={
            "bookings": {"most": 3, "order": "lff"},
            "placement": "best_gap_edf",
            "speeds": {"big": 3.0, "n3": 2.0},
            "criteria": {"wait": 1.0, "late_jobs": 2.0, "weighted_utilisation": 6.0},
            "priority": {"wish": 1.0},
        },
    )


class Strict(Ranked):
    """No slack at all: the first start that a job is given is what it is promised."""

    settings = replace(Ranked.settings, slack=0)


def play(world: Chaos, random: Random, steps: int) -> None:
    """Let any of the rules happen, many times: more of a life than the state machine's careful steps."""
    world.begin(random.randint(0, 1 << 30))
    for _ in range(steps):
        acts = _acts(world, random)
        random.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()
        world.every_job_has_an_answer()
        world.at_rest_nobody_could_start_earlier()
        world.what_is_told_is_of_jobs_that_wait()


def _acts(world: Chaos, random: Random) -> list[tuple[int, Callable[[], None]]]:
    choice, number = random.choice, random.randint
    job, node, queue = choice(JOBS), choice(NODES), choice(QUEUES)
    return [
        (6, lambda: world.submit(job, choice(REQUESTS), choice(WALLTIMES), queue, number(0, 1200))),
        (
            2,
            lambda: world.alter(job, choice(REQUESTS), choice(WALLTIMES), queue, choice([None, 50, 500])),
        ),
        (3, lambda: world.touch(job, choice(TOUCHES))),
        (1, lambda: world.start_by_hand(job, node, number(1, 6))),
        (2, lambda: world.node(node, choice(STATES), choice([4, 4, 2, 8]))),
        (1, lambda: world.new_node(number(0, 4), number(0, 2))),
        (1, lambda: world.queue(queue, choice([True, True, False]), choice(["", "200"]), choice(LIMITS))),
        (1, lambda: world.change_server(choice([True, True, False]), choice(["", "400"]), choice(LIMITS))),
        (1, lambda: world.slot_limit(job, choice([None, 1, 2]))),
        (1, lambda: world.reserve("r1", [node], number(-100, 2000), choice([None, number(1, 2000)]), {})),
        (1, lambda: world.reserve("r2", [node], number(-100, 2000), number(1, 2000), choice(MORE))),
        (1, lambda: world.unreserve(choice(["r1", "r2"]))),
        (
            2,
            lambda: world.book(
                choice(["b1", "b2", "b3"]),
                choice(["1:ppn=2", "2:ppn=1", "1:ppn=4"]),
                number(0, 2000),
                number(0, 2000),
                number(1, 1000),
                choice([None, None, 100]),
            ),
        ),
        (1, lambda: world.do_with_booking(choice(["b1", "b2", "b3"]), choice(BOOKING_ACTS))),
        (2, lambda: world.search(number(0, 1 << 30), choice([True, False]))),
        (2, lambda: world.foretell(choice([True, False]))),
        (1, lambda: world.pause(choice(["", "", "upgrade"]))),
        (8, lambda: world.time_passes(choice([0, 1, 7, 30, 60, 130, 300, 1000, 4000]))),
        (1, lambda: world.weather(choice(FATES), choice(ADAPTERS))),
        (1, lambda: world.out_of_order(number(0, 1 << 30))),
        (1, lambda: world.clock_set_back(number(1, 500))),
        (1, lambda: world.snapshot(choice([True, True, False]), choice([None, 10, 1000]))),
        (1, lambda: world.nonsense(number(0, 1 << 30), job, node, number(-5000, 5000))),
    ]
