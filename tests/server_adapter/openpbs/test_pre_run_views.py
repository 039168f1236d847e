"""Checks right before runs: one view for all waiting decisions, and never a stale one."""

import asyncio
from pathlib import Path

import pytest

from schedd.wire import ShareFacts
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.replies import Reply
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import RunRequest, SelectStatusRequest, StatusRequest
from server_adapter.bridge.server import RunOutcome
from server_adapter.servers.openpbs.server import OpenPBSServer
from tests.server_adapter.openpbs.site import NODE, QUEUED, Site, run

pytestmark = pytest.mark.anyio

ONE = QUEUED | {"schedselect": "1:ncpus=1", "Resource_List.select": "1:ncpus=1"}


class Counting(Site):
    """A site whose nodes count the cores of accepted runs, like a real server."""

    def answer(self, request: BatchRequest) -> list[Reply]:
        found = super().answer(request)
        if isinstance(request, RunRequest) and found and not found[0].code:
            for piece in request.destination.strip("()").split(")+("):
                node, cores = piece.split(":")[0], int(piece.split("ncpus=")[1].split(":")[0])
                used = int(self.nodes[node]["resources_assigned.ncpus"]) + cores
                self.nodes[node] = self.nodes[node] | {"resources_assigned.ncpus": str(used)}
        return found

    def count_views(self) -> int:
        return sum(isinstance(one, StatusRequest | SelectStatusRequest) for one in self.peer.seen)


async def at_once(site: Counting, directory: Path, **where: str) -> tuple[list[RunOutcome], int]:
    """Decides runs of one-core jobs on these nodes at the same moment; the outcomes, and how many looks."""
    server: OpenPBSServer = site.make_server(directory)
    await server.become_scheduler(lambda _: None)
    state = await server.read()
    before = site.count_views()
    decisions = [
        run(f"{job[1:]}.s", state.jobs[f"{job[1:]}.s"].version, ShareFacts(node, 1))
        for job, node in where.items()
    ]
    outcomes = await asyncio.gather(*(server.run(one, lambda: None) for one in decisions))
    views = site.count_views() - before
    await server.close()
    return list(outcomes), views


async def test_simultaneous_decisions_share_a_view(tmp_path: Path) -> None:
    site = Counting(jobs={f"{number}.s": dict(ONE) for number in range(1, 9)})
    where = {f"j{number}": f"n{1 + number % 2}" for number in range(1, 9)}
    async with site.peer.listening():
        outcomes, looks = await at_once(site, tmp_path, **where)
    assert all(one.accepted for one in outcomes)
    assert len(site.runs()) == 8
    assert looks == 5  # the server, the queues, the jobs, two vnodes


async def test_a_shared_view_counts_resources_of_earlier_runs(tmp_path: Path) -> None:
    site = Counting(jobs={f"{number}.s": dict(ONE) for number in range(1, 7)})
    async with site.peer.listening():
        outcomes, _ = await at_once(site, tmp_path, **{f"j{number}": "n1" for number in range(1, 7)})
    assert [one.accepted for one in outcomes] == [True] * 4 + [False] * 2
    assert all(one.busy for one in outcomes[4:])
    assert len(site.runs()) == 4


async def test_a_refusal_by_a_shared_view_is_checked_with_a_new_view(tmp_path: Path) -> None:
    """The node was full when the others were looked at, and is free by now."""
    site = Counting(jobs={f"{number}.s": dict(ONE) for number in range(1, 4)})
    site.nodes["n2"] = NODE | {"resources_assigned.ncpus": "4"}
    usual = site.answer

    def answer(request: BatchRequest) -> list[Reply]:
        if isinstance(request, RunRequest):
            site.nodes["n2"] = dict(NODE)
        return usual(request)

    async with site.peer.listening():
        site.peer.answer = answer
        outcomes, _ = await at_once(site, tmp_path, j1="n1", j2="n2", j3="n1")
    assert [one.accepted for one in outcomes] == [True] * 3


async def test_an_exclusive_job_is_never_joined_through_a_shared_view(tmp_path: Path) -> None:
    alone = ONE | {"Resource_List.place": "free:excl"}
    site = Counting(jobs={"1.s": alone, "2.s": dict(ONE)})
    usual = site.answer

    def answer(request: BatchRequest) -> list[Reply]:
        found = usual(request)
        if isinstance(request, RunRequest) and request.job == "1.s":
            site.nodes["n1"] = site.nodes["n1"] | {"state": "job-exclusive"}
        return found

    async with site.peer.listening():
        site.peer.answer = answer
        outcomes, _ = await at_once(site, tmp_path, j1="n1", j2="n1")
    assert [one.accepted for one in outcomes] == [True, False]
    assert outcomes[1].busy


async def test_a_job_that_is_gone_is_refused_and_the_others_run(tmp_path: Path) -> None:
    site = Counting(jobs={f"{number}.s": dict(ONE) for number in range(1, 4)})
    usual = site.answer

    def answer(request: BatchRequest) -> list[Reply]:
        if isinstance(request, StatusRequest) and request.code == RequestCode.STATUS_JOB:
            site.jobs.pop("2.s", None)
        return usual(request)

    async with site.peer.listening():
        site.peer.answer = answer
        outcomes, _ = await at_once(site, tmp_path, j1="n1", j2="n1", j3="n1")
    assert [one.accepted for one in outcomes] == [True, False, True]
    assert "gone" in outcomes[1].text


async def test_a_reservation_made_since_the_last_reading_keeps_its_vnodes(tmp_path: Path) -> None:
    """`pbs_rsub --hosts` confirms its reservation itself: nobody calls the scheduler (seen with 23.06.06)."""
    values = QUEUED | {"schedselect": "1:ncpus=2", "Resource_List.select": "1:ncpus=2"}
    site = Site(jobs={"1.s": values})
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        await server.become_scheduler(lambda _: None)
        decision = run("1.s", (await server.read()).jobs["1.s"].version, ShareFacts("n1", 2, 0))
        about = {"reserve_state": "2", "reserve_start": "5000", "reserve_end": "6000", "queue": "M7"}
        site.reservations["M7.s"] = about | {"resv_nodes": "(n1:ncpus=4)"}
        site.nodes["n1"]["resv"] = "M7.s"
        refused = await server.run(decision, lambda: None)
        assert refused.text == "reservation M7.s was made since the last reading"
        assert not refused.accepted
        assert not refused.busy
        await server.read()  # the daemon knows it now, and the job may end before it
        assert (await server.run(decision, lambda: None)).accepted
        site.reservations.clear()
        await server.read()  # a name that only the vnode has hinders no start for ever
        assert (await server.run(decision, lambda: None)).accepted
        await server.close()
