"""The centre of docs/examples/centre.toml: all features at once, on 1,000 nodes."""

import random
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import schedd
from schedd.engine.facts.records import MAY_BREAK, Breach, Cause
from schedd.engine.show.job_view import job_view
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.partitions.state import chosen_partition
from schedd.features.preemption.state import preemption_state
from schedd.features.reservations.state import reservation_access, reservation_records
from schedd.model import FOREVER
from schedd.service.questions.explain import explain
from schedd.service.questions.plan_fork import fork_plan
from schedd.service.settings.cluster import ClusterSettings
from schedd.wire import Event, JobFacts, NodeFacts, Preempt, PreemptionDone, QueueFacts, Run
from tests.engine.cluster import Cluster

EXAMPLE = Path(schedd.__file__).parents[1] / "docs" / "examples" / "centre.toml"
CORES = 32
GPUS = 4
SLICES = 7
HOUR = 3600
MIN_RUN = 600
GUESTS = "guests"
"""Group that may use neither partition `accel` nor QOS `high`."""
LIMITS = {"accel": 400, "user": 8192, "high": 2048}
"""Cpus of all jobs in `accel`, of a user's jobs, and of a user's with QOS `high`."""
PROPERTIES = {"general": "cpu", "parallel": "ib", "accel": "gpu"}
"""Property of the nodes of each partition."""
KINDS = {
    "wide": 22,
    "small": 14,
    "high": 12,
    "gpu": 8,
    "slice": 6,
    "course": 8,
    "short": 8,
    "idle": 12,
    "urgent": 10,
}
"""Kinds of jobs, with their weights in the mix."""


def configured_site() -> dict[str, Any]:
    """The site's settings of the example."""
    return ClusterSettings(**tomllib.loads(EXAMPLE.read_text("utf-8"))["clusters"]["main"]).site.plain


def centre_nodes() -> list[NodeFacts]:
    """``general`` and ``parallel`` share 301 nodes, ``parallel`` and ``accel`` 200."""
    nodes = []
    for number in range(1, 1001):
        sets = [("cpu", number <= 800), ("ib", number > 499), ("gpu", number > 800), ("lab", number <= 40)]
        gpu = number > 800
        nodes.append(
            NodeFacts(
                name=f"n{number}",
                cpus=CORES,
                gpus=GPUS if gpu and number <= 900 else 0,
                properties=tuple(name for name, member in sets if member),
                resources={"mig_1g10gb": SLICES} if gpu and number > 900 else {},
            )
        )
    return nodes


