"""Reading and starting at an OpenPBS server, against a scripted one over real sockets."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from schedd.wire import ShareFacts
from schedd.wire.run_limits import run_limits_version
from schedd.wire.toml_files import SettingsError
from server_adapter.batch.codes import RequestCode
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.bridge.run_checks import RunVerdict
from server_adapter.bridge.server import OccurrencePlacement, ReadScope
from server_adapter.families import connector
from server_adapter.openpbs.codes import OpenPBSErrorCode
from server_adapter.servers.openpbs.vnode_capacity import VNODES_FULL
from server_adapter.settings import load_settings
from tests.server_adapter.openpbs.site import NODE, QUEUED, Objects, Site, run, start

pytestmark = pytest.mark.anyio


# -- starting ----------------------------------------------------------------------------------------------


async def test_a_run_names_each_chunk_and_is_acknowledged_at_once(tmp_path: Path) -> None:
    site = Site(jobs={"1.s": dict(QUEUED)})
    async with site.peer.listening():
        assert (await start(site, tmp_path, ShareFacts("n1", 4, 2 << 20)))[0]
    [request] = site.runs()
    assert request.code == RequestCode.ASYNC_RUN_JOB_ACK
    assert request.destination == "(n1:ncpus=2:mem=1048576kb)+(n1:ncpus=2:mem=1048576kb)"


async def test_a_chunk_runs_on_the_vnode_that_meets_its_request(tmp_path: Path) -> None:
    site = Site(jobs={"1.s": QUEUED | {"schedselect": "1:ncpus=2+1:ncpus=2:color=red"}})
    site.nodes["n1"]["resources_available.color"] = "red"
    async with site.peer.listening():
        assert (await start(site, tmp_path, ShareFacts("n1", 2), ShareFacts("n2", 2)))[0]
    [request] = site.runs()
    assert request.destination == "(n2:ncpus=2)+(n1:ncpus=2)"


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


@pytest.mark.parametrize(
    ("place", "sharing", "alone"),
    [
        ("free", "default_shared", False),
        ("free:excl", "default_shared", True),
        ("scatter:exclhost", "default_shared", True),
        ("free:excl", "ignore_excl", False),
        ("free", "default_excl", True),
        ("free:shared", "default_exclhost", False),
        ("free:shared", "force_excl", True),
    ],
)
async def test_a_job_that_is_to_be_alone_does_not_join_another(
    tmp_path: Path, place: str, sharing: str, *, alone: bool
) -> None:
    job = QUEUED | {"schedselect": "1:ncpus=1", "Resource_List.place": place}
    node = NODE | {"resources_assigned.ncpus": "1", "sharing": sharing}
    site = Site(jobs={"1.s": job}, nodes={"n1": node})
    async with site.peer.listening():
        wanted = (False, 0, "n1 has 0 cores free, not 1", True) if alone else (True, 0, "", False)
        assert await start(site, tmp_path, ShareFacts("n1", 1)) == wanted


async def test_a_refused_run_is_reported_with_its_code(tmp_path: Path) -> None:
    for code, busy in ((OpenPBSErrorCode.NORUNALTEREDJOB, False), (OpenPBSErrorCode.NODE_BUSY, True)):
        site = Site(jobs={"1.s": dict(QUEUED)}, refuse={RequestCode.ASYNC_RUN_JOB_ACK: code})
        async with site.peer.listening():
            assert await start(site, tmp_path, ShareFacts("n1", 4)) == (False, code, "no", busy)


async def test_nothing_starts_with_scheduling_switched_off(tmp_path: Path) -> None:
    site = Site(jobs={"1.s": dict(QUEUED)}, server={"scheduling": "False"})
    async with site.peer.listening():
        assert await start(site, tmp_path, ShareFacts("n1", 4)) == (
            False,
            0,
            "the server's scheduling is False",
            False,
        )


async def test_nothing_starts_in_a_queue_that_was_stopped_since_the_last_reading(tmp_path: Path) -> None:
    """A server runs such a job, and tells its scheduler nothing of the queue (seen with 23.06)."""
    site = Site(jobs={"1.s": dict(QUEUED)})
    site.queues["workq"] |= {"started": "False"}
    async with site.peer.listening():
        refused = await start(site, tmp_path, ShareFacts("n1", 4))
    assert refused == (False, 0, "queue workq is stopped", False)


@pytest.mark.parametrize("changed", ["server", "workq"])
async def test_nothing_starts_by_a_limit_that_was_changed_since_the_decision(
    tmp_path: Path, changed: str
) -> None:
    """A job passed a limit that had been lowered between the last reading and its start, seen with 23.06."""
    site = Site(jobs={"1.s": dict(QUEUED)})
    attributes = site.server if changed == "server" else site.queues["workq"]
    attributes |= {"max_run": "[u:PBS_GENERIC=3]"}
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        await server.become_scheduler(lambda _: None)
        state = await server.read()
        limits = run_limits_version(state.server.limits, state.queues["workq"].limits)
        decision = replace(run("1.s", state.jobs["1.s"].version, ShareFacts("n1", 4)), limits=limits)
        attributes |= {"max_run": "[u:PBS_GENERIC=2]"}
        outcome = await server.run(decision, lambda: None)
        assert (outcome.accepted, outcome.text) == (
            False,
            "a limit of the server or the queue was changed since the decision",
        )
        attributes |= {"max_run": "[u:PBS_GENERIC=3]", "max_queued": "[u:PBS_GENERIC=9]"}
        assert (await server.run(decision, lambda: None)).accepted
        await server.close()


async def test_a_queued_subjob_is_known_by_its_array(tmp_path: Path) -> None:
    array = QUEUED | {"array": "True", "array_indices_remaining": "1-3", "schedselect": "1:ncpus=1"}
    site = Site(jobs={"7[].s": array})
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        await server.become_scheduler(lambda _: None)
        state = await server.read()
        assert set(state.jobs) == {"7[1].s", "7[2].s", "7[3].s"}
        decision = run("7[2].s", state.jobs["7[2].s"].version, ShareFacts("n2", 1))
        assert (await server.run(decision, lambda: None)).accepted
        await server.close()
    [request] = site.runs()
    assert (request.job, request.destination) == ("7[2].s", "(n2:ncpus=1)")


# -- reading -----------------------------------------------------------------------------------------------


async def test_a_limit_and_a_resource_are_known_with_the_jobs_that_come_after_them(tmp_path: Path) -> None:
    """Jobs that came within seconds of a limit could together exceed it."""
    resources = {"lic": {"type": "long"}}
    site = Site(jobs={"1.s": QUEUED | {"mtime": "10"}}, resources=resources)
    async with site.peer.listening():
        made = site.make_server(tmp_path)
        await made.become_scheduler(lambda _: None)
        await made.read()
        site.server["resources_available.lic"] = "2"
        site.jobs["2.s"] = QUEUED | {"mtime": "20", "Resource_List.lic": "1"}
        state = await made.read(ReadScope.JOBS)
        assert (state.server.limits, "2.s" in state.jobs) == ({"resources_available.lic": "2"}, True)
        assert (await made.read(ReadScope.JOBS)).server.limits == state.server.limits
        resources["token"] = {"type": "long", "flag": "nh"}
        site.nodes["n1"]["resources_available.token"] = "1"
        site.jobs["3.s"] = QUEUED | {"mtime": "21", "schedselect": "1:ncpus=1:token=1"}
        state = await made.read(ReadScope.JOBS)
        assert state.nodes["n1"].resources == {"token": 1}
        assert state.server.resources.keys() == {"lic", "token"}
        await made.close()


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
            server = site.make_server(tmp_path, **{"server.scheduler": name})
            state = await server.read()
            assert (set(state.nodes), set(state.jobs), state.server.scheduling) == (nodes, jobs, scheduling)
            await server.close()


async def test_an_object_without_an_attribute_or_with_an_odd_one_hides_no_other(tmp_path: Path) -> None:
    array = QUEUED | {"array": "True", "array_indices_remaining": "1-?"}
    stateless = {"queue": "workq", "mtime": "100"}
    site = Site(jobs={"1.s": QUEUED | {"mtime": "100"}, "2[].s": array, "3.s": stateless})
    broken = {"reserve_state": "10", "reserve_start": "5000", "reserve_end": "6000", "reserve_retry": "1"}
    site.reservations["R4.s"] = broken | {"resv_nodes": "(n1:ncpus=2)"}
    site.nodes["n1"]["state"] = "down"
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        for scope in (ReadScope.ALL, ReadScope.JOBS):
            state = await server.read(scope)
            assert set(state.jobs) == {"1.s", "3.s"}
            assert "cannot be moved" in state.pending_reservations["R4.s"].problem
        await server.close()


async def test_jobs_of_another_partition_on_own_vnodes_count(tmp_path: Path) -> None:
    """A vnode may change its partition while jobs run there, and reservations keep theirs for ever."""
    far = QUEUED | {"queue": "planned", "job_state": "R", "exec_vnode": "(n1:ncpus=2)+(n2:ncpus=1)"}
    elsewhere = QUEUED | {"queue": "planned", "job_state": "R", "exec_vnode": "(n2:ncpus=1)"}
    site = Site(jobs={"1.s": far, "2.s": elsewhere, "3.s": QUEUED | {"queue": "planned"}})
    site.nodes["n2"]["partition"] = "part1"
    site.queues["planned"] = site.queues["workq"] | {"partition": "part1"}
    about = {"reserve_state": "2", "reserve_start": "5000", "reserve_end": "6000", "partition": "part1"}
    site.reservations = {
        "R4.s": about | {"queue": "R4", "resv_nodes": "(n1:ncpus=2)+(n2:ncpus=2)"},
        "R5.s": about | {"queue": "R5", "resv_nodes": "(n2:ncpus=2)"},
    }
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        state = await server.read()
        await server.close()
    assert set(state.jobs) == {"1.s"}
    assert state.jobs["1.s"].shares == (ShareFacts("n1", 2), ShareFacts("n2", 1))
    assert {name: held.nodes for name, held in state.reservations.items()} == {"R4.s": ("n1",)}
    assert not state.pending_reservations, "another scheduler's reservation is its affair"


async def test_a_job_that_is_moved_to_a_queue_of_another_partition_leaves(tmp_path: Path) -> None:
    site = Site(jobs={"1.s": dict(QUEUED), "2.s": dict(QUEUED)})
    site.queues["planned"] = site.queues["workq"] | {"partition": "part1"}
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        assert set((await server.read()).jobs) == {"1.s", "2.s"}
        site.jobs["1.s"]["queue"] = "planned"
        assert set((await server.read()).jobs) == {"2.s"}
        site.jobs["1.s"]["queue"] = "workq"
        assert set((await server.read()).jobs) == {"1.s", "2.s"}
        await server.close()


async def test_the_priority_of_a_vnode_is_read(tmp_path: Path) -> None:
    site = Site()
    site.nodes["n2"]["Priority"] = "5"
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        nodes = (await server.read()).nodes
        assert (nodes["n1"].properties, nodes["n2"].properties) == ((), ("sort_priority=5",))
        await server.close()


async def test_jobs_of_a_queue_with_vnodes_run_only_on_them_and_others_elsewhere(tmp_path: Path) -> None:
    site = Site(jobs={"1.s": dict(QUEUED), "2.s": QUEUED | {"queue": "fast"}})
    site.queues["fast"] = dict(site.queues["workq"])
    site.nodes["n2"]["queue"] = "fast"
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        state = await server.read()
        assert state.nodes["n1"].properties == ()
        assert state.nodes["n2"].properties == ("of_queue=fast", "of_queue=True")
        defaults = {name: queue.defaults for name, queue in state.queues.items()}
        assert defaults == {"workq": {"neednodes": "!of_queue=True"}, "fast": {"neednodes": "of_queue=fast"}}
        site.nodes["n2"].pop("queue")
        state = await server.read()
        assert [queue.defaults for queue in state.queues.values()] == [{}, {}]
        await server.close()


async def test_a_job_with_exclusive_vnodes_holds_all_their_resources(tmp_path: Path) -> None:
    job = QUEUED | {"job_state": "R", "exec_vnode": "(n1:ncpus=1)", "Resource_List.place": "free:excl"}
    site = Site(jobs={"1.s": job})
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        assert (await server.read()).jobs["1.s"].shares == (ShareFacts("n1", 4, 8 << 20),)
        site.nodes["n1"]["sharing"] = "ignore_excl"  # 23.06 runs several such jobs there
        assert (await server.read()).jobs["1.s"].shares == (ShareFacts("n1", 1),)
        await server.close()


@pytest.mark.parametrize(
    ("sharing", "place", "told"),
    [
        ("default_shared", "scatter", "scatter"),
        ("ignore_excl", "scatter:excl", "scatter:shared"),
        ("default_excl", "pack", "pack:excl"),
        ("default_excl", "pack:shared", "pack:shared"),
        ("force_exclhost", "shared", "excl"),
    ],
)
async def test_jobs_of_a_reservation_share_its_vnodes_unless_these_say_otherwise(
    tmp_path: Path, sharing: str, place: str, told: str
) -> None:
    """On a cluster with vnodes of both kinds each job of a reservation had whole nodes in the plan."""
    job = QUEUED | {"queue": "R1", "reserve_ID": "R1.s", "Resource_List.place": place}
    site = Site(jobs={"1.s": job, "2.s": QUEUED | {"Resource_List.place": place}})
    site.queues["R1"] = dict(site.queues["workq"])
    site.nodes["n1"] |= {"resv": "R1.s", "sharing": sharing}
    site.nodes["n2"] = site.nodes["n1"] | {"resv": "", "sharing": "force_excl"}
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        jobs = (await server.read()).jobs
        assert (jobs["1.s"].resources["place"], jobs["2.s"].resources["place"]) == (told, place)
        await server.close()


async def test_the_end_of_a_run_is_read_from_the_history(tmp_path: Path) -> None:
    running = QUEUED | {"job_state": "R", "exec_vnode": "(n1:ncpus=1)", "stime": "100"}
    site = Site(jobs={"1.s": running})
    async with site.peer.listening():
        server = site.make_server(tmp_path)
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
        server = site.make_server(tmp_path)
        before = await server.read()
        site.jobs, site.history = {}, dict.fromkeys(names, QUEUED | ran | times)
        site.history["99.s"] = QUEUED | {"job_state": "F", "mtime": times["mtime"]}
        state = await server.read()
        assert (before.jobs["1.s"].state, state.jobs) == ("Q", {})
        assert [state.ended[name].exit_status for name in names] == [3] * many
        assert not state.ended["99.s"].shares  # that one was deleted
        await server.close()


async def test_an_end_is_reported_without_a_history(tmp_path: Path) -> None:
    running = QUEUED | {"job_state": "R", "exec_vnode": "(n1:ncpus=1)", "stime": "100"}
    site = Site(jobs={"1.s": running, "2.s": QUEUED}, no_history=True)
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        await server.read()
        del site.jobs["1.s"]
        state = await server.read()
        assert (list(state.jobs), state.ended) == (["2.s"], {})
        await server.close()


async def test_a_reservation_is_confirmed_or_refused_in_the_servers_notation(tmp_path: Path) -> None:
    asks = {
        "reserve_state": "1",
        "reserve_start": "5000",
        "reserve_duration": "60",
        "schedselect": "2:ncpus=2",
    }
    site = Site(reservations={"R1.s": asks, "R2.s": asks})
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        await server.become_scheduler(lambda _: None)
        pending_reservations = (await server.read()).pending_reservations
        await server.settle_reservation(
            "R1.s", pending_reservations["R1.s"], (OccurrencePlacement(5_000, (ShareFacts("n1", 4),)),)
        )
        await server.settle_reservation("R2.s", pending_reservations["R2.s"], ())
        await server.close()
    told = site.confirmations()
    assert [(one.name, one.destination, one.start, one.extension) for one in told] == [
        ("R1.s", "(n1:ncpus=2)+(n1:ncpus=2)", 5000, "PBS_RESV_CONFIRM_SUCCESS:partition=pbs-default"),
        ("R2.s", "null", 5000, "PBS_RESV_CONFIRM_FAIL"),
    ]


def test_an_unknown_family_or_authentication_is_refused_with_the_setting(tmp_path: Path) -> None:
    for options, words in (
        ({"server.family": "lsf"}, r"server\.family"),
        ({"server.family": "openpbs", "server.auth": "trqauthd"}, r"server\.auth"),
    ):
        with pytest.raises(SettingsError, match=words):
            connector(load_settings(None, {"state_dir": tmp_path, **options}))(AdaptiveRateLimiter(1))


async def test_only_the_first_reading_returns_recently_ended_jobs(tmp_path: Path) -> None:
    over = QUEUED | {"job_state": "F", "Exit_status": "3", "exec_vnode": "(n1:ncpus=2)", "obittime": "900"}
    late = {"mtime": str(int(time.time()) - 60)}
    site = Site(jobs={"1.s": QUEUED}, history={"2.s": over | late, "3.s": over | {"mtime": "900"}})
    async with site.peer.listening():
        server = site.make_server(tmp_path)
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
        server = site.make_server(tmp_path)
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
        server = site.make_server(tmp_path)
        await server.become_scheduler(lambda _: None)
        version = (await server.read()).jobs["1.s"].version
        site.queues["workq"]["partition"] = "p1"
        await server.read()
        outcome = await server.run(run("1.s", version, ShareFacts("n1", 4)), lambda: None)
        await server.close()
    assert (outcome.accepted, outcome.code) == (False, 0)
    assert "queue workq is not in this scheduler's partition" in outcome.text
    assert site.runs() == []


# -- hosts with several vnodes -----------------------------------------------------------------------------


def host_values(host: str, **more: str) -> dict[str, str]:
    return NODE | {"resources_available.host": host} | more


def two_hosts(**more: str) -> Objects:
    """Two hosts with two vnodes each (four cores and 8 GB), and one host with one vnode."""
    names = {"a0": "a", "a1": "a", "b0": "b", "b1": "b"}
    return {"n1": host_values("n1")} | {vnode: host_values(host, **more) for vnode, host in names.items()}


async def test_a_host_with_several_vnodes_is_a_single_node_and_a_scattered_job_gets_a_vnode_of_each(
    tmp_path: Path,
) -> None:
    job = QUEUED | {"schedselect": "2:ncpus=3:mem=1gb", "Resource_List.place": "scatter"}
    running = job | {"job_state": "R", "exec_vnode": "(a0:ncpus=3)+(b1:ncpus=3)"}
    site = Site(jobs={"1.s": job, "2.s": running}, nodes=two_hosts())
    for vnode in ("a0", "b1"):
        site.nodes[vnode]["resources_assigned.ncpus"] = "3"
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        state = await server.read()
        assert {name: node.cpus for name, node in state.nodes.items()} == {"n1": 4, "a": 8, "b": 8}
        assert state.jobs["2.s"].shares == (ShareFacts("a", 3), ShareFacts("b", 3))
        await server.close()
        assert (await start(site, tmp_path, ShareFacts("a", 3, 1 << 20), ShareFacts("b", 3, 1 << 20)))[0]
    [request] = site.runs()
    assert request.destination == "(a1:ncpus=3:mem=1048576kb)+(b0:ncpus=3:mem=1048576kb)"


async def test_a_job_with_exclusive_hosts_runs_with_all_their_vnodes(tmp_path: Path) -> None:
    job = QUEUED | {"schedselect": "1:ncpus=6", "Resource_List.place": "pack:exclhost"}
    site = Site(jobs={"1.s": job}, nodes=two_hosts())
    async with site.peer.listening():
        assert (await start(site, tmp_path, ShareFacts("a", 6)))[0]
    assert [one.destination for one in site.runs()] == ["(a0:ncpus=4+a1:ncpus=2)"]
    site = Site(jobs={"1.s": job | {"schedselect": "1:ncpus=1"}}, nodes=two_hosts())
    async with site.peer.listening():
        assert (await start(site, tmp_path, ShareFacts("b", 1)))[0]
        site.jobs["1.s"] |= {"job_state": "R", "exec_vnode": "(b0:ncpus=1)+(b1)", "stime": "9"}
        server = site.make_server(tmp_path)
        assert (await server.read()).jobs["1.s"].shares == (ShareFacts("b", 8, 16 << 20),)
        await server.close()
    assert [one.destination for one in site.runs()] == ["(b0:ncpus=1)+(b1)"]


async def test_the_check_before_a_run_covers_all_vnodes_of_a_host(tmp_path: Path) -> None:
    site = Site(jobs={"1.s": QUEUED | {"schedselect": "1:ncpus=4:vnode=a0"}}, nodes=two_hosts())
    share = ShareFacts("a", 4)
    async with site.peer.listening():
        site.nodes["a0"]["resources_assigned.ncpus"] = "1"
        assert await start(site, tmp_path, share) == (
            False,
            0,
            f"{VNODES_FULL} for ncpus=4:vnode=a0 now",
            True,
        )
        server = site.make_server(tmp_path)
        await server.become_scheduler(lambda _: None)
        state = await server.read()
        outcome = await server.run(run("1.s", state.jobs["1.s"].version, share), lambda: None)
        assert outcome.fragmented
        await server.close()
        site.nodes["a1"]["resources_assigned.ncpus"] = "4"
        assert await start(site, tmp_path, share) == (False, 0, "a has 3 cores free, not 4", True)
        site.nodes["a0"]["state"] = site.nodes["a1"]["state"] = "offline"
        assert await start(site, tmp_path, share) == (False, 0, "a is offline", False)
    assert site.runs() == []


async def test_a_run_on_a_host_is_known_again_by_its_vnodes(tmp_path: Path) -> None:
    site = Site(jobs={"1.s": dict(QUEUED)}, nodes=two_hosts())
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        await server.become_scheduler(lambda _: None)
        decision = run("1.s", (await server.read()).jobs["1.s"].version, ShareFacts("a", 4))
        held = {"exec_vnode": "(a0:ncpus=2)+(a1:ncpus=2)", "stime": "5"}
        site.jobs["1.s"] = QUEUED | held | {"job_state": "R"}
        assert (await server.verify_run(decision)).verdict is RunVerdict.RUNS
        site.jobs, site.history = {}, {"1.s": QUEUED | held | {"job_state": "F", "Exit_status": "0"}}
        assert (await server.verify_run(decision)).verdict is RunVerdict.RUNS
        state = await server.read()
        assert state.ended["1.s"].shares == (ShareFacts("a", 4),)
        await server.close()


async def test_reservations_are_planned_by_host_and_their_jobs_by_reserved_vnodes(tmp_path: Path) -> None:
    asks = {
        "reserve_state": "1",
        "reserve_start": "5000",
        "reserve_duration": "60",
        "schedselect": "2:ncpus=3",
        "Resource_List.place": "pack",
    }
    site = Site(reservations={"R1.s": asks}, nodes=two_hosts())
    site.nodes["b0"]["resources_assigned.ncpus"] = "4"
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        await server.become_scheduler(lambda _: None)
        wish = (await server.read()).pending_reservations["R1.s"]
        await server.settle_reservation("R1.s", wish, (OccurrencePlacement(5_000, (ShareFacts("b", 6),)),))
        [told] = site.confirmations()
        assert told.destination == "(b0:ncpus=3)+(b1:ncpus=3)", "what jobs hold now has ended by then"
        # It runs on a part of b1 and on a0; a job of its own has two cores of a0.
        where = "(a0:ncpus=4)+(b1:ncpus=2)"
        site.reservations["R1.s"] = asks | {
            "reserve_state": "5",
            "reserve_end": "5060",
            "resv_nodes": where,
            "queue": "R1",
        }
        for vnode in ("a0", "b1"):
            site.nodes[vnode] |= {"resv": "R1.s", "resources_assigned.ncpus": "4"}
        site.queues["R1"] = dict(site.queues["workq"])
        inside = QUEUED | {"queue": "R1", "reserve_ID": "R1.s", "schedselect": "1:ncpus=2"}
        site.jobs = {
            "1.s": dict(inside),
            "2.s": inside | {"job_state": "R", "exec_vnode": "(a0:ncpus=2)"},
            "3.s": inside | {"schedselect": "1:ncpus=3"},
        }
        state = await server.read()
        assert state.reservations["R1.s"].nodes == ("a", "b")
        assert "resv=R1" in state.nodes["a"].properties
        said = []
        for job, cpus in (("1.s", 2), ("3.s", 3)):
            decision = run(job, state.jobs[job].version, ShareFacts("a", cpus))
            said.append((await server.run(decision, lambda: None)).text)
        await server.close()
    assert [one.destination for one in site.runs()] == ["(a0:ncpus=2)"]
    assert said == ["", f"{VNODES_FULL} for ncpus=3 now"]


async def test_a_reservation_that_lost_a_vnode_of_a_host_is_repaired(tmp_path: Path) -> None:
    broken = {
        "reserve_state": "10",
        "reserve_start": "5000",
        "reserve_end": "5060",
        "reserve_retry": "4000",
        "schedselect": "2:ncpus=2",
        "resv_nodes": "(a0:ncpus=2)+(b0:ncpus=2)",
    }
    site = Site(reservations={"R1.s": broken}, nodes=two_hosts())
    site.nodes["b0"]["state"] = "down"
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        await server.become_scheduler(lambda _: None)
        wish = (await server.read()).pending_reservations["R1.s"]
        await server.settle_reservation("R1.s", wish, (OccurrencePlacement(5_000, (ShareFacts("n1", 2),)),))
        await server.close()
    [told] = site.confirmations()
    assert told.destination == "(a0:ncpus=2)+(n1:ncpus=2)"


async def test_planning_by_vnode_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    site = Site(nodes=two_hosts())
    async with site.peer.listening():
        server = site.make_server(tmp_path, **{"server.plan_by": "vnode"})
        for _ in range(2):
            assert set((await server.read()).nodes) == {"n1", "a0", "a1", "b0", "b1"}
        await server.close()
        site.nodes["a0"]["queue"] = "workq"
        server = site.make_server(tmp_path)
        assert set((await server.read()).nodes) == {"n1", "a0", "a1", "b"}
        await server.close()
    assert [one.message.partition(":")[0] for one in caplog.records if one.levelname == "WARNING"] == [
        "each vnode of a, b is planned as a host of its own, as server.plan_by is vnode",
        "each vnode of a is planned as a host of its own, as they are of several queues",
    ]
