"""Each capability of the site's policy, planned for jobs that a server tells of over its own wire.

One job holds the whole machine; all others are planned behind it, so that the plan shows what would be done.
"""

import asyncio
import contextlib
import time
import urllib.error
import urllib.parse
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from server_adapter.emulator import EmulatedServer, NodeSpec, State
from server_adapter.emulator.jobs import Queue
from server_adapter.emulator.lifecycle import settle
from server_adapter.torque import Address, AnyPort, open_connection, verbs
from server_adapter.torque.errors import ServerRefusedError
from tests.server_adapter.bridge.processes import House

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1200)]  # the kernels may have to be compiled first

NODES = [
    NodeSpec(
        f"n{i}",
        4,
        (f"rack{(i + 1) // 2}", "old" if i > 6 else "new", *(("big",) if i % 2 else ())),
        gpus=2 if i == 6 else 0,
        gres="scratch:10" if i == 4 else "",
    )
    for i in range(1, 9)
]
"""n1 and n2 in rack 1, n3 and n4 in rack 2, ...; odd ones big, n7 and n8 old; n6 has gpus, n4 scratch."""
WALL = 2000
"""For so long the first job holds all of them; then the plan begins."""
ALLOWANCE = 20
_PATIENCE = 60.0
SLACK = 5000
HOUR = 3600


def site(now: datetime) -> str:
    """What is said in schedd.toml: a quota that holds from an hour after the wall's end for a day."""
    quota = now + timedelta(seconds=WALL + HOUR)
    return f"""
        slack = {SLACK}
        slack_share = 0
        priority_every = 1
        [clusters.main.site.priority]
        wish = 1.0
        short = 1.0
        licences = 1.0
        deadline = 1.0
        waiting = 0.001
        [[clusters.main.site.limits]]
        what = "cpus"
        who = "user"
        name = "cora"
        amount = 4
        [[clusters.main.site.limits]]
        what = "nodes"
        who = "user"
        name = "nora"
        amount = 2
        [[clusters.main.site.limits]]
        what = "walltime"
        who = "user"
        name = "walt"
        amount = 150
        [[clusters.main.site.limits]]
        who = "user"
        name = "quentin"
        amount = 1
        first = {quota.isoformat()}
        last = {(quota + timedelta(days=1)).isoformat()}
        [clusters.main.site.licences.ansys]
        copies = 1
        [clusters.main.site.node_sets]
        sets = {{ a = ["rack1"], b = ["rack2"], c = ["rack3"], d = ["rack4"] }}
        wait = 500
        [clusters.main.site.classes.urgent]
        points = 1000
        queues = ["urgent"]
        breaks_promises = true
        [clusters.main.site.reservations.course]
        nodes = ["n8"]
        users = ["tina"]
        first = {(now - timedelta(hours=1)).isoformat()}
        last = {(now + timedelta(days=1)).isoformat()}
        """


