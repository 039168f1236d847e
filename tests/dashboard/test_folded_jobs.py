"""Rows of the page My jobs: order, and arrays folded into one row."""

from dataclasses import replace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from schedd.dashboard.folded_jobs import fold_jobs
from schedd.engine import JobStatus, JobView
from tests.engine.cluster import Cluster


def one_view() -> JobView:
    cluster = Cluster()
    cluster.submit("1")
    return cluster.view("1")


VIEW = one_view()
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
