"""Suspended jobs of an OpenPBS server, which wait for their scheduler to resume them."""

import logging
from pathlib import Path

import pytest

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.requests import SignalRequest
from server_adapter.servers.openpbs.server import OpenPBSServer
from server_adapter.servers.openpbs.suspended_jobs import resume_obstacle
from tests.server_adapter.openpbs.site import NODE, QUEUED, Site

pytestmark = pytest.mark.anyio

SUSPENDED = QUEUED | {
    "job_state": "S",
    "substate": "45",
    "exec_vnode": "(n1:ncpus=2:mem=1048576kb)+(n2:ncpus=2:mem=1048576kb)",
    "stime": "1000",
}


def signals(site: Site) -> list[tuple[str, str]]:
    return [(one.job, one.signal) for one in site.peer.seen if isinstance(one, SignalRequest)]


async def tended(server: OpenPBSServer) -> None:
    await server.read()
    await server.resume_jobs()


async def test_a_waiting_suspended_job_resumes_when_its_vnodes_are_free(tmp_path: Path) -> None:
    site = Site(jobs={"1.s": SUSPENDED, "2.s": SUSPENDED | {"substate": "43"}, "3.s": dict(QUEUED)})
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        await server.become_scheduler(lambda _: None)
        await tended(server)
        await server.close()
    assert signals(site) == [("1.s", "resume")], "what somebody suspended stays so until somebody says resume"


async def test_a_suspended_job_without_free_vnodes_stays_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(jobs={"1.s": SUSPENDED})
    site.nodes["n2"] = NODE | {"resources_assigned.ncpus": "3"}
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        await server.become_scheduler(lambda _: None)
        with caplog.at_level(logging.WARNING):
            await tended(server)
            await tended(server)
        assert signals(site) == []
        assert [one.message for one in caplog.records] == [
            "1.s stays suspended: n2 has too little ncpus left"
        ]
        site.nodes["n2"] = dict(NODE)
        await tended(server)
        await server.close()
    assert signals(site) == [("1.s", "resume")]


async def test_a_refused_resume_is_reported_and_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(jobs={"1.s": SUSPENDED}, refuse={RequestCode.SIGNAL_JOB: 15080})
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        await server.become_scheduler(lambda _: None)
        await tended(server)
        await tended(server)
        await server.close()
    assert len(signals(site)) == 2
    assert [one.message for one in caplog.records if "1.s stays suspended" in one.message] == [
        "1.s stays suspended: pbs_server refused to SIGNAL_JOB 1.s: code 15080 (no)"
    ]


@pytest.mark.parametrize(
    ("vnode", "place", "words"),
    [
        (NODE, "free", ""),
        (NODE | {"resources_assigned.ncpus": "2"}, "free", ""),
        (NODE | {"resources_assigned.ncpus": "2"}, "excl", "other jobs run on n1"),
        (NODE | {"resources_assigned.mem": "7.5gb"}, "free", ""),
        (NODE | {"resources_assigned.mem": "7900mb"}, "free", "n1 has too little mem left"),
        (NODE | {"state": "job-exclusive"}, "free", "another job has n1 to itself"),
        (NODE | {"state": "down"}, "free", "n1 is down"),
        (NODE | {"state": "offline"}, "free", ""),
    ],
)
def test_the_obstacle_of_a_suspended_job_is_named(vnode: dict[str, str], place: str, words: str) -> None:
    job = SUSPENDED | {"exec_vnode": "(n1:ncpus=2:mem=1048576kb)", "Resource_List.place": place}
    assert resume_obstacle(job, {"n1": vnode}) == words
    assert resume_obstacle(job, {"n2": vnode}) == "n1 is down"
