"""The centre of docs/examples/centre.toml on emulated servers of both families, with adapter and daemon.

In the test a fiftieth of its nodes and limits; jobs run for seconds. ``CENTRE_NODES=1000`` runs the full
size, which takes minutes. ``test_centre.py`` runs it without servers, for simulated hours.
"""

import asyncio
import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from schedd.engine.facts.records import MAY_BREAK
from server_adapter.emulator import JobState, NodeSpec, lifecycle
from server_adapter.emulator.jobs import Job, JobOrder, JobOutcome
from server_adapter.openpbs.notation import exec_vnode
from tests.features.test_centre import CORES, EXAMPLE, GPUS, PROPERTIES, SLICES
from tests.server_adapter.bridge.processes import ProcessHarness
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

NODES: Final = int(os.environ.get("CENTRE_NODES", "20"))
SCALE: Final = 1000 // NODES
GROWTH: Final = NODES // 20
"""Jobs have this many times the nodes that they have in the test."""
JOBS: Final = 48 if GROWTH == 1 else 250
LIMITS: Final = {"accel": 400 // SCALE, "user": 8192 // SCALE, "high": 2048 // SCALE}
"""Cpus of all jobs in `accel`, of a user's jobs, and of a user's with QOS `high`."""
RESERVED: Final = {"course": 8, "short": 2}
"""Cores of each node of the laboratory that are reserved, by kind of the jobs with access."""
KINDS: Final = (
    *("wide", "gpu", "slice", "course", "short", "idle", "small", "high"),
    *("small", "urgent", "idle", "slice"),
)
SLICE: Final = "mig_1g10gb"


def nodes() -> list[NodeSpec]:
    """Four fifths are ``general``, half ``parallel`` and a fifth ``accel``: the first half of these has whole
    gpus, the second slices. A tenth is the laboratory.
    """
    found = []
    for number in range(1, NODES + 1):
        gpu = number > NODES * 4 // 5
        member = {"cpu": not gpu, "ib": number > NODES // 2 - 1, "gpu": gpu, "lab": number <= NODES // 10}
        whole = gpu and number <= NODES * 9 // 10
        found.append(
            NodeSpec(
                f"n{number}",
                CORES,
                tuple(name for name, holds in member.items() if holds),
                64 << 20,
                gpus=GPUS * whole,
                gres=f"{SLICE}:{SLICES}" if gpu and not whole else "",
            )
        )
    return found


LABORATORY: Final = frozenset(one.name for one in nodes() if "lab" in one.properties)
SPECS: Final = {one.name: one for one in nodes()}


def site_settings(family: str) -> str:
    """The example's settings: limits of this size, reservations that hold all day, preemptions at once.
    Properties are boolean resources in OpenPBS.
    """
    text = EXAMPLE.read_text("utf-8")
    text = re.sub(r"amount = (\d+)", lambda found: f"amount = {int(found[1]) // SCALE}", text)
    text = re.sub(r"first = \S+", "first = 2023-11-15T00:00:00", text)
    text = re.sub(r"last = \S+", "last = 2023-11-16T00:00:00", text)
    text = text.replace('wait = "5m"', "wait = 0").replace('min_run = "10m"', "min_run = 0\nrelease_time = 5")
    if family == "openpbs":
        text = re.sub(r'(properties|features) = \["(\w+)"\]', r'\1 = ["\2=True"]', text)
    begin = text.index("[clusters.main.site.")
    return text[begin:]


@dataclass(frozen=True, slots=True, kw_only=True)
class CentreJob:
    """A job of the mix, in no dialect."""

    kind: str
    user: str
    account: str
    count: int = 1
    cores: int = 2
    gpus: int = 0
    slices: int = 0
    lab: bool = False
    queue: str = ""
    partition: str = ""
    qos: str = ""
    walltime: int = 3600
    runtime: float = 1.0

    def order(self, family: str) -> JobOrder:
        """Its submission to a server of this family."""
        extra, resources = {"Account_Name": self.account}, {"walltime": str(self.walltime)}
        if family == "openpbs":
            wishes = {"ngpus": self.gpus, SLICE: self.slices, "lab": "True" if self.lab else ""}
            words = [f"{name}={value}" for name, value in wishes.items() if value]
            resources["select"] = ":".join([str(self.count), f"ncpus={self.cores}", *words])
            resources |= {"node_partition": self.partition} if self.partition else {}
            resources |= {"qos": self.qos} if self.qos else {}
        else:
            words = [f"gpus={self.gpus}"] if self.gpus else []
            resources["nodes"] = ":".join(
                [str(self.count), f"ppn={self.cores}", *words, *(["lab"] if self.lab else [])]
            )
            resources |= {"gres": f"{SLICE}:{self.slices}"} if self.slices else {}
            wishes = {"PARTITION": self.partition, "QOS": self.qos}
            if any(wishes.values()):
                extra["x"] = ";".join(f"{name}:{value}" for name, value in wishes.items() if value)
        return JobOrder(
            user=self.user,
            group="physics",
            name=self.kind,
            queue=self.queue,
            resources=resources,
            extra=extra,
            outcome=JobOutcome(self.runtime),
        )


def report(words: str) -> None:
    """Figures for the page about the centre, with `pytest -s`."""
    sys.stdout.write(f"\n{words}\n")


def draw_job(rng: random.Random, kind: str) -> CentreJob:
    user, account = rng.choice(["ann", "bob", "cyd"]), rng.choice(["theory", "biology", "physics"])
    runtime = rng.uniform(1, 4) * (1 if GROWTH == 1 else 5)
    job = CentreJob(kind=kind, user=user, account=account, runtime=runtime)
    size = rng.choice([1, 2]) * GROWTH
    match kind:
        case "wide":
            return replace(job, count=4 * GROWTH, cores=CORES, partition=rng.choice(["general", "parallel"]))
        case "gpu":
            return replace(job, count=GROWTH, cores=8, gpus=2, partition="accel")
        case "slice":
            return replace(job, slices=rng.randint(1, 3))
        case "course":
            return replace(job, account="course", cores=4, lab=True)
        case "short":
            return replace(job, walltime=1200, lab=True)
        case "high":
            return replace(job, count=GROWTH, cores=rng.choice([16, CORES]), qos="high")
        case "idle" | "urgent":
            return replace(job, count=2 * size, cores=CORES, queue=kind)
        case _ if rng.random() < 0.3:
            return replace(job, count=rng.choice([1, 2]), cores=16, lab=True)
        case _:
            return replace(job, count=size, cores=rng.choice([4, 16, CORES]))


def limited_jobs() -> list[CentreJob]:
    """Two jobs for each limit, and two for the reserved cores, which without it would run at the same time on
    the empty cluster.
    """
    job = CentreJob(kind="gpu", user="", account="physics", cores=CORES, runtime=3.0)
    kinds = [
        replace(job, user="gil", count=GROWTH, cores=8, gpus=2, partition="accel"),
        replace(job, kind="high", user="hal", count=GROWTH, qos="high"),
        replace(job, kind="wide", user="ida", count=4 * GROWTH, partition="general"),
        replace(job, kind="small", user="joe", count=len(LABORATORY), cores=12, lab=True),
    ]
    return [one for one in kinds for _ in range(2)]


def opening() -> list[CentreJob]:
    """Scavengers of several users on all nodes outside the laboratory, and an urgent job."""
    idle = CentreJob(kind="idle", user="", account="theory", count=4 * GROWTH, cores=CORES, queue="idle")
    idle = replace(idle, runtime=20.0 * (1 if GROWTH == 1 else 5))
    return [
        *(replace(idle, user=f"idle{number}") for number in range(4)),
        replace(idle, kind="urgent", user="eve", queue="urgent", runtime=2.0),
    ]


@dataclass(slots=True)
class Referee:
    """Checks after each start that no node, limit or reserved core is exceeded. Only starts can do that."""

    family: str
    jobs: dict[str, CentreJob] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    peaks: Counter[str] = field(default_factory=Counter)
    starts: Counter[str] = field(default_factory=Counter)
    checks: int = 0

    def check(self, running: list[Job]) -> None:
        self.checks += 1
        used: dict[str, Counter[str]] = {name: Counter() for name in ("cpus", "gpus", SLICE, "outside")}
        by_user: dict[str, Counter[str]] = {"user": Counter(), "high": Counter()}
        accel = 0
        for one in running:
            job = self.jobs.get(one.id)
            if job is None:  # started in the moment of its submission
                continue
            cpus = self._cpus(one, job)
            size = sum(cpus.values())
            used["cpus"].update(cpus)
            used["gpus"].update(dict.fromkeys(cpus, job.gpus))
            used[SLICE].update(dict.fromkeys(cpus, job.slices))
            by_user["user"][job.user] += size
            by_user["high"][job.user] += size if job.qos == "high" else 0
            accel += size if job.partition == "accel" else 0
            if job.kind not in RESERVED:
                used["outside"].update(cpus)
            if job.partition:
                wanted = PROPERTIES[job.partition]
                self._require(all(wanted in SPECS[n].properties for n in cpus), f"{one.id} on {cpus}")
        for name, amount in used["cpus"].items():
            self._require(amount <= CORES, f"{amount} cpus of {name}")
            self._require(used["gpus"][name] <= SPECS[name].gpus, f"{used['gpus'][name]} gpus of {name}")
            slices = int(SPECS[name].gres.partition(":")[2] or 0)
            self._require(used[SLICE][name] <= slices, f"{used[SLICE][name]} slices of {name}")
        for name in LABORATORY:
            free = CORES - sum(RESERVED.values())
            self._require(used["outside"][name] <= free, f"reserved cores of {name}")
        self._require(accel <= LIMITS["accel"], f"{accel} cpus in accel")
        for what, amounts in by_user.items():
            most = max(amounts.values(), default=0)
            self._require(most <= LIMITS[what], f"{most} cpus of one {what}")
            self.peaks[what] = max(self.peaks[what], most)
        self.peaks["accel"] = max(self.peaks["accel"], accel)
        self.peaks["cpus"] = max(self.peaks["cpus"], used["cpus"].total())
        self.peaks["slices"] = max(self.peaks["slices"], used[SLICE].total())
        self.peaks["gpus"] = max(self.peaks["gpus"], used["gpus"].total())

    def _cpus(self, one: Job, job: CentreJob) -> Counter[str]:
        if self.family == "torque":
            return Counter({name: len(slots) for name, slots in one.held_slots})
        found: Counter[str] = Counter()
        for chunk in exec_vnode(one.attributes["exec_vnode"]):
            for piece in chunk:
                found[piece.vnode] += int(dict(piece.resources).get("ncpus", 0))
        assert found.total() == job.count * job.cores, one.attributes["exec_vnode"]
        return found

    def _require(self, holds: bool, words: str) -> None:
        if not holds:
            self.faults.append(words)


async def noted_past(house: ProcessHarness, name: str) -> dict[str, Any]:
    """What the database has of an ended job; it may be written a moment later."""
    until = time.monotonic() + WAIT_S
    while True:
        with suppress(OSError):
            past: dict[str, Any] | None = (await house.request(f"/jobs/{name}/history"))["past"]
            if past is not None and past["ended"] is not None:
                return past
        assert time.monotonic() < until, name
        await asyncio.sleep(0.1)


def check_noted_start(past: dict[str, Any]) -> bool:
    """The database has the reason of an ended job's start, and whether its promise was kept."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for moment in past["moments"]:
        kinds.setdefault(moment["kind"], []).append(moment)
    assert any(moment["words"] for moment in kinds["decision"]), past
    promised = past["promised_start"]
    assert promised is None or past["runs"] > 1 or "breach" in kinds or past["started"] <= promised, past
    return "breach" in kinds


@pytest.mark.timeout(600 if GROWTH == 1 else 0)
@pytest.mark.parametrize("version", ["6.1", "openpbs"])
async def test_a_centre_keeps_its_limits_and_explains_each_start_over_the_wire(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(41)
    # The emulated server of the full size needs seconds to describe its nodes.
    interval, timeout, snapshot = (0.3, 2.0, 3.0) if GROWTH == 1 else (3.0, 60.0, 60.0)
    house = ProcessHarness(
        tmp_path, version, nodes=nodes(), interval=interval, timeout=timeout, snapshot=snapshot
    )
    referee = Referee(house.family)
    config = tmp_path / "schedd0.toml"
    config.write_text(config.read_text() + "slack = 1800\n" + site_settings(house.family))
    begin: Callable[..., None] = lifecycle.begin

    def begin_and_check(cluster: Any, job: Job, **more: Any) -> None:
        begin(cluster, job, **more)
        referee.starts[job.id] += 1
        referee.check([one for one in cluster.jobs.values() if one.state is JobState.RUNNING])

    monkeypatch.setattr(lifecycle, "begin", begin_and_check)
    kept = {"keep_completed": "36000"} if house.family == "torque" else {}
    async with house.running(**kept):
        cluster: Any = house.server.cluster
        plain = cluster.queues[cluster.attributes["default_queue"]]
        for name in ("urgent", "idle"):
            cluster.queues[name] = replace(plain, name=name, attributes=dict(plain.attributes))
        if house.family == "openpbs":
            cluster.resources |= {"qos": ("string", ""), "node_partition": ("string", "")}
            cluster.schedulers["default"].attributes |= {"scheduling": "True"}
        house.adapter.start()
        jobs: list[str] = []
        explained: dict[str, dict[str, Any]] = {}
        promised: dict[str, int] = {}
        finished, at_once = True, 4 * GROWTH
        *scavengers, urgent = opening()
        waves = [limited_jobs(), scavengers, [urgent]]
        begun = time.monotonic()
        until = begun + WAIT_S * GROWTH
        while waves or len(jobs) < JOBS or not finished:
            assert time.monotonic() < until, Counter(house.server.job(one).state for one in jobs)
            assert not referee.faults, referee.faults
            new: list[CentreJob] = []
            if waves and (len(waves) < 2 or finished):  # the last one as soon as the scavengers run
                new = waves.pop(0) if len(referee.starts) == len(jobs) else []
            elif not waves and len(jobs) < JOBS:
                new = [draw_job(rng, KINDS[(len(jobs) + n) % len(KINDS)]) for n in range(at_once)]
            for job in new:
                entered: Any = house.server.enter(job.order(house.family))
                jobs.append(str(getattr(entered, "id", entered)))
                referee.jobs[jobs[-1]] = job
            states = {one: house.server.job(one) for one in jobs}
            unexplained = [one for one in states.values() if one.id not in explained]
            running = [one for one in unexplained if one.state is JobState.RUNNING]
            waiting = [one for one in unexplained if one.state is JobState.QUEUED and one.id not in promised]
            for one in (*running, *waiting[:20]):
                with suppress(OSError):  # the job is not known yet, or the daemon is busy
                    view = await house.request(f"/jobs/{one.id}")
                    if view["job_state"] == "R":
                        explained[one.id] = view
                    elif view["promised_start"] is not None:
                        promised.setdefault(one.id, view["promised_start"])
            await asyncio.sleep(0.1)
            states = {one: house.server.job(one) for one in jobs}
            finished = all(one.state is JobState.COMPLETE or one.finished for one in states.values())
        assert not referee.faults, referee.faults
        broken: Counter[str] = Counter()
        for name, view in explained.items():
            assert view["why"], name
            causes = {one["cause"] for one in view["breaches"]}
            broken.update(causes)
            assert causes <= {cause.value for cause in MAY_BREAK}, (name, causes)
            assert causes or view["started"] <= promised.get(name, view["started"]), json.dumps(view)
        assert explained, "starts are explained while the jobs run"
        noted = [check_noted_start(await noted_past(house, name)) for name in jobs]
        assert len(referee.starts) == len(jobs)
        preempted = {referee.jobs[one].kind for one, count in referee.starts.items() if count > 1}
        assert preempted, "urgent jobs preempt"
        assert not preempted & {"urgent", "high"}, preempted
        assert referee.peaks["cpus"] > 0.6 * CORES * NODES, "the limits matter only on a full cluster"
        assert min(referee.peaks["slices"], referee.peaks["gpus"]) > 0
        for what, amount in LIMITS.items():
            assert referee.peaks[what] > 0.7 * amount, f"without the limit of {what}, more would run"
        report(
            f"{house.family}: {NODES} nodes, {len(jobs)} jobs, {sum(referee.starts.values())} starts, "
            f"{len(explained)} explained while they ran, {len(noted)} noted "
            f"({sum(noted)} broken promises), {len(promised)} promises noted, broken: {dict(broken)}, "
            f"peaks {dict(referee.peaks)}, {time.monotonic() - begun:.0f} s"
        )