@dataclass
class Bench:
    """The house, and the moment at which the plan begins."""

    house: House
    wall: str
    begin: int

    @property
    def server(self) -> EmulatedServer:
        return self.house.server

    def submit(self, user: str, nodes: str = "1:ppn=1", walltime: int = 100, **more: Any) -> str:
        wanted = {"nodes": nodes, "walltime": str(walltime), **more.pop("resources", {})}
        return self.server.submit(user, resources=wanted, **more)

    async def seen(self, job: str, when: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The job's answer as soon as it is so."""
        answer: dict[str, Any] = {}
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            with contextlib.suppress(urllib.error.HTTPError):  # it was not heard of yet
                answer = await self.house.ask(f"/jobs/{urllib.parse.quote(job)}")
                if when(answer):
                    return answer
            assert not self.house.adapter.ended, self.house.adapter.log.read_text()
            await asyncio.sleep(0.1)
        raise AssertionError(f"{job} was never so: {answer}")

    async def planned(self, job: str, at: int | None = None) -> dict[str, Any]:
        """The answer of a job as soon as it has a start: ``at`` so many seconds after the plan's begin."""

        def is_so(one: dict[str, Any]) -> bool:
            start = one["planned_start"]
            return start is not None and at in (None, start - self.begin)

        return await self.seen(job, is_so)

    async def start(self, *jobs: str, at: list[int]) -> None:
        """Wait until the jobs are planned at these moments, whichever of them at which."""
        found: list[int] = []
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            found = [(await self.planned(job))["planned_start"] - self.begin for job in jobs]
            if sorted(found) == sorted(at):
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"planned at {found}, not at {at}")

    async def waits(self, job: str, for_what: str) -> str:
        answer = await self.seen(job, lambda one: one["waiting_for"] == for_what)
        assert answer["planned_start"] is None
        why: str = answer["why"]
        return why

    async def clear(self) -> None:
        """Let the jobs of a test be gone for those that follow."""
        left = [
            job.id for job in self.server.cluster.jobs.values() if not job.finished and job.id != self.wall
        ]
        async with await open_connection(Address(*self.server.address), AnyPort()) as connection:
            for job in left:
                with contextlib.suppress(ServerRefusedError):  # it was deleted with another
                    await connection.request(verbs.delete(job))
        while len((await self.house.ask("/jobs"))["jobs"]) > 1:
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    directory = tmp_path_factory.mktemp("policy")
    house = House(directory, "4.2", nodes=NODES, interval=0.2)
    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    with (directory / "schedd0.toml").open("a") as config:
        config.write(site(now))
    async with house.server as server:
        cluster = server.cluster
        cluster.attributes |= {
            "scheduling": "True",
            "keep_completed": "3600",
            "max_user_run": "30",
            "resources_default.walltime": "00:05:00",
            "resources_available.fluent": "2",
        }
        for name, attributes in QUEUES.items():
            cluster.queues[name] = Queue(name, {"enabled": "True", "started": "True"} | attributes)
        house.configure()
        house.daemon.start()
        try:
            await house.ready()
            wall = server.submit(
                "tina", resources={"nodes": "8:ppn=4", "walltime": str(WALL)}, runtime=3000.0
            )
            house.adapter.start()
            while server.job(wall).state is not State.RUNNING:
                assert not house.adapter.ended, house.adapter.log.read_text()
                await asyncio.sleep(0.05)
            made = Bench(house, wall, 0)
            running = await made.seen(wall, lambda one: one["state"] == "running")
            made.begin = running["planned_end"] + ALLOWANCE
            yield made
        finally:
            house.adapter.kill()
            house.daemon.kill()


@pytest.fixture(autouse=True)
async def _alone(bench: Bench) -> AsyncIterator[None]:
    yield
    await bench.clear()


QUEUES: Mapping[str, dict[str, str]] = {
    "stopped": {"started": "False"},
    "urgent": {},
    "slow": {"Priority": "0"},
    "quick": {"Priority": "50"},
    "one": {"max_running": "1"},
    "each": {"max_user_run": "1"},
    "group": {"max_group_run": "1"},
    "named": {"max_run": "[u:PBS_GENERIC=1], [u:xena=2]"},
    "cpus": {"max_run_res.ncpus": "[o:PBS_ALL=4]"},
    "users": {"max_user_res.ncpus": "4"},
    "whole": {"resources_default.naccesspolicy": "singlejob"},
    "mapped": {"resources_default.neednodes": "old"},
    "featured": {"features_required": "rack3"},
}


# ---- eligibility and state ----------------------------------------------------------------------


async def test_a_job_of_a_stopped_queue_is_planned_when_the_queue_is_started(bench: Bench) -> None:
    job = bench.submit("ann", queue="stopped")
    assert "queue stopped, which is stopped" in await bench.waits(job, "queue")
    bench.server.cluster.queues["stopped"].attributes["started"] = "True"
    await bench.planned(job, at=0)
    bench.server.cluster.queues["stopped"].attributes["started"] = "False"
    await bench.waits(job, "queue")


@pytest.mark.parametrize(("letter", "name"), [("u", "user"), ("o", "operator"), ("s", "system")])
async def test_a_held_job_is_planned_when_it_is_released(bench: Bench, letter: str, name: str) -> None:
    job = bench.submit("ann", holds=letter)
    assert f"{name} hold" in await bench.waits(job, "hold")
    held = bench.server.job(job)
    held.holds.clear()
    held.revision += 1
    settle(bench.server.cluster, held)
    await bench.planned(job, at=0)


async def test_a_job_that_waits_for_a_moment_is_planned_from_then_on(bench: Bench) -> None:
    job = bench.submit("ann", not_before=bench.begin + 777)
    answer = await bench.planned(job, at=777)
    assert answer["job_state"] == "W"


async def test_no_more_jobs_of_an_array_are_planned_at_once_than_its_slot_limit(bench: Bench) -> None:
    array = bench.submit("arno", array="0-4%2")
    jobs = [array.replace("[]", f"[{i}]") for i in range(5)]
    await bench.start(*jobs, at=[0, 0, 120, 120, 240])


# ---- dependencies -------------------------------------------------------------------------------


