"""The decision log: pages in order, repeated reads, and long polls."""

import asyncio
import threading

import pytest

from schedd.service.cluster.decision_log import DecisionLog
from schedd.wire import Alert, JobStarted, Run, RunAccepted, Snapshot, WriteAttributes
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

NOBODY = ()


def run(number: int, job: str = "1") -> Run:
    return Run(id=f"d{number:03}", cause="e", time=0, job_id=job, shares=(), version="", expires=60)


def write_attributes(number: int, job: str = "1") -> WriteAttributes:
    return WriteAttributes(
        id=f"d{number:03}",
        cause="e",
        time=0,
        job_id=job,
        planned_start=None,
        planned_end=None,
        planned_nodes=(),
        text="",
    )


def alert(number: int) -> Alert:
    return Alert(id=f"d{number:03}", cause="e", time=0, kind="k", text="t")


def ids(log: DecisionLog, after: str = "", most: int = 1_000) -> list[str]:
    return [decision.id for decision in log.page_after(after, most).decisions]


def test_decisions_are_read_in_order_and_again() -> None:
    log = DecisionLog()
    log.append([run(1, "a"), write_attributes(2, "b"), alert(3)])
    assert ids(log) == ids(log) == ["d001", "d002", "d003"]
    assert ids(log, "d001") == ["d002", "d003"]
    assert ids(log, "d003") == []
    page = log.page_after("", 2)
    assert (page.last, [d.id for d in log.page_after(page.last).decisions]) == ("d002", ["d003"])


def test_outcomes_and_newer_decisions_close_decisions() -> None:
    log = DecisionLog()
    log.append([write_attributes(1), write_attributes(2, "b")])
    log.append([write_attributes(3)])
    assert ids(log) == ["d002", "d003"]
    log.append([run(4)])
    assert ids(log) == ["d002", "d004"]
    log.acknowledge([RunAccepted(id="e", time=0, decision_id="d004", job_id="1")])
    assert ids(log) == ["d002"]
    log.acknowledge([JobStarted(id="e", time=0, job_id="b", shares=())])
    assert len(log) == 0
    assert log.page_after("d001").missed is False


def test_snapshot_closes_decisions_about_missing_jobs() -> None:
    log = DecisionLog()
    log.append([run(1, "a"), write_attributes(2, "b")])
    log.acknowledge([Snapshot(id="e", time=0, jobs=NOBODY, nodes=())])
    assert ids(log) == []


def test_reader_with_an_unknown_id_restarts_and_is_informed() -> None:
    log = DecisionLog()
    log.append([run(1)])
    page = log.page_after("d999")
    assert page.missed
    assert [decision.id for decision in page.decisions] == ["d001"]


def test_readers_are_informed_about_dropped_decisions() -> None:
    log = DecisionLog(most=10)
    log.append([run(i, str(i)) for i in range(1, 8)])
    assert log.page_after("d001").missed is False
    log.append([run(i, str(i)) for i in range(8, 20)])
    assert log.page_after("d001").missed
    assert len(log) <= 10
    assert ids(log)[-1] == "d019"


def test_only_the_newest_alerts_stay_in_the_log() -> None:
    log = DecisionLog(alerts=2)
    log.append([alert(1), alert(2), alert(3)])
    assert ids(log) == ["d002", "d003"]


def test_poll_returns_with_the_first_decision() -> None:
    log = DecisionLog()

    async def read() -> list[str]:
        waiting = asyncio.create_task(log.wait_for_page("", 30))
        await asyncio.sleep(0)
        writer = threading.Thread(target=log.append, args=([run(1)],))
        writer.start()
        page = await waiting
        writer.join()
        return [decision.id for decision in page.decisions]

    assert asyncio.run(read()) == ["d001"]