class Centre(Cluster):
    """The centre with its server, which preempts at once. After each batch its invariants are checked."""

    def __init__(self, site: dict[str, Any]) -> None:
        self.examined = 0
        self.checked: set[tuple[str, int | None]] = set()
        self.promised: dict[str, tuple[int, int]] = {}
        """By waiting job: its promise, and how many were broken before."""
        self.broken: list[Breach] = []
        self.peaks: Counter[str] = Counter()
        self.youngest = FOREVER
        """Seconds that the youngest preempted run had run for."""
        self.reserved: set[str] = set()
        """Reservations that were in force when jobs were checked."""
        super().__init__(0, site=site, validate=False, slack=1800)
        for node in centre_nodes():
            self.server.nodes[node.name] = node
        for name in ("urgent", "idle"):
            self.server.queues[name] = QueueFacts(name=name)
        self.send(self.server.snapshot())

    def _handle(self, events: tuple[Event, ...]) -> None:
        before = len(self.decisions)
        super()._handle(events)
        while orders := [one for one in self.decisions[before:] if isinstance(one, Preempt)]:
            before = len(self.decisions)
            for one in orders:
                victim = self.server.jobs[one.job_id]
                assert victim.queue != "urgent", f"targets of preemption: {victim}"
                assert victim.resources.get("qos") != "high", f"targets of preemption: {victim}"
                ran = self.server.now - (victim.started or 0)
                assert ran >= MIN_RUN, f"min_run: {victim.id} was preempted after {ran} s"
                self.youngest = min(self.youngest, ran)
                self.promised.pop(one.job_id, None)  # it gets a new one
                done = PreemptionDone(
                    id=self.server.event_id(),
                    time=self.server.now,
                    decision_id=one.id,
                    job_id=one.job_id,
                    done=True,
                    text="",
                )
                super()._handle((done, *self.server.requeue(one.job_id)))
        self.check_invariants()
        self.check_starts()
        self.note_promises()

    def note_promises(self) -> None:
        """Remember the promise of each waiting job; a later one replaces it only with a recorded cause."""
        for job in self.server.jobs.values():
            record = self.engine.state.records.get(job.id)
            if job.shares or record is None or record.slot < 0:
                continue
            promise = int(self.engine.state.promise[record.slot])
            if promise < FOREVER:
                kept, broken = self.promised.setdefault(job.id, (promise, len(record.breaches)))
                if promise > kept:
                    assert len(record.breaches) > broken, job
                    self.note_breaches(record.breaches[broken:])
                    self.promised[job.id] = promise, len(record.breaches)

    def note_breaches(self, breaches: Sequence[Breach]) -> None:
        """Only some causes may break promises."""
        assert {one.cause for one in breaches} <= MAY_BREAK
        self.broken += breaches

    def check_starts(self) -> None:
        """The new runs have a reason for their start, and late ones a cause that may break promises."""
        new = [one.job_id for one in self.decisions[self.examined :] if isinstance(one, Run)]
        self.examined = len(self.decisions)
        if not new:
            return
        published = publish_snapshot(self.engine.state)
        for job in new:
            promise, broken = self.promised.pop(job, (self.server.now, 0))
            view = job_view(published, job)
            if view is not None:  # else it has ended
                breaches = self.record(job).breaches[broken:]
                self.note_breaches(breaches)
                assert breaches or self.server.now <= promise, job
                assert view.why, job
                assert view.last_change is not None, job
                assert view.last_change.words, job

    def partition(self, job: JobFacts) -> str | None:
        return job.resources.get("partition") or chosen_partition(self.engine.state, job.id)

    def running(self) -> list[JobFacts]:
        return [job for job in self.server.jobs.values() if job.shares]

    def check_invariants(self) -> None:
        """No node, limit or reserved core is exceeded now. Only starts and ends can change that."""
        jobs = self.running()
        if (run := {(job.id, job.started) for job in jobs}) == self.checked:
            return
        self.checked = run
        now = self.server.now
        cpus: Counter[str] = Counter()
        gpus: Counter[str] = Counter()
        slices: Counter[str] = Counter()
        by_user: Counter[str] = Counter()
        by_high_user: Counter[str] = Counter()
        outside: Counter[tuple[str, str]] = Counter()
        reservations = [
            one
            for one in reservation_records(self.engine.state).values()
            if one.event.start <= now < (one.event.end or now + 1)
        ]
        accel = inside = 0
        nodes = self.server.nodes
        for job in jobs:
            assert job.group != GUESTS, f"access to partition accel and QOS high: {job}"
            user, walltime = job.owner.partition("@")[0], int(job.resources["walltime"])
            size = sum(share.cpus for share in job.shares)
            by_user[user] += size
            partition = self.partition(job)
            accel += size if partition == "accel" else 0
            if partition is not None:
                wanted = PROPERTIES[partition]
                outside_it = [one.node for one in job.shares if wanted not in nodes[one.node].properties]
                assert not outside_it, f"partition {partition}: {job.id} runs on {outside_it}"
            inside += size if job.account == "course" else 0
            each = int(job.resources.get("gres", ":0").partition(":")[2])
            if job.resources.get("qos") == "high":
                by_high_user[user] += size
            for share in job.shares:
                cpus[share.node] += share.cpus
                if share.gpus:
                    gpus[share.node] += share.gpus
                if each:
                    slices[share.node] += each
            before = [one for one in reservations if (job.started or 0) >= one.event.start]
            for one in before:
                if not reservation_access(one.event).admits(
                    job.owner, job.group, job.account, job.queue, walltime
                ):
                    for share in job.shares:
                        outside[one.event.name, share.node] += share.cpus
        self.reserved |= {one.event.name.partition("@")[0] for one in reservations}
        assert max(cpus.values(), default=0) <= CORES, f"cores of a node: {cpus.most_common(3)}"
        for what, used, most in (
            ("gpus", gpus, {name: node.gpus for name, node in nodes.items()}),
            ("slices", slices, {name: node.resources.get("mig_1g10gb", 0) for name, node in nodes.items()}),
        ):
            beyond = {name: amount for name, amount in used.items() if amount > most[name]}
            assert not beyond, f"{what} of nodes: {beyond}"
        held = {"accel": accel, "user": max(by_user.values(), default=0)}
        held["high"] = max(by_high_user.values(), default=0)
        for what, amount in held.items():
            assert amount <= LIMITS[what], f"limit of {what}: {amount} cpus"
            self.peaks[what] = max(self.peaks[what], amount)
        for one in reservations:
            for name in one.names:
                taken = outside[one.event.name, name]
                assert taken <= CORES - one.event.cores, (
                    f"reserved cores of {one.event.name}: {taken} of {name}"
                )
        self.peaks["cpus"] = max(self.peaks["cpus"], sum(cpus.values()))
        self.peaks["course"] = max(self.peaks["course"], inside)
        self.peaks["slices"] = max(self.peaks["slices"], sum(slices.values()))


