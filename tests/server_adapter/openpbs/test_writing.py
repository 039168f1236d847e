"""Writing on jobs of an OpenPBS server, against a scripted one over real sockets."""

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.replies import Reply
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import ManageRequest
from server_adapter.bridge.write_queue import AttributeWrite
from server_adapter.bridge.write_rights import RETRY_S
from server_adapter.openpbs.codes import OpenPBSErrorCode
from tests.server_adapter.open_ondemand import print_qstat, read_qstat
from tests.server_adapter.openpbs.peer import refusal
from tests.server_adapter.openpbs.site import QUEUED, Site, attribute_write

pytestmark = pytest.mark.anyio


async def test_an_adviser_writes_estimates_and_nothing_else(tmp_path: Path) -> None:
    site = Site()
    async with site.peer.listening():
        server = site.make_server(tmp_path, mode="adviser")
        assert await server.write(attribute_write("1.s", 2_000, "n1", "n2", text="its mem is not planned"))
        assert await server.write(attribute_write("2.s", None, text="waiting for a hold"))
        await server.close()
    assert site.written() == [
        {"job": "1.s", "estimated.start_time": "2000", "estimated.exec_vnode": "(n1)+(n2)"},
        {"job": "2.s", "estimated.start_time": "0", "estimated.exec_vnode": ""},
    ]


async def test_the_estimate_is_the_expected_start_if_the_site_enables_it(tmp_path: Path) -> None:
    site = Site()
    async with site.peer.listening():
        server = site.make_server(tmp_path, mode="adviser", **{"tell.start": "expected"})
        told = replace(attribute_write("1.s", 2_000, "n1").decision, expected_start=1_500, expected_by=1_800)
        assert await server.write(AttributeWrite(told, comment_free=True))
        assert await server.write(attribute_write("2.s", 3_000, "n1"))
        assert await server.write(AttributeWrite(replace(told, job_id="7[1].s"), comment_free=True))
        await server.close()
    assert [one["estimated.start_time"] for one in site.written()] == ["1500", "3000", "1500"]
    assert site.written()[2]["estimated.exec_vnode"] == "(n1)"


async def test_open_ondemand_reads_the_expected_start_from_qstat(tmp_path: Path) -> None:
    site = Site()
    async with site.peer.listening():
        server = site.make_server(tmp_path, **{"tell.portal": True})
        planned = attribute_write("1.s", 2_000, *(f"node{number:02}" for number in range(20))).decision
        told = replace(planned, expected_start=1_500, expected_by=1_800)
        assert await server.write(AttributeWrite(told, comment_free=True))
        await server.close()
    values = {name: value for one in site.written() for name, value in one.items() if name != "job"}
    seen = read_qstat(print_qstat("1.s", {"job_state": "Q", **values}))["1.s"]
    assert (seen.status, seen.dispatch_time) == ("queued", None)
    assert seen.native["estimated"]["start_time"] == time.ctime(1_500)
    assert seen.native["estimated"]["exec_vnode"].endswith("+(node19)")
    assert seen.comment.startswith("schedd: ")


async def test_the_scheduler_also_writes_a_comment(tmp_path: Path) -> None:
    site = Site()
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        await server.write(attribute_write("2.s", None, text="waiting for a hold"))
        await server.close()
    assert site.written() == [
        {
            "job": "2.s",
            "estimated.start_time": "0",
            "estimated.exec_vnode": "",
            "comment": "schedd: waiting for a hold",
        }
    ]


async def test_an_array_has_the_earliest_start_of_its_subjobs_and_is_rarely_written(
    tmp_path: Path,
) -> None:
    site = Site()
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        for job, begin in (("7[1].s", 5_000), ("7[2].s", 9_000), ("7[3].s", 5_000), ("7[4].s", 3_000)):
            await server.write(attribute_write(job, begin, "n1"))
        await server.close()
    assert [(one["job"], one["estimated.start_time"]) for one in site.written()] == [
        ("7[].s", "5000"),
        ("7[].s", "3000"),
    ]


READ_ONLY = "Cannot set attribute, read only or insufficient permission  "


@dataclass
class RightsSite(Site):
    """A server that refuses attributes as 23.06.06 does: the text names the first one that it refuses."""

    forbidden: frozenset[str] = frozenset()
    unauthorized: bool = False

    def answer(self, request: BatchRequest) -> list[Reply]:
        if isinstance(request, ManageRequest) and request.code == RequestCode.MODIFY_JOB:
            if self.unauthorized:
                return [refusal(OpenPBSErrorCode.PERM, "Unauthorized Request ")]
            for one in request.attributes:
                if one.name in self.forbidden:
                    return [refusal(OpenPBSErrorCode.ATTRRO, READ_ONLY + one.key)]
        return super().answer(request)

    def accepted(self) -> list[set[str]]:
        """Names of the attributes in each write that was not refused."""
        return [
            names
            for request in self.peer.seen
            if isinstance(request, ManageRequest)
            and not (names := {one.name for one in request.attributes}) & self.forbidden
        ]