async def test_jobs_are_planned_behind_those_that_they_wait_for(bench: Bench) -> None:
    head = bench.submit("dora", not_before=bench.begin + 1000)
    behind = {
        kind: bench.submit("dora", depend=f"{kind}:{head}") for kind in ("after", "afterok", "afterany")
    }
    tail = bench.submit("dora", depend=f"afterok:{behind['afterok']}")
    await bench.planned(behind["after"], at=1000)
    await bench.start(*behind.values(), tail, at=[1000, 1100, 1100, 1200])
    assert (await bench.planned(tail))["conditional"] == [f"afterok:{behind['afterok']}"]
    for kind, depend in {"afternotok": f"afternotok:{head}", "on": "on:1"}.items():
        assert kind in await bench.waits(bench.submit("dora", depend=depend), "dependency")


async def test_a_job_is_planned_behind_one_that_is_to_run_before_it(bench: Bench) -> None:
    other = bench.submit("dora", depend="on:1")
    assert "on:1" in await bench.waits(other, "dependency")
    await bench.planned(bench.submit("dora", depend=f"beforeany:{other}"), at=0)
    await bench.planned(other, at=100)  # the server makes it wait for the first


async def test_a_chain_moves_when_its_head_moves(bench: Bench) -> None:
    head = bench.submit("dora", not_before=bench.begin + 1000)
    tail = bench.submit("dora", depend=f"afterok:{head}")
    await bench.planned(tail, at=1100)
    job = bench.server.job(head)
    job.not_before = bench.begin + 2000
    job.revision += 1
    answer = await bench.seen(tail, lambda one: one["planned_start"] == bench.begin + 2100)
    assert answer["last_change"]["cause"] == "a job that it waits for"


async def test_a_job_waits_for_all_jobs_of_an_array(bench: Bench) -> None:
    array = bench.submit("dora", array="0-2%1")
    first = bench.submit("dora", depend=f"afterstartarray:{array}")
    last = bench.submit("dora", depend=f"afterokarray:{array}")
    await bench.planned(array.replace("[]", "[2]"), at=240)
    await bench.planned(first, at=240)
    await bench.planned(last, at=340)


async def test_a_circle_of_dependencies_is_named(bench: Bench) -> None:
    one = bench.submit("dora", holds="u")
    other = bench.submit("dora", depend=f"afterok:{one}")
    job = bench.server.job(one)
    job.depend = f"afterok:{other}"
    job.holds.clear()
    job.holds.add("d")
    bench.server.cluster.dependents.add(one)
    job.revision += 1
    settle(bench.server.cluster, job)
    for name in (one, other):
        why = (await bench.seen(name, lambda answer: "a circle of dependencies" in answer["why"]))["why"]
        assert one in why
        assert other in why


# ---- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "users", "starts"),
    [
        ("one", ("lea", "leo"), [0, 120]),
        ("each", ("lea", "lea", "leo"), [0, 0, 120]),
        ("group", ("lea", "lea"), [0, 120]),
        ("named", ("xena", "xena", "lea", "lea"), [0, 0, 0, 120]),
        ("cpus", ("lea", "leo"), [0, 120]),
        ("users", ("lea", "lea", "leo"), [0, 0, 120]),
    ],
)
async def test_limits_of_a_queue_hold_in_the_plan(
    bench: Bench, queue: str, users: tuple[str, ...], starts: list[int]
) -> None:
    jobs = [bench.submit(user, "1:ppn=3", queue=queue) for user in users]
    await bench.start(*jobs, at=starts)


@pytest.mark.parametrize(("user", "nodes"), [("cora", "1:ppn=4"), ("nora", "2:ppn=1"), ("walt", "1:ppn=1")])
async def test_limits_of_the_site_hold_in_the_plan(bench: Bench, user: str, nodes: str) -> None:
    jobs = [bench.submit(user, nodes) for _ in range(2)]
    await bench.start(*jobs, at=[0, 120])


