"""Steps of a transfer by an adapter that ended after any of its requests, and was started again."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schedd.wire import TransferStep, TransferStepDone
from server_adapter.emulator import EmulatedOpenPBS, EmulatedServer, JobState, NodeSpec, lifecycle
from server_adapter.emulator.openpbs import runs
from tests.server_adapter.bridge import test_transfers as torque
from tests.server_adapter.ended_adapter import AdapterEndedError, EndingAdapter
from tests.server_adapter.openpbs import test_transfers as openpbs

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("family", ["torque", "openpbs"])]
MOST = 12
"""More requests than any step has."""


class RepeatedTransfers:
    """A server of a family with one transferred job, and the adapter's part for transfers."""

    def __init__(self, family: str, counter: Any, *, array: bool) -> None:
        self.counter = counter
        self._family = family
        self.cluster = counter.server.cluster
        self._facts = replace(
            openpbs.JOB if family == "openpbs" else torque.JOB, array="0-1" if array else ""
        )
        self._starts_by = runs.start if family == "openpbs" else lifecycle.start
        self._place = "(n1:ncpus=2)" if family == "openpbs" else "n1:ppn=2"
        self.job = ""

    async def do(self, step: TransferStep, *, release_requested: bool = False) -> TransferStepDone:
        done: TransferStepDone = await self.counter.do(
            step, self.job, facts=self._facts, release_requested=release_requested
        )
        self.job = done.server_job
        return done

    async def do_twice(self, step: TransferStep, *, release_requested: bool = False) -> TransferStepDone:
        """Do a step with an adapter that may end; then one that was just started does it."""
        try:
            return await self.do(step, release_requested=release_requested)
        except AdapterEndedError:
            await self.close()
            self.counter.begin()
            self.counter.transfers._began = 5_000_000_000  # after the decision
            return await self.do(step, release_requested=release_requested)

    async def close(self) -> None:
        await (self.counter.openpbs if self._family == "openpbs" else self.counter.torque).close()

    def start(self, name: str) -> None:
        """As an operator's run command, which no hold stops."""
        job = self.cluster.jobs[name]
        if not job.active:
            held = set(job.holds)
            job.holds.clear()
            job.state = JobState.QUEUED
            self._starts_by(self.cluster, job, self._place, synchronous=True)
            job.holds |= held

    def states_and_holds(self) -> set[tuple[str, str]]:
        """State and holds of the jobs."""
        return {(job.state.name, "".join(sorted(job.holds))) for job in self.cluster.jobs.values()}


@asynccontextmanager
async def transfers(family: str, directory: Path, *, array: bool = False) -> AsyncIterator[RepeatedTransfers]:
    nodes = [NodeSpec("n1", 4, memory=8 << 20)]
    server: Any = (
        EmulatedOpenPBS(nodes, time_scale=0) if family == "openpbs" else EmulatedServer(nodes, time_scale=0)
    )
    made = openpbs.OpenPBSTransferHarness if family == "openpbs" else torque.TorqueTransferHarness
    async with server:
        one = RepeatedTransfers(family, made(server, directory), array=array)
        try:
            yield one
        finally:
            await one.close()


async def at_each_request(try_once: Callable[[int], Any]) -> int:
    """Call for the first request, the second and so on, until the step has no further one; return their
    number.
    """
    for number in range(1, MOST):
        if not await try_once(number):
            return number - 1
    raise AssertionError("a step has more requests than this test assumes")


@pytest.mark.parametrize("array", [False, True])
async def test_a_submission_ends_in_one_job_with_the_adapters_hold_alone(
    family: str, array: bool, tmp_path: Path
) -> None:
    async def try_once(number: int) -> bool:
        async with transfers(family, tmp_path, array=array) as one:
            with pytest.MonkeyPatch.context() as patch:
                ending = EndingAdapter(patch, number)
                done = await one.do_twice("submit")
            assert (done.done, done.text) == (True, "")
            assert (len(one.cluster.jobs), one.states_and_holds()) == (1 + array, {("HELD", "o")}), number
            await one.do("release")
            assert one.states_and_holds() == {("QUEUED", "")}, number
            return ending.ended

    assert await at_each_request(try_once) >= (6 if family == "openpbs" else 4)


@pytest.mark.parametrize("array", [False, True])
async def test_a_waiting_job_is_withdrawn(family: str, array: bool, tmp_path: Path) -> None:
    async def try_once(number: int) -> bool:
        async with transfers(family, tmp_path, array=array) as one:
            await one.do("submit")
            with pytest.MonkeyPatch.context() as patch:
                ending = EndingAdapter(patch, number)
                done = await one.do_twice("withdraw")
            assert (done.done, done.text) == (True, "")
            assert not {"HELD", "QUEUED"} & {state for state, _ in one.states_and_holds()}
            return ending.ended

    assert await at_each_request(try_once) >= 2


@pytest.mark.parametrize("array", [False, True])
async def test_a_released_job_that_the_server_does_not_delete_waits_without_a_hold(
    family: str, array: bool, tmp_path: Path
) -> None:
    async def try_once(number: int) -> bool:
        async with transfers(family, tmp_path, array=array) as one:
            await one.do("submit")
            await one.do("release")
            with pytest.MonkeyPatch.context() as patch:
                ending = EndingAdapter(patch, number, keeps_jobs=True)
                done = await one.do_twice("withdraw", release_requested=True)
            assert (done.done, done.text) == (False, "not while the system is frozen")
            assert one.states_and_holds() == {("QUEUED", "")}, number
            return ending.ended

    assert await at_each_request(try_once) >= 3


async def test_a_job_that_starts_during_its_withdrawal_runs_without_a_hold(
    family: str, tmp_path: Path
) -> None:
    async def try_once(number: int) -> bool:
        async with transfers(family, tmp_path) as one:
            await one.do("submit")
            await one.do("release")
            with pytest.MonkeyPatch.context() as patch:
                ending = EndingAdapter(patch, number, one.start)
                done = await one.do_twice("withdraw", release_requested=True)
            assert not done.done
            assert one.states_and_holds() == {("RUNNING", "")}, number
            return ending.ended

    assert await at_each_request(try_once) >= 2