def submit_mix(centre: Centre, rng: random.Random, number: int) -> None:
    """Submit one job of a random kind."""
    kind = rng.choices(
        list(KINDS),
        list(KINDS.values()),
    )[0]
    user = rng.choice(["ann", "bob", "cyd", "dan", "eve"])
    account = rng.choice(["theory", "biology", "physics"])
    more: dict[str, Any] = {"owner": f"{user}@login", "account": account, "group": "physics"}
    resources: dict[str, str] = {}
    walltime = rng.choice([1, 2, 4, 8]) * HOUR
    nodes = f"{rng.choice([1, 2, 4])}:ppn={rng.choice([4, 16, 32])}"
    match kind:
        case "wide":
            nodes = f"{rng.choice([64, 128, 200])}:ppn=32"
            resources["partition"] = rng.choice(["general", "parallel"])
        case "high":
            nodes, resources["qos"] = f"{rng.choice([8, 32])}:ppn=32", "high"
        case "gpu":
            nodes, resources["partition"] = f"{rng.choice([1, 4, 16])}:ppn=8:gpus=2", "accel"
        case "slice":
            nodes, resources["gres"] = "1:ppn=2", f"mig_1g10gb:{rng.randint(1, 3)}"
        case "course":
            nodes, more["account"], walltime = "1:ppn=4:lab", "course", HOUR
        case "short":
            nodes, walltime = "1:ppn=2:lab", 1200
        case "idle":
            nodes, more["queue"] = f"{rng.choice([8, 64])}:ppn=32", "idle"
        case "urgent":
            nodes, more["queue"], walltime = f"{rng.choice([32, 128])}:ppn=32", "urgent", HOUR
        case _:
            nodes = f"{nodes}:lab" if rng.random() < 0.5 else nodes
    runtime = max(60, int(walltime * rng.uniform(0.2, 1)))
    centre.submit(f"{kind}{number}", nodes, walltime, runtime=runtime, resources=resources, **more)


def check_explanations(centre: Centre) -> int:
    """Each waiting job has an explanation, which names what prevents an earlier start."""
    state = centre.engine.state
    fork = fork_plan(centre.engine, publish_snapshot(state))
    waiting = [job.id for job in centre.server.jobs.values() if not job.shares]
    for job in waiting[:25]:
        found = explain(fork, job, centre.server.now)
        assert found is not None
        assert found.why, job
        if found.planned_start is not None and found.planned_start > centre.server.now:
            assert found.blockers or found.has_room_sooner or found.earliest_why, (job, found.why)
    return min(len(waiting), 25)


def test_a_whole_centre_keeps_its_limits_and_explains_each_start() -> None:
    rng = random.Random(41)
    centre = Centre(configured_site())
    explained, number = 0, 0
    for resource, name, reason in (
        ("partition", "accel", "partition accel is not open to the job"),
        ("qos", "high", "it requests QOS high, which neither user guy, group guests"),
    ):
        more: dict[str, Any] = {"group": GUESTS, "resources": {resource: name}}
        centre.submit(f"guest-{name}", "1:ppn=1", HOUR, owner="guy@login", **more)
        answer = centre.view(f"guest-{name}").requirement
        assert answer.startswith(reason), f"access to {resource} {name}: {answer}"
    for number in range(3):  # their cores fit on one node, their slices on three
        slices = {"gres": f"mig_1g10gb:{SLICES // 2 + 1}"}
        centre.submit(f"slice{number}", "1:ppn=2", HOUR, owner="fay@login", group="physics", resources=slices)
    for step in range(11):
        for _ in range(16 if step < 8 else 0):
            number += 1
            submit_mix(centre, rng, number)
        explained += check_explanations(centre) if step % 2 == 0 else 0
        if step in (4, 7):  # a part of a full cluster fails for three hours
            for node in range(1, 301):
                centre.node(f"n{node}", state="down" if step == 4 else "up")
        centre.at((step + 1) * HOUR)
    assert preemption_state(centre.engine.state).count > 2, "urgent jobs preempt"
    kinds = {one.job_id.rstrip("0123456789") for one in centre.decisions if isinstance(one, Run)}
    assert {one.cause for one in centre.broken} == {Cause.NODE_LOST}
    assert kinds == set(KINDS)
    assert explained > 50
    assert centre.reserved == {"course", "short"}
    assert centre.youngest < 2 * HOUR, "min_run protects only young runs"
    assert centre.peaks["cpus"] > 0.9 * CORES * 1000, "the limits matter only on a full cluster"
    assert min(centre.peaks["slices"], centre.peaks["course"]) > 0
    for what, amount in LIMITS.items():
        assert centre.peaks[what] > 0.9 * amount, f"without the limit of {what}, more would run"