async def test_a_quota_holds_in_its_window_alone(bench: Bench) -> None:
    before = [bench.submit("quentin", walltime=HOUR // 2) for _ in range(2)]
    await bench.start(*before, at=[0, 0])
    within = [bench.submit("quentin", not_before=bench.begin + 2 * HOUR) for _ in range(2)]
    await bench.start(*within, at=[2 * HOUR, 2 * HOUR + 120])


# ---- priority, urgency, deadlines ---------------------------------------------------------------


async def test_the_terms_of_a_priority_are_told_and_the_plan_follows_them(bench: Bench) -> None:
    at = bench.begin + 10_000
    late = [bench.submit("pat", "7:ppn=4", not_before=at, queue=queue) for queue in ("slow", "quick")]
    slow, quick = late
    await bench.planned(quick, at=10_000)
    await bench.planned(slow, at=10_120)
    told = await bench.house.ask(f"/jobs/{quick}/priority")
    terms = {term["name"]: term["points"] for term in told["terms"]}
    assert terms["queue"] == 50
    assert {"wish", "short", "licences", "deadline", "waiting"} <= terms.keys()
    assert told["total"] == round(sum(terms.values()))
    wished = bench.submit("pat", "7:ppn=4", not_before=at, priority=500, queue="slow")
    await bench.planned(wished, at=10_000)
    await bench.planned(slow, at=10_240)


async def test_an_urgent_class_breaks_promises_and_that_is_recorded(bench: Bench) -> None:
    promised = bench.submit("pat", "7:ppn=4")
    before = await bench.planned(promised, at=0)
    assert before["promised_start"] == bench.begin + SLACK
    urgent = bench.submit("uma", "7:ppn=4", walltime=SLACK + 3000, queue="urgent")
    await bench.planned(urgent, at=0)
    broken = await bench.seen(promised, lambda one: bool(one["breaches"]))
    assert broken["breaches"][-1]["cause"] == "a class allowed to break promises"
    assert broken["planned_start"] > before["promised_start"]


async def test_a_deadline_is_on_track_at_risk_or_missed(bench: Bench) -> None:
    now = int(bench.server.cluster.now)
    cases = {"on_track": bench.begin + 10 * HOUR, "at_risk": bench.begin + 50, "missed": now + 50}
    for state, deadline in cases.items():
        job = bench.submit("dean")
        bench.server.job(job).attributes["x"] = f"deadline:{deadline}"  # qsub -W x=deadline:...
        bench.server.job(job).revision += 1
        answer = await bench.seen(job, lambda one: one["deadline"] is not None)
        assert (answer["deadline"], answer["deadline_state"]) == (deadline, state)
    wanted = {"nodes": "1:ppn=1", "walltime": "100"}
    told = await bench.house.ask("/what-if", "POST", {"resources": wanted})
    assert told["planned_end"] == bench.begin + 100  # the earliest deadline that could be met


# ---- reservations -------------------------------------------------------------------------------


async def test_a_maintenance_is_planned_around_at_once_and_its_conflicts_are_told_before(
    bench: Bench,
) -> None:
    job = bench.submit("mia", "n1:ppn=4", walltime=1000)
    start = (await bench.planned(job, at=0))["planned_start"]
    window = {"nodes": ["n1"], "start": start + 500, "end": start + 1500, "reason": "new memory"}
    told = await bench.house.ask("/reservations/memory/preview", "POST", window)
    assert job in {one["job"] for one in told["moved"]}
    await bench.house.ask("/reservations/memory", "PUT", window)
    moved = await bench.seen(job, lambda one: one["planned_start"] == start + 1500)
    assert moved["last_change"]["cause"] == "reservation made by an admin"
    await bench.house.ask("/reservations/memory", "DELETE")
    await bench.seen(job, lambda one: one["planned_start"] == start)


async def test_a_standing_reservation_is_for_those_on_its_list_whole_nodes_too(bench: Bench) -> None:
    everyone = bench.submit("eve", "n8:ppn=1")
    assert (await bench.planned(everyone))["planned_start"] > bench.begin + 10 * HOUR
    tinas = bench.submit("tina", "n8:ppn=1", resources={"naccesspolicy": "singlejob"})
    await bench.planned(tinas, at=0)


# ---- resources ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("licence", "starts"), [("fluent", [0, 0, 120]), ("ansys", [0, 120, 240])])
async def test_licences_of_the_server_and_of_the_file_are_never_over_used(
    bench: Bench, licence: str, starts: list[int]
) -> None:
    jobs = [bench.submit("lee", resources={"gres": f"{licence}:1"}) for _ in starts]
    await bench.start(*jobs, at=starts)
    licences = {one["name"]: one for one in (await bench.house.ask("/licences"))["licences"]}
    assert licences[licence]["copies"] == (2 if licence == "fluent" else 1)
    assert licences[licence]["wanted"] == len(starts)


@pytest.mark.parametrize(
    ("nodes", "feature", "allowed"),
    [
        ("1:ppn=1:old:big", "", {"n7"}),
        ("2:ppn=4:rack3", "", {"n5", "n6"}),
        ("1:ppn=1:big", "rack2|rack3", {"n3", "n5"}),
        ("1:ppn=1", "!big", {"n2", "n4", "n6"}),
        ("1:ppn=1", "big:!new", {"n7"}),
        ("1:ppn=1", "!new|rack2", {"n3", "n4", "n7"}),
    ],
)
async def test_properties_are_kept_with_and_or_and_not(
    bench: Bench, nodes: str, feature: str, allowed: set[str]
) -> None:
    resources = {"feature": feature} if feature else {}
    answer = await bench.planned(bench.submit("paul", nodes, resources=resources))
    assert {share["node"] for share in answer["planned_nodes"]} <= allowed


async def test_gpus_are_counted_on_the_nodes_that_have_them(bench: Bench) -> None:
    both, one = (bench.submit("gus", resources={"gres": f"gpus:{count}"}) for count in (2, 1))
    await bench.start(both, one, at=[0, 120])
    for job, gpus in ((both, 2), (one, 1)):
        (share,) = (await bench.planned(job))["planned_nodes"]
        assert (share["node"], share["gpus"]) == ("n6", gpus)
    await bench.planned(bench.submit("gus", "n6:ppn=3"), at=0)  # its cpus are free beside them
    too_many = await bench.seen(
        bench.submit("gus", resources={"gres": "gpus:3"}), lambda answer: bool(answer["why"])
    )
    assert too_many["planned_start"] is None
    assert "gpus" in too_many["why"]


async def test_what_the_mom_of_a_node_reports_is_counted_there(bench: Bench) -> None:
    jobs = [bench.submit("sam", resources={"gres": "scratch:6"}) for _ in range(2)]
    await bench.start(*jobs, at=[0, 120])
    for job in jobs:
        assert [share["node"] for share in (await bench.planned(job))["planned_nodes"]] == ["n4"]


@pytest.mark.parametrize(("queue", "allowed"), [("mapped", {"n7"}), ("featured", {"n5", "n6"})])
async def test_jobs_of_a_queue_that_is_mapped_to_nodes_run_there(
    bench: Bench, queue: str, allowed: set[str]
) -> None:
    answer = await bench.planned(bench.submit("paul", queue=queue))
    assert {share["node"] for share in answer["planned_nodes"]} <= allowed


async def test_whole_nodes_are_shared_with_nobody(bench: Bench) -> None:
    alone = bench.submit("wanda", "n5:ppn=1", not_before=bench.begin + 30_000, queue="whole")
    other = bench.submit("wim", "n5:ppn=1", not_before=bench.begin + 30_000)
    await bench.start(alone, other, at=[30_000, 30_120])


async def test_jobs_are_kept_on_one_rack_or_on_as_few_as_possible(bench: Bench) -> None:
    at = bench.begin + 40_000
    busy = bench.submit("nils", "n1:ppn=4", walltime=400, not_before=at, priority=100)
    long = bench.submit("nils", "n3:ppn=4+n5:ppn=4", walltime=5000, not_before=at, priority=100)
    await bench.start(busy, long, at=[40_000, 40_000])
    # One rack is free after 420 s, which is not too long to wait; n7 is free, n8 is reserved.
    answer = await bench.planned(bench.submit("nils", "2:ppn=4", not_before=at), at=40_420)
    assert answer["node_sets"] == ["a"]
    answer = await bench.planned(bench.submit("nils", "3:ppn=4", not_before=at, walltime=200))
    assert len(answer["node_sets"]) >= 2
    assert "sets of nodes" in answer["why"]


# ---- what the server says is followed -----------------------------------------------------------


async def test_limits_and_defaults_of_the_server_are_followed_when_they_change(bench: Bench) -> None:
    cluster = bench.server.cluster
    job = bench.server.submit("dina", resources={"nodes": "1:ppn=1"}, queue="slow")
    assert (await bench.planned(job))["walltime"] == 300
    jobs = [bench.submit("dina", "1:ppn=3", queue="one") for _ in range(2)]
    await bench.start(*jobs, at=[0, 120])
    cluster.queues["one"].attributes["max_running"] = "2"
    await bench.start(*jobs, at=[0, 0])
    cluster.queues["one"].attributes["max_running"] = "1"
    await bench.start(*jobs, at=[0, 120])
    cluster.attributes["resources_available.fluent"] = "1"
    licensed = [bench.submit("dina", resources={"gres": "fluent:1"}) for _ in range(2)]
    await bench.start(*licensed, at=[0, 120])
    cluster.attributes["resources_available.fluent"] = "2"
    await bench.start(*licensed, at=[0, 0])
