"""Vnodes that stay job-exclusive for a job that is over."""

import logging
from pathlib import Path

import pytest

from server_adapter.batch.codes import ObjectType
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.servers.openpbs import stuck_vnodes as module
from server_adapter.servers.openpbs.facts import vnode_state
from server_adapter.servers.openpbs.stuck_vnodes import StuckVnodes
from tests.server_adapter.openpbs.site import NODE, QUEUED, Site


class SteppedClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def vnodes(*states: str) -> list[DescribedObject]:
    return [
        DescribedObject(ObjectType.NODE, f"n{i}", NODE | {"state": state})
        for i, state in enumerate(states, 1)
    ]


def running(where: str, state: str = "R") -> DescribedObject:
    return DescribedObject(ObjectType.JOB, "1.s", QUEUED | {"job_state": state, "exec_vnode": where})


def test_a_vnode_that_no_job_has_for_a_minute_is_as_if_it_were_offline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, there = SteppedClock(), vnodes("free", "job-exclusive", "job-exclusive", "job-exclusive")
    jobs = [running("(n3:ncpus=1)"), running("(n1:ncpus=1)+(n4)", "E")]
    stuck = StuckVnodes(clock)
    with caplog.at_level(logging.WARNING):
        seen = []
        for clock.now in (1000, 1059, 1060, 1070):
            seen.append([vnode_state(one.values) for one in stuck.without(there, jobs)])
    assert seen == [["up"] * 4] * 2 + [["up", "drain", "up", "up"]] * 2
    [said] = caplog.messages
    assert said.startswith("n2: job-exclusive, though no job that runs has it")
    free = vnodes("free", "free", "free", "free")
    assert stuck.without(free, []) is free, "the server has it back"


def test_ends_of_jobs_mark_no_vnode_as_stuck() -> None:
    """For a moment the server shows the vnode as taken without the job; the next job resets the time."""
    clock, there = SteppedClock(), vnodes("job-exclusive")
    stuck = StuckVnodes(clock)
    for clock.now in range(1000, 2000, 40):
        assert stuck.without(there, []) is there
        assert stuck.without(there, [running("(n1:ncpus=1)")]) is there


@pytest.mark.anyio
async def test_a_reading_plans_nothing_on_a_stuck_vnode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LONG", 0.0)
    held = QUEUED | {"job_state": "R", "exec_vnode": "(n2:ncpus=2)"}
    site = Site(jobs={"1.s": held})
    for node in site.nodes.values():
        node["state"] = "job-exclusive"
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        state = await server.read()
        await server.close()
    assert {name: node.state for name, node in state.nodes.items()} == {"n1": "drain", "n2": "up"}


@pytest.mark.anyio
async def test_unknown_states_are_a_trouble_and_start_nothing_there(tmp_path: Path) -> None:
    held = QUEUED | {"job_state": "Y", "exec_vnode": "(n2:ncpus=2)"}
    site = Site(jobs={"1.s": held, "2.s": QUEUED | {"job_state": "Z"}})
    site.nodes["n1"]["state"] = "free,hibernating"
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        state = await server.read()
        troubles = [text for _, text in server.troubles() if text]
        await server.close()
    assert {name: node.state for name, node in state.nodes.items()} == {"n1": "drain", "n2": "up"}
    assert {name: job.state for name, job in state.jobs.items()} == {"1.s": "R", "2.s": "T"}
    words = "unknown states, so nothing is started there: node n1: hibernating, job 1.s: Y, job 2.s: Z"
    assert words in troubles