@pytest.mark.parametrize(("forbidden", "written"), [("comment", "estimated"), ("estimated", "comment")])
async def test_a_part_without_a_right_is_left_out_reported_and_tried_again(
    tmp_path: Path, forbidden: str, written: str
) -> None:
    site, now = RightsSite(forbidden=frozenset({forbidden})), [1_000.0]
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        server.write_rights._clock = lambda: now[0]
        assert not await server.write(attribute_write("1.s", 2_000, "n1"))
        assert await server.write(attribute_write("1.s", 2_000, "n1"))
        assert site.accepted() == [{written}], "an operator may write comments, but no estimates"
        (trouble,) = (text for kind, text in server.troubles() if kind == "writing" and text)
        assert f"{READ_ONLY}{forbidden}" in trouble
        site.forbidden = frozenset()
        assert await server.write(attribute_write("2.s", 2_000, "n1"))
        assert site.accepted()[-1] == {written}, "it is not tried yet"
        now[0] += RETRY_S
        assert await server.write(attribute_write("3.s", 2_000, "n1"))
        assert site.accepted()[-1] == {"comment", "estimated"}
        assert server.write_rights.pop_regained()
        assert not any(text for kind, text in server.troubles() if kind == "writing")
        await server.close()


async def test_a_right_that_is_taken_from_an_open_connection_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = RightsSite()
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        assert await server.write(attribute_write("1.s", 2_000, "n1"))
        site.unauthorized = True
        assert await server.write(attribute_write("2.s", 2_000, "n1")), "without a reply"
        monkeypatch.setattr("server_adapter.servers.openpbs.job_writer.RETRY_S", 0.0)
        assert not await server.write(attribute_write("3.s", 2_000, "n1"))
        assert server.write_rights.seconds_until_any > 0, "neither comments nor estimates are permitted"
        await server.close()


async def test_own_attributes_are_removed_and_others_stay(tmp_path: Path) -> None:
    ours = QUEUED | {"comment": "schedd: planned", "estimated.start_time": "2000"}
    left = QUEUED | {"estimated.start_time": "0", "estimated.exec_vnode": "(n1)"}  # by an earlier version
    site = Site(jobs={"1.s": ours, "2.s": QUEUED | {"comment": "ask Ann"}, "3.s": left})
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        writings = (await server.read()).writings
        assert [await server.clean(job, writing) for job, writing in writings.items()] == [True, False, True]
        await server.close()
    gone = {"estimated.start_time": "0", "estimated.exec_vnode": ""}
    assert site.written() == [{"job": "1.s", "comment": "", **gone}, {"job": "3.s", **gone}]


async def test_predicted_run_times_are_written_if_enabled_and_recognized_later(
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
        server = site.make_server(tmp_path, **{"tell.soft_walltime": True, "tell.comment": False})
        state = await server.read()
        server.update_state(state)
        assert "soft_walltime" not in state.jobs["4.s"].resources, "the plan goes by the job's own words"
        assert state.jobs["2.s"].resources["soft_walltime"] == "01:00:00"
        for job in state.jobs:
            assert await server.write(replace_runs_for(attribute_write(job, 2_000, "n1"), 5_400))
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


def replace_runs_for(write: AttributeWrite, seconds: int) -> AttributeWrite:
    return replace(write, decision=replace(write.decision, runs_for=seconds))


async def test_most_writes_have_no_reply_but_the_first_of_each_connection_has(tmp_path: Path) -> None:
    site = Site()
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        for number in range(20):
            await server.write(attribute_write(f"{number}.s", 5_000, "n1"))
        await server.close()
    codes = [request.code for request in site.peer.seen if isinstance(request, ManageRequest)]
    assert codes == [RequestCode.MODIFY_JOB] + [RequestCode.MODIFY_JOB_ASYNC] * 19
    assert len({one["job"] for one in site.written()}) == 20


async def test_time_between_writes_does_not_count_as_time_spent_in_them(tmp_path: Path) -> None:
    """A slow server gets fewer writes; a busy adapter must not be taken for one."""
    site = Site()
    async with site.peer.listening():
        server = site.make_server(tmp_path)
        took: list[float] = []
        server.job_writer._pace.record = lambda began, ended: took.append(ended - began)  # type: ignore[method-assign]
        between = 0.0
        began = time.monotonic()
        for number in range(9):
            await server.write(attribute_write(f"{number}.s", 5_000, "n1"))
            paused = time.monotonic()
            await asyncio.sleep(0.2)
            between += time.monotonic() - paused
        await server.close()
        total = time.monotonic() - began
    assert len(took) == 2  # the first, and the group of eight
    assert sum(took) <= total - between