def test_poll_returns_empty_at_its_timeout_or_at_shutdown() -> None:
    log = DecisionLog()
    log.append([run(1)])
    assert asyncio.run(log.wait_for_page("d001", 0)).decisions == ()

    async def close() -> bool:
        waiting = asyncio.create_task(log.wait_for_page("d001", 30))
        await asyncio.sleep(0)
        log.close()
        return (await waiting).decisions == ()

    assert asyncio.run(close())


async def test_a_poll_leaves_decisions_to_a_pending_reply_and_continues_behind_them() -> None:
    log = DecisionLog()
    log.append([run(1, "a")])
    poll = asyncio.create_task(log.wait_for_page("d001", 30, reader="adapter"))
    await asyncio.sleep(0)
    with log.reply_pending("adapter") as number:
        log.append([run(2, "b")])
        await asyncio.sleep(0.05)
        page = log.page_for_reply("adapter", number, "d001", 10)
    assert page is not None
    assert [one.id for one in page.decisions] == ["d002"]
    await asyncio.sleep(0.05)
    assert not poll.done()
    log.append([run(3, "c")])
    assert [one.id for one in (await poll).decisions] == ["d003"]


async def test_other_readers_get_decisions_while_a_reply_is_pending() -> None:
    log = DecisionLog()
    poll = asyncio.create_task(log.wait_for_page("", 30, reader="another"))
    await asyncio.sleep(0)
    with log.reply_pending("adapter"):
        log.append([run(1, "a")])
        assert [one.id for one in (await poll).decisions] == ["d001"]


async def test_a_poll_does_not_leave_decisions_to_a_reply_that_never_comes() -> None:
    log = DecisionLog()
    poll = asyncio.create_task(log.wait_for_page("", 30, reader="adapter"))
    await asyncio.sleep(0)
    with log.reply_pending("adapter"):
        log.append([run(1, "a")])
        assert [one.id for one in (await poll).decisions] == ["d001"]


def test_a_new_poll_from_an_earlier_position_gets_the_decisions_of_a_lost_reply() -> None:
    log = DecisionLog()
    log.append([run(1, "a"), run(2, "b")])
    assert log.page_for_reply("adapter", 1, "d001", 10) is not None
    page = asyncio.run(log.wait_for_page("d001", 30, reader="adapter"))
    assert [one.id for one in page.decisions] == ["d002"]


def test_a_reply_has_no_decisions_for_an_unknown_position() -> None:
    log = DecisionLog()
    log.append([run(1, "a")])
    assert log.page_for_reply("adapter", 1, "d999", 10) is None


async def test_a_poll_that_began_after_a_request_gets_the_decisions_of_its_reply() -> None:
    log = DecisionLog()
    log.append([run(1, "a")])
    with log.reply_pending("adapter") as number:  # of the adapter's former process
        poll = asyncio.create_task(log.wait_for_page("d001", 30, reader="adapter"))
        await asyncio.sleep(0)
        log.append([run(2, "b")])
        assert log.page_for_reply("adapter", number, "d001", 10) is not None
    page = await asyncio.wait_for(poll, WAIT_S)
    assert [one.id for one in page.decisions] == ["d002"]


async def test_a_poll_continues_behind_decisions_that_a_reply_found_completed() -> None:
    log = DecisionLog()
    log.append([run(1, "a")])
    poll = asyncio.create_task(log.wait_for_page("d001", 30, reader="adapter"))
    await asyncio.sleep(0)
    with log.reply_pending("adapter") as number:
        log.append([run(2, "b")])
        log.acknowledge([RunAccepted(id="e", time=0, decision_id="d002", job_id="b")])
        page = log.page_for_reply("adapter", number, "d001", 10)
    assert page is not None
    assert (page.decisions, page.last) == ((), "d002")
    await asyncio.sleep(0.05)
    with log.reply_pending("adapter") as number:
        log.append([run(3, "c")])
        log.page_for_reply("adapter", number, "d002", 10)
    await asyncio.sleep(0.05)
    assert not poll.done()
    log.append([run(4, "d")])
    assert [one.id for one in (await poll).decisions] == ["d004"]
