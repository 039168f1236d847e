"""The shell around an engine in random lives: batches, decisions, an adapter, a lossy line and a clock."""

from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from schedd.engine import Engine, EngineSettings
from schedd.policy.site import site_policy
from schedd.wire import (
    Decision,
    Event,
    JobDeleted,
    JobEnded,
    JobHeld,
    JobReleased,
    JobStarted,
    PlanImproved,
    Reserve,
    Run,
    RunAccepted,
    RunRefused,
    ShareFacts,
    StartsExpected,
)
from tests.engine.chaos.values import ADAPTERS, FATES, T, jobs, names, seeds
from tests.engine.server import Server

_ROUNDS = 200
"""Maximum number of calls at one moment until the engine settles."""


class Shell(RuleBasedStateMachine):
    """A lossy line between a server and an engine that checks all its invariants, and time that passes."""

    settings = EngineSettings(
        validate=True,
        slack="30",
        overrun_blocked=900,
        repair_slice=40,
        publish_rate=3,
        publish_pause=20,
        site=site_policy({"bookings": {"most": 3}}),
    ).with_changes(predict=True, queue_predict={"long": False})

    def __init__(self) -> None:
        super().__init__()
        self.server = Server(T)
        self.engine = Engine(self.settings, T)
        self.line: list[Event] = []
        self.past: list[Event] = []
        self.offered: list[Run] = []
        self.open: dict[str, Run] = {}
        self.fate, self.adapter = "prompt", "run"
        self.found: PlanImproved | None = None
        self.foretold: list[StartsExpected] = []

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
        """Return whether the adapter may still carry out this decision: for the unchanged job, before it
        expires.
        """
        job = self.server.jobs.get(job_id)
        return (
            run.job_id == job_id
            and self.engine.state.now <= run.expires
            and job is not None
            and (job.state, job.version) == ("Q", run.version)
        )

    # ---- the line -------------------------------------------------------------------------------

    @rule(dt=st.sampled_from([0, 1, 7, 60, 130, 300, 1000, 4000]))
    def time_passes(self, dt: int) -> None:
        """Advance the clock to each wake-up time of the engine."""
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
            elif self.adapter == "fragmented":
                self.line += self.server.refuse(decision, 0, "no vnode", fragmented=True)

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
