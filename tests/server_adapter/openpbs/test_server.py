"""Reading, starting and writing at an OpenPBS server, against a scripted one over real sockets."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from schedd.wire import Run, ShareFacts, Tell
from server_adapter.batch.answers import Status, StatusObject
from server_adapter.batch.layout import Request
from server_adapter.bridge.rates import Pace
from server_adapter.bridge.server import Placed
from server_adapter.bridge.tells import Write
from server_adapter.dis import Attribute
from server_adapter.families import connector
from server_adapter.openpbs.codes import ObjectType, RequestCode, ServerCode
from server_adapter.openpbs.replies import Reply
from server_adapter.openpbs.requests import (
    ConfirmReservationRequest,
    ManageRequest,
    RunRequest,
    SelectRequest,
    StatusRequest,
)
from server_adapter.servers.openpbs.server import OpenPBSServer
from server_adapter.settings import SettingsError, load_settings
from tests.server_adapter.openpbs.peer import OK, Peer, refusal

pytestmark = pytest.mark.anyio
Objects = dict[str, dict[str, str]]
NODE = {
    "state": "free",
    "resources_available.ncpus": "4",
    "resources_available.mem": "8gb",
    "resources_assigned.ncpus": "0",
}
QUEUED = {
    "job_state": "Q",
    "queue": "workq",
    "schedselect": "2:ncpus=2:mem=1gb",
    "Resource_List.select": "2:ncpus=2:mem=1gb",
    "run_count": "0",
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Site:
    """A server with objects; `refuse` are codes by request."""

    jobs: Objects = field(default_factory=dict)
    history: Objects = field(default_factory=dict)
    nodes: Objects = field(default_factory=lambda: {"n1": dict(NODE), "n2": dict(NODE)})
    queues: Objects = field(
        default_factory=lambda: {"workq": {"queue_type": "E", "started": "True", "enabled": "True"}}
    )
    schedulers: Objects = field(default_factory=lambda: {"default": {"scheduling": "True"}})
    reservations: Objects = field(default_factory=dict)
    server: dict[str, str] = field(default_factory=lambda: {"scheduling": "True", "pbs_version": "23.06.06"})
    refuse: dict[int, int] = field(default_factory=dict)
    no_history: bool = False
    peer: Peer = field(default_factory=Peer)

    def __post_init__(self) -> None:
        self.peer.answer = self.answer

    def answer(self, request: Request) -> list[Reply]:
        if request.code in self.refuse:
            return [refusal(self.refuse[request.code], "no")]
        if self.no_history and "x" in (request.extension or ""):
            return [refusal(15174, "no history")]
        if isinstance(request, SelectRequest):
            return [status(ObjectType.JOB, self.selected(request))]
        if isinstance(request, StatusRequest):
            return [self.describe(request)]
        return [OK]

    def selected(self, request: SelectRequest) -> Objects:
        """In the wanted attributes, those that were changed since a moment where one is named."""
        since = next((int(one.value) for one in request.conditions if one.name == "mtime"), 0)
        wanted = {one.name for one in request.attributes}
        jobs = self.jobs | (self.history if "x" in (request.extension or "") else {})
        return {
            name: {key: value for key, value in job.items() if key.partition(".")[0] in wanted}
            for name, job in jobs.items()
            if int(job.get("mtime", "0")) >= since
        }

    def describe(self, request: StatusRequest) -> Reply:
        match request.code:
            case RequestCode.STATUS_SERVER:
                return status(ObjectType.SERVER, {"s": self.server})
            case RequestCode.STATUS_QUEUE:
                return status(ObjectType.QUEUE, self.queues)
            case RequestCode.STATUS_SCHEDULER:
                return status(ObjectType.SCHEDULER, self.schedulers)
            case RequestCode.STATUS_RESERVATION:
                return status(ObjectType.RESERVATION, self.reservations)
            case RequestCode.STATUS_NODE:
                found = {k: v for k, v in self.nodes.items() if request.name in ("", k)}
                return status(ObjectType.NODE, found) if found else refusal(ServerCode.UNKNODE)
            case _:
                known = self.jobs | (self.history if request.extension == "x" else {})
                if request.name not in known:
                    return refusal(ServerCode.UNKJOBID)
                return status(ObjectType.JOB, {request.name: known[request.name]})

    def server_of(self, directory: Path, **options: object) -> OpenPBSServer:
        values = {
            "mode": "scheduler",
            "state_dir": directory,
            "server.family": "openpbs",
            "server.port": self.peer.port,
            "server.auth": "none",
        }
        made = connector(load_settings(None, values | options))(Pace(1_000))
        assert isinstance(made, OpenPBSServer)
        return made

    def written(self) -> list[dict[str, str]]:
        """The attributes of each job that was written on, with its name under `job`."""
        return [
            {"job": request.name} | {one.key: one.value for one in request.attributes}
            for request in self.peer.seen
            if isinstance(request, ManageRequest)
        ]

    def runs(self) -> list[RunRequest]:
        return [request for request in self.peer.seen if isinstance(request, RunRequest)]


def status(kind: ObjectType, objects: Mapping[str, Mapping[str, str]]) -> Reply:
    found = []
    for name, values in objects.items():
        pairs = [key.partition(".") for key in values]
        entries = [
            Attribute(head, values[f"{head}{dot}{tail}"], tail if dot else None) for head, dot, tail in pairs
        ]
        found.append(StatusObject(kind, name, tuple(entries)))
    return Reply(payload=Status(tuple(found)))


def run(job: str, version: str, *shares: ShareFacts) -> Run:
    return Run(id="d1", cause="", time=1, job_id=job, shares=shares, version=version, expires=9, term=1)


def tell(job: str, start: int | None, *nodes: str, text: str = "") -> Write:
    said = Tell(
        id="d1",
        cause="",
        time=1,
        job_id=job,
        planned_start=start,
        planned_end=None,
        planned_nodes=nodes,
        text=text,
    )
    return Write(said, comment_free=True)


async def start(site: Site, directory: Path, *shares: ShareFacts) -> tuple[bool, int, str, bool]:
    """Asks for a run of `1.s`, as last read, on these shares."""
    server = site.server_of(directory)
    await server.take_place(lambda: None)
    state = await server.read()
    asked: list[int] = []
    outcome = await server.run(run("1.s", state.jobs["1.s"].version, *shares), lambda: asked.append(1))
    await server.close()
    assert len(asked) == len(site.runs())
    return outcome.accepted, outcome.code, outcome.text, outcome.busy


# -- starting ----------------------------------------------------------------------------------------------


async def test_a_run_names_each_chunk_and_is_of_the_kind_that_is_acknowledged_at_once(tmp_path: Path) -> None:
    site = Site(jobs={"1.s": dict(QUEUED)})
    async with site.peer.listening():
        assert (await start(site, tmp_path, ShareFacts("n1", 4, 2 << 20)))[0]
    [request] = site.runs()
    assert request.code == RequestCode.ASYNC_RUN_JOB_ACK
    assert request.destination == "(n1:ncpus=2:mem=1048576kb)+(n1:ncpus=2:mem=1048576kb)"


@pytest.mark.parametrize(
    ("change", "words", "busy"),
    [
        ({"n1": NODE | {"resources_assigned.ncpus": "1"}}, "n1 has 3 cores free, not 4", True),
        ({"n1": NODE | {"state": "job-exclusive"}}, "n1 has 0 cores free, not 4", True),
        ({"n1": NODE | {"resources_assigned.mem": "7gb"}}, "n1 has too little memory free", True),
        ({"n1": NODE | {"state": "offline"}}, "n1 is offline", False),
        ({"n1": NODE | {"state": "down,offline"}}, "n1 is down", False),
        ({"n3": NODE}, "there is no node n1", False),
    ],
)
async def test_vnodes_are_looked_at_once_more(
    tmp_path: Path, change: Objects, words: str, *, busy: bool
) -> None:
    site = Site(jobs={"1.s": dict(QUEUED)}, nodes=change)
    async with site.peer.listening():
        assert await start(site, tmp_path, ShareFacts("n1", 4, 2 << 20)) == (False, 0, words, busy)
    assert site.runs() == []


async def test_what_the_server_says_to_a_run_is_told_with_its_code(tmp_path: Path) -> None:
    for code, busy in ((ServerCode.NORUNALTEREDJOB, False), (ServerCode.NODE_BUSY, True)):
        site = Site(jobs={"1.s": dict(QUEUED)}, refuse={RequestCode.ASYNC_RUN_JOB_ACK: code})
        async with site.peer.listening():
            assert await start(site, tmp_path, ShareFacts("n1", 4)) == (False, code, "no", busy)


async def test_nothing_is_started_while_the_server_does_not_want_to_be_scheduled(tmp_path: Path) -> None:
    site = Site(jobs={"1.s": dict(QUEUED)}, server={"scheduling": "False"})
    async with site.peer.listening():
        assert await start(site, tmp_path, ShareFacts("n1", 4)) == (
            False,
            0,
            "the server's scheduling is False",
            False,
        )


async def test_a_queued_subjob_is_known_by_its_array(tmp_path: Path) -> None:
    array = QUEUED | {"array": "True", "array_indices_remaining": "1-3", "schedselect": "1:ncpus=1"}
    site = Site(jobs={"7[].s": array})
    async with site.peer.listening():
        server = site.server_of(tmp_path)
        await server.take_place(lambda: None)
        state = await server.read()
        assert set(state.jobs) == {"7[1].s", "7[2].s", "7[3].s"}
        decision = run("7[2].s", state.jobs["7[2].s"].version, ShareFacts("n2", 1))
        assert (await server.run(decision, lambda: None)).accepted
        await server.close()
    [request] = site.runs()
    assert (request.job, request.destination) == ("7[2].s", "(n2:ncpus=1)")


# -- reading -----------------------------------------------------------------------------------------------


async def test_a_scheduler_sees_its_own_partition_alone(tmp_path: Path) -> None:
    site = Site(jobs={"1.s": dict(QUEUED), "2.s": QUEUED | {"queue": "planned"}})
    site.nodes["n2"]["partition"] = "part1"
    site.queues["planned"] = site.queues["workq"] | {"partition": "part1"}
    site.schedulers["plan"] = {"scheduling": "False", "partition": "part1"}
    async with site.peer.listening():
        for name, nodes, jobs, scheduling in (
            ("default", {"n1"}, {"1.s"}, True),
            ("plan", {"n2"}, {"2.s"}, False),
        ):
            server = site.server_of(tmp_path, **{"server.scheduler": name})
            state = await server.read()
            assert (set(state.nodes), set(state.jobs), state.server.scheduling) == (nodes, jobs, scheduling)
            await server.close()


async def test_jobs_of_a_queue_that_has_vnodes_run_there_alone_and_others_elsewhere(tmp_path: Path) -> None:
    site = Site(jobs={"1.s": dict(QUEUED), "2.s": QUEUED | {"queue": "fast"}})
    site.queues["fast"] = dict(site.queues["workq"])
    site.nodes["n2"]["queue"] = "fast"
    async with site.peer.listening():
        server = site.server_of(tmp_path)
        state = await server.read()
        assert state.nodes["n1"].properties == ()
        assert state.nodes["n2"].properties == ("of_queue=fast", "of_queue=*")
        defaults = {name: queue.defaults for name, queue in state.queues.items()}
        assert defaults == {"workq": {"neednodes": "!of_queue=*"}, "fast": {"neednodes": "of_queue=fast"}}
        site.nodes["n2"].pop("queue")
        state = await server.read()
        assert [queue.defaults for queue in state.queues.values()] == [{}, {}]
        await server.close()


async def test_a_job_that_has_its_vnodes_for_itself_holds_all_of_them(tmp_path: Path) -> None:
    job = QUEUED | {"job_state": "R", "exec_vnode": "(n1:ncpus=1)", "Resource_List.place": "free:excl"}
    site = Site(jobs={"1.s": job})
    async with site.peer.listening():
        server = site.server_of(tmp_path)
        assert (await server.read()).jobs["1.s"].shares == (ShareFacts("n1", 4, 8 << 20),)
        await server.close()


async def test_how_a_run_ended_is_looked_up_in_the_history(tmp_path: Path) -> None:
    running = QUEUED | {"job_state": "R", "exec_vnode": "(n1:ncpus=1)", "stime": "100"}
    site = Site(jobs={"1.s": running})
    async with site.peer.listening():
        server = site.server_of(tmp_path)
        await server.read()
        site.jobs, site.history = (
            {},
            {"1.s": running | {"job_state": "F", "Exit_status": "3", "obittime": "160"}},
        )
        state = await server.read()
        assert state.jobs == {}
        assert (state.ended["1.s"].exit_status, state.ended["1.s"].used) == (3, 60)
        await server.close()


@pytest.mark.parametrize("many", [1, 60])
async def test_a_job_that_ran_and_ended_between_two_readings_was_not_deleted(
    tmp_path: Path, many: int
) -> None:
    ran = {"job_state": "F", "Exit_status": "3", "exec_vnode": "(n1:ncpus=1)", "run_count": "1"}
    times = {"stime": "100", "obittime": "160", "mtime": str(int(time.time()))}
    names = [f"{number}.s" for number in range(1, many + 1)]
    site = Site(jobs=dict.fromkeys([*names, "99.s"], QUEUED))
    async with site.peer.listening():
        server = site.server_of(tmp_path)
        before = await server.read()
        site.jobs, site.history = {}, dict.fromkeys(names, QUEUED | ran | times)
        site.history["99.s"] = QUEUED | {"job_state": "F", "mtime": times["mtime"]}
        state = await server.read()
        assert (before.jobs["1.s"].state, state.jobs) == ("Q", {})
        assert [state.ended[name].exit_status for name in names] == [3] * many
        assert not state.ended["99.s"].shares  # that one was deleted
        await server.close()


async def test_an_end_is_no_trouble_where_the_server_keeps_no_history(tmp_path: Path) -> None:
    running = QUEUED | {"job_state": "R", "exec_vnode": "(n1:ncpus=1)", "stime": "100"}
    site = Site(jobs={"1.s": running, "2.s": QUEUED}, no_history=True)
    async with site.peer.listening():
        server = site.server_of(tmp_path)
        await server.read()
        del site.jobs["1.s"]
        state = await server.read()
        assert (list(state.jobs), state.ended) == (["2.s"], {})
        await server.close()


# -- writing -----------------------------------------------------------------------------------------------


async def test_an_adviser_writes_estimates_and_nothing_else(tmp_path: Path) -> None:
    site = Site()
    async with site.peer.listening():
        server = site.server_of(tmp_path, mode="adviser")
        assert await server.write(tell("1.s", 2_000, "n1", "n2", text="its mem is not planned"))
        assert await server.write(tell("2.s", None, text="waiting for a hold"))
        await server.close()
    assert site.written() == [
        {"job": "1.s", "estimated.start_time": "2000", "estimated.exec_vnode": "(n1)+(n2)"},
        {"job": "2.s", "estimated.start_time": "0"},
    ]


async def test_an_estimate_is_the_expected_start_where_the_site_wants_that(tmp_path: Path) -> None:
    site = Site()
    async with site.peer.listening():
        server = site.server_of(tmp_path, mode="adviser", **{"tell.start": "expected"})
        told = replace(tell("1.s", 2_000, "n1").tell, expected_start=1_500, expected_by=1_800)
        assert await server.write(Write(told, comment_free=True))
        assert await server.write(tell("2.s", 3_000, "n1"))
        assert await server.write(Write(replace(told, job_id="7[1].s"), comment_free=True))
        await server.close()
    assert [one["estimated.start_time"] for one in site.written()] == ["1500", "3000", "1500"]
    assert site.written()[2]["estimated.exec_vnode"] == "(n1)"


async def test_the_scheduler_also_says_it_in_words(tmp_path: Path) -> None:
    site = Site()
    async with site.peer.listening():
        server = site.server_of(tmp_path)
        await server.write(tell("2.s", None, text="waiting for a hold"))
        await server.close()
    assert site.written() == [
        {"job": "2.s", "estimated.start_time": "0", "comment": "schedd: waiting for a hold"}
    ]


async def test_an_array_says_the_soonest_start_of_its_subjobs_and_is_seldom_written_on(
    tmp_path: Path,
) -> None:
    site = Site()
    async with site.peer.listening():
        server = site.server_of(tmp_path)
        for job, begin in (("7[1].s", 5_000), ("7[2].s", 9_000), ("7[3].s", 5_000), ("7[4].s", 3_000)):
            await server.write(tell(job, begin, "n1"))
        await server.close()
    assert [(one["job"], one["estimated.start_time"]) for one in site.written()] == [
        ("7[].s", "5000"),
        ("7[].s", "3000"),
    ]


async def test_where_comments_may_not_be_written_estimates_still_are(tmp_path: Path) -> None:
    site = Site(refuse={RequestCode.MODIFY_JOB: ServerCode.ATTRRO})
    async with site.peer.listening():
        server = site.server_of(tmp_path)
        assert not await server.write(tell("1.s", 2_000, "n1"))
        site.refuse.clear()
        assert await server.write(tell("1.s", 2_000, "n1"))
        await server.close()
    assert "comment" in site.written()[0]
    assert "comment" not in site.written()[1]


async def test_our_writings_are_taken_away_and_others_stay(tmp_path: Path) -> None:
    ours = QUEUED | {"comment": "schedd: planned", "estimated.start_time": "2000"}
    site = Site(jobs={"1.s": ours, "2.s": QUEUED | {"comment": "ask Ann"}})
    async with site.peer.listening():
        server = site.server_of(tmp_path)
        writings = (await server.read()).writings
        assert [await server.clean(job, writing) for job, writing in writings.items()] == [True, False]
        await server.close()
    assert site.written() == [{"job": "1.s", "comment": "", "estimated.start_time": "0"}]


async def test_a_reservation_is_confirmed_or_refused_in_the_servers_words(tmp_path: Path) -> None:
    asks = {
        "reserve_state": "1",
        "reserve_start": "5000",
        "reserve_duration": "60",
        "schedselect": "2:ncpus=2",
    }
    site = Site(reservations={"R1.s": asks, "R2.s": asks})
    async with site.peer.listening():
        server = site.server_of(tmp_path)
        await server.take_place(lambda: None)
        wishes = (await server.read()).wishes
        await server.confirm("R1.s", wishes["R1.s"], (Placed(5_000, (ShareFacts("n1", 4),)),))
        await server.confirm("R2.s", wishes["R2.s"], ())
        await server.close()
    told = [request for request in site.peer.seen if isinstance(request, ConfirmReservationRequest)]
    assert [(one.name, one.destination, one.start, one.extension) for one in told] == [
        ("R1.s", "(n1:ncpus=2)+(n1:ncpus=2)", 5000, "PBS_RESV_CONFIRM_SUCCESS:partition=pbs-default"),
        ("R2.s", "null", 5000, "PBS_RESV_CONFIRM_FAIL"),
    ]


def test_a_family_or_a_way_of_trust_that_there_is_not_is_refused_with_the_setting(tmp_path: Path) -> None:
    for options, words in (
        ({"server.family": "lsf"}, r"server\.family"),
        ({"server.family": "openpbs", "server.auth": "trqauthd"}, r"server\.auth"),
    ):
        with pytest.raises(SettingsError, match=words):
            connector(load_settings(None, {"state_dir": tmp_path, **options}))(Pace(1))


async def test_predicted_lengths_are_written_where_wanted_and_known_as_ours(
    tmp_path: Path,
) -> None:
    plain = QUEUED | {"Resource_List.walltime": "10:00:00"}
    site = Site(
        jobs={
            "1.s": plain,
            "2.s": plain | {"Resource_List.soft_walltime": "01:00:00"},
            "3.s": QUEUED | {"Resource_List.walltime": "00:10:00"},
            "4.s": plain
            | {
                "Resource_List.soft_walltime": "02:00:00",
                "estimated.soft_walltime": "02:00:00",
                "estimated.start_time": "2000",
            },
        }
    )
    async with site.peer.listening():
        server = site.server_of(tmp_path, **{"tell.soft_walltime": True, "tell.comment": False})
        state = await server.read()
        server.see(state)
        assert "soft_walltime" not in state.jobs["4.s"].resources, "the plan goes by the job's own words"
        assert state.jobs["2.s"].resources["soft_walltime"] == "01:00:00"
        for job in state.jobs:
            assert await server.write(replace_runs_for(tell(job, 2_000, "n1"), 5_400))
        assert await server.clean("4.s", state.writings["4.s"])
        await server.close()
    written = {one["job"]: one for one in site.written()[:4]}
    soft = {
        job: (one.get("Resource_List.soft_walltime"), one.get("estimated.soft_walltime"))
        for job, one in written.items()
    }
    assert soft == {
        "1.s": ("01:30:00", "01:30:00"),
        "2.s": (None, None),
        "3.s": (None, None),
        "4.s": ("01:30:00", "01:30:00"),
    }
    gone = site.written()[-1]
    assert (gone["Resource_List.soft_walltime"], gone["estimated.soft_walltime"]) == ("", "0")


def replace_runs_for(write: Write, seconds: int) -> Write:
    return replace(write, tell=replace(write.tell, runs_for=seconds))


async def test_the_first_reading_tells_what_ended_of_late_and_later_ones_do_not(tmp_path: Path) -> None:
    over = QUEUED | {"job_state": "F", "Exit_status": "3", "exec_vnode": "(n1:ncpus=2)", "obittime": "900"}
    late = {"mtime": str(int(time.time()) - 60)}
    site = Site(jobs={"1.s": QUEUED}, history={"2.s": over | late, "3.s": over | {"mtime": "900"}})
    async with site.peer.listening():
        server = site.server_of(tmp_path)
        state = await server.read()
        assert (list(state.jobs), {name: end.exit_status for name, end in state.ended.items()}) == (
            ["1.s"],
            {"2.s": 3},
        )
        assert (await server.read()).ended == {}
        await server.close()


async def test_a_server_without_history_is_read_all_the_same(tmp_path: Path) -> None:
    site = Site(jobs={"1.s": QUEUED}, no_history=True)
    async with site.peer.listening():
        server = site.server_of(tmp_path)
        assert list((await server.read()).jobs) == ["1.s"]
        await server.close()


async def test_a_job_in_a_queue_of_another_partition_is_not_started(tmp_path: Path) -> None:
    site = Site(
        jobs={"1.s": QUEUED},
        schedulers={"default": {"scheduling": "True"}},
        queues={
            "workq": {"queue_type": "E", "started": "True", "enabled": "True"},
            "planned": {"queue_type": "E", "started": "True", "enabled": "True", "partition": "p1"},
        },
    )
    async with site.peer.listening():
        server = site.server_of(tmp_path)
        await server.take_place(lambda: None)
        version = (await server.read()).jobs["1.s"].version
        site.queues["workq"]["partition"] = "p1"
        await server.read()
        outcome = await server.run(run("1.s", version, ShareFacts("n1", 4)), lambda: None)
        await server.close()
    assert (outcome.accepted, outcome.code) == (False, 0)
    assert "queue workq is not in this scheduler's partition" in outcome.text
    assert site.runs() == []
