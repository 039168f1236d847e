"""Rows of the page My jobs: order, and arrays folded into one row."""

from dataclasses import replace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from schedd.dashboard.folded_jobs import fold_ended, fold_jobs, fold_queue
from schedd.engine import JobRecord, JobStatus, JobView, Phase
from schedd.store.records import JobHistory
from tests.engine.cluster import Cluster


def one_job() -> tuple[JobRecord, JobView]:
    cluster = Cluster()
    cluster.submit("1")
    return replace(cluster.record("1"), phase=Phase.WAITING), cluster.view("1")


RECORD, VIEW = one_job()
jobs = st.lists(
    st.tuples(
        st.sampled_from(["running", "planned", "waiting"]),
        st.integers(0, 3),
        st.integers(0, 9),
        st.integers(0, 100),
    ),
    max_size=12,
    unique_by=lambda one: (one[1], one[2]),
)


@given(jobs)
def test_rows_agree_with_a_plain_count(listed: list[tuple[str, int, int, int]]) -> None:
    views: list[JobView] = []
    for state, array, index, start in listed:
        name = f"{array}[{index}].s" if array else f"{index}.s"
        planned = start if state != "waiting" else None
        end = start + 10 if state != "waiting" else None
        views.append(
            replace(
                VIEW,
                id=name,
                state=cast("JobStatus", state),
                displayed_start=planned,
                expected_start=None,
                planned_end=end,
            )
        )
    waiting, running = fold_jobs(views, ())
    rows = [*waiting, *running]
    assert sum(row.array.total if row.array is not None else 1 for row in rows) == len(views)
    assert len({row.key for row in rows}) == len(rows)
    starts = [row.job.displayed_start for row in waiting]
    known = [start for start in starts if start is not None]
    assert known == sorted(known)
    assert starts == known + [None] * (len(starts) - len(known))
    assert all(row.job.state == "running" for row in running)
    for row in rows:
        if row.array is not None:
            number = row.array.id.partition("[")[0]
            members = [view for view in views if view.id.startswith(f"{number}[")]
            ends = [view.planned_end for view in members]
            last = max((end for end in ends if end is not None), default=None)
            assert row.array.all_done_by == (None if None in ends else last)


def test_the_end_of_an_array_of_which_only_a_part_is_listed_is_not_known() -> None:
    views = [replace(VIEW, id=f"7[{index}].s", state="running", planned_end=100) for index in (1, 2)]
    for complete, end in ((True, 100), (False, None)):
        _, (row,) = fold_jobs(views, (), complete=complete)
        assert row.array is not None
        assert row.array.all_done_by == end


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 100)), max_size=12))
def test_rows_of_the_queue_keep_the_order_and_count_all_jobs(listed: list[tuple[int, int]]) -> None:
    jobs = []
    for index, (array, start) in enumerate(listed):
        name = f"{array}[{index}].s" if array else f"{index}.s"
        jobs.append((replace(RECORD, facts=replace(RECORD.facts, id=name)), start))
    rows, _ = fold_queue(jobs, (), (), len(jobs), complete=True)
    assert sum(row.array.total if row.array is not None else 1 for row in rows) == len(jobs)
    assert fold_queue(jobs, (), (), 3, complete=True)[0] == rows[:4], "one more says that there are more"
    places = [next(n for n, (record, _) in enumerate(jobs) if record is row.record) for row in rows]
    assert places == sorted(places), "each at the place of its first job"
    for row in rows:
        if row.array is not None:
            number = row.array.id.partition("[")[0]
            starts = [start for record, start in jobs if record.id.startswith(f"{number}[")]
            assert row.array.waiting == starts.count(-1)
            last = None if -1 in starts else max(starts) + RECORD.understood.walltime
            assert row.array.all_done_by == last
    rows, _ = fold_queue(jobs, (), (), len(jobs), complete=False)
    arrays = [row.array for row in rows if row.array is not None]
    assert all(array.all_done_by is None for array in arrays)


def test_an_array_with_a_waiting_subjob_is_among_the_waiting_jobs() -> None:
    """All of its subjobs are counted there, also the running ones; others are below, by their end."""

    def entry(name: str, phase: Phase, start: int) -> tuple[JobRecord, int]:
        return replace(RECORD, facts=replace(RECORD.facts, id=name), phase=phase), start

    waiting = [entry("7[3].s", Phase.WAITING, 50), entry("8.s", Phase.WAITING, 60)]
    running = [
        entry("7[1].s", Phase.RUNNING, 10),
        entry("9.s", Phase.RUNNING, 20),
        entry("6[1].s", Phase.RUNNING, 30),
        entry("6[2].s", Phase.RUNNING, 30),
    ]
    rows, runs = fold_queue(waiting, running, (), 9, complete=True)
    assert [(row.record.id, row.array and (row.array.running, row.array.planned)) for row in rows] == [
        ("7[3].s", (1, 1)),
        ("8.s", None),
    ]
    assert [(row.record.id, row.array and row.array.running) for row in runs] == [
        ("9.s", None),
        ("6[1].s", 2),
    ]


def test_ended_subjobs_are_one_row_with_their_failures() -> None:
    usual: dict[str, Any] = {
        "owner": "ann",
        "queue": "q",
        "resources": {},
        "submitted": 0,
        "state": "C",
        "runs": 1,
    }
    ended = [
        JobHistory(id=name, name="n", started=start, held=(), ended=end, exit_status=status, how=how, **usual)
        for name, start, end, status, how in [
            ("7[2].s", 10, 90, 0, "ended"),
            ("8.s", 10, 80, 1, "ended"),
            ("7[1].s", None, 70, None, "deleted"),
            ("7[0].s", 10, 60, 2, "ended"),
            ("7[3].s", 10, 50, 0, "ended"),
            ("9.s", 10, 40, 0, "ended"),
        ]
    ]
    rows = [(row.key, row.latest.id, row.jobs, row.failed, row.longest_run) for row in fold_ended(ended, 2)]
    assert rows == [("7[].s", "7[2].s", 4, 2, 80), ("8.s", "8.s", 1, 1, 70)]
