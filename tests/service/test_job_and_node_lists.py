"""Lists of jobs and nodes: order, filters, pages, counts."""

import pytest

from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.service.read.cursors import CursorError, decode_cursor, encode_cursor
from schedd.service.read.gaps import find_gaps
from schedd.service.read.plan_lists import bars_in_window, count_jobs, node_views
from schedd.wire import JobDeleted, JobStarted, ShareFacts
from tests.service.planner_harness import T, event_id, job, node, planner, views
from tests.waits import WAIT_S


@pytest.fixture(scope="module")
def published() -> PlanSnapshot:
    with planner(publish_starts=False, end_allowance=0) as loop:
        loop.submit(
            [
                node("n1"),
                node("n2", 2),
                job("1"),
                job("2", user="bob"),
                job("3", queue="long"),
                job("4", nodes="1:ppn=2"),
                job("5", nodes="1:ppn=99"),
                job("6", nodes="1:ppn=x"),
            ]
        ).result(WAIT_S)
        started = JobStarted(id=event_id(), time=T, job_id="1", shares=(ShareFacts("n1", 4),))
        loop.submit([started]).result(WAIT_S)
        return loop.published


def test_jobs_are_listed_by_start_with_unplanned_jobs_last(published: PlanSnapshot) -> None:
    rows = views(published).rows
    assert [row.id for row in rows] == ["1", "4", "2", "3", "5", "6"]
    assert [row.state for row in rows] == ["running", "starting", "planned", "planned", "never", "never"]


def test_pages_add_up_to_the_complete_list(published: PlanSnapshot) -> None:
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = views(published, cursor=cursor, limit=2)
        seen += [row.id for row in page.rows]
        cursor = page.next
        if cursor is None:
            break
        assert len(page.rows) == 2
    assert seen == ["1", "4", "2", "3", "5", "6"]


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ({"owner": "bob"}, ["2"]),
        ({"owner": "bob@login"}, ["2"]),
        ({"queue": "long"}, ["3"]),
        ({"state": "never"}, ["5", "6"]),
        ({"state": "planned", "owner": "ann"}, ["3"]),
        ({"owner": "nobody"}, []),
    ],
)
def test_jobs_are_filtered_by_owner_queue_and_state(
    published: PlanSnapshot, asked: dict[str, str], ids: list[str]
) -> None:
    assert [row.id for row in views(published, **asked).rows] == ids


def test_pages_continue_while_jobs_come_and_go() -> None:
    def delete(*ids: str) -> list[JobDeleted]:
        return [JobDeleted(id=event_id(), time=T, job_id=one) for one in ids]

    with planner(publish_starts=False, end_allowance=0) as loop:
        never = [job(name, nodes="1:ppn=x") for name in "abcdef"]
        nodes = [node(f"n{i}") for i in range(6)]
        loop.submit([*nodes, *never, *(job(str(i)) for i in range(6))]).result(WAIT_S)
        first = views(loop.published, limit=3)
        assert [row.id for row in first.rows] == ["0", "1", "2"]
        # The last job of the page goes, and so does the next one; a new job has their start, and perhaps
        # their place in the columns.
        loop.submit([*delete("2", "4"), job("9")]).result(WAIT_S)
        second = views(loop.published, cursor=first.next, limit=5)
        assert [row.id for row in second.rows] == ["3", "5", "9", "a", "b"]
        loop.submit([*delete("a", "b"), job("0a", nodes="1:ppn=x")]).result(WAIT_S)
        third = views(loop.published, cursor=second.next)
        assert [row.id for row in third.rows] == ["c", "d", "e", "f"]


@pytest.mark.parametrize(
    "cursor",
    [
        *("x", "1", "", "1700000000.5", "é", "9" * 50, "!" * 20_000),
        encode_cursor("other", T, T, "1"),
        encode_cursor("jobs", T, "1"),
        encode_cursor("jobs", 1 << 70, T, "1"),
        encode_cursor("plan", T, 1 << 70, T, T),
        encode_cursor("gaps", 1, 2, 3),
    ],
)
def test_malformed_cursor_is_refused(published: PlanSnapshot, cursor: str) -> None:
    with pytest.raises(CursorError):
        views(published, cursor=cursor)
    with pytest.raises(CursorError):
        bars_in_window(published, T, T + 10, cursor=cursor)
    with pytest.raises(CursorError):
        find_gaps(published, T, T + 10, cursor=cursor)


def test_cursors_are_read_as_they_were_written() -> None:
    for position in ((T, "ä.server"), (0, ""), (-5, 'x"y' * 100)):
        assert decode_cursor(encode_cursor("jobs", *position), "jobs", int, str) == position
    with pytest.raises(CursorError):
        decode_cursor(encode_cursor("jobs", "\ud800"), "jobs", str)
    with pytest.raises(CursorError):
        decode_cursor(encode_cursor("jobs", True), "jobs", int)


def test_time_window_includes_overlapping_jobs(published: PlanSnapshot) -> None:
    assert [bar.job for bar in bars_in_window(published, T, T + 1).rows] == ["1", "4"]
    assert [bar.job for bar in bars_in_window(published, T + 3600, T + 3601).rows] == ["2"]
    first = bars_in_window(published, T, T + 86_400, limit=3)
    rest = bars_in_window(published, T, T + 86_400, limit=3, cursor=first.next)
    assert [bar.job for bar in first.rows + rest.rows] == ["1", "4", "2", "3"]


def test_counts_and_nodes_agree_with_the_jobs(published: PlanSnapshot) -> None:
    found = count_jobs(published)
    assert (found.running, found.starting, found.planned, found.without_start) == (1, 1, 2, 2)
    first, second = node_views(published)
    assert (first.name, first.free_cpus, first.jobs) == ("n1", 0, ("1",))
    assert (second.name, second.free_cpus, second.jobs) == ("n2", 0, ("4",))
