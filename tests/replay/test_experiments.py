"""Experiments: without a search the same course as the engine's; with one, promises are kept."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schedd.model import FOREVER
from schedd.optimize import SearchSettings
from schedd.plan.evaluate import Criterion
from schedd.replay.driver import run
from schedd.replay.experiments import OFF, Slack, _slack, improve, main
from schedd.replay.prepare import Prepared, prepare
from schedd.replay.site import equal_nodes, one_node
from schedd.replay.workload import Trace, TraceJob, select
from tests.replay.oracle import Job, simulate

PROCS = 4
JOBS = st.lists(
    st.builds(
        lambda submit, run, procs, over: Job(submit, run, procs, run + over),
        submit=st.integers(0, 400),
        run=st.integers(1, 300),
        procs=st.integers(1, PROCS),
        over=st.sampled_from([0, 0, 50, 500]),
    ),
    min_size=1,
    max_size=25,
)
SETTINGS = SearchSettings(weights={Criterion.WAIT: 1, Criterion.BOUNDED_SLOWDOWN: 1}, moves=60)


def prepared(jobs: list[Job], estimates: str = "user") -> Prepared:
    trace = Trace(
        "t",
        tuple(
            TraceJob(
                id=i, submit=job.submit, run=job.run, procs=job.procs, estimate=job.limit, user=f"u{i % 3}"
            )
            for i, job in enumerate(jobs, 1)
        ),
    )
    return prepare(
        select(trace, estimates="exact" if estimates == "exact" else "user", procs=PROCS), one_node(PROCS)
    )


def check_room(ready: Prepared, start: np.ndarray) -> None:
    for job, begin in zip(ready.jobs, start.tolist(), strict=True):
        assert begin >= job.submit
        used = sum(
            other.procs
            for other, at in zip(ready.jobs, start.tolist(), strict=True)
            if at <= begin < at + other.run
        )
        assert used <= PROCS


@settings(max_examples=30)
@given(JOBS)
def test_without_a_search_the_course_is_that_of_the_engine(jobs: list[Job]) -> None:
    # Who goes first of two planned for one moment is not said, and here it is not the same.
    assume(simulate(sorted(jobs, key=lambda job: job.submit), PROCS, "conservative").clear)
    ready = prepared(jobs)
    course, _ = improve(ready, OFF, None)
    assert course.start.tolist() == run(ready, "conservative").start.tolist()
    assert course.reports == []


@settings(max_examples=30)
@given(JOBS, st.sampled_from([OFF, Slack(), Slack(seconds=100), Slack(share=0.5), Slack(60, 0.25)]))
def test_with_searches_no_promise_is_broken(jobs: list[Job], slack: Slack) -> None:
    ready = prepared(jobs)
    course, metrics = improve(ready, slack, SETTINGS, every=50)
    check_room(ready, course.start)
    submit = np.array([job.submit for job in ready.jobs])
    if not slack.off:
        allowed = slack.seconds + np.floor(slack.share * (course.first - submit))
        assert (course.start <= course.first + allowed).all()
    assert metrics.avg_wait_s == pytest.approx((course.start - submit).mean())
    assert course.held == (course.start <= course.first).mean()
    again, _ = improve(ready, slack, SETTINGS, every=50)
    assert again.start.tolist() == course.start.tolist()


LONG_THEN_SHORT = [Job(0, 100, 4, 100), Job(1, 1000, 4, 1000), *[Job(2 + i, 10, 4, 10) for i in range(5)]]


def test_slack_is_what_lets_a_search_gain() -> None:
    ready = prepared(LONG_THEN_SHORT)
    waits = {
        name: improve(ready, slack, SETTINGS, every=10)[1].avg_wait_s
        for name, slack in {"none": Slack(), "some": Slack(seconds=25), "off": OFF}.items()
    }
    assert waits["none"] == improve(ready, OFF, None)[1].avg_wait_s
    assert waits["off"] < waits["some"] < waits["none"]


def test_who_starts_later_than_first_told_is_counted() -> None:
    course, _ = improve(prepared(LONG_THEN_SHORT), OFF, SETTINGS, every=10)
    assert course.held == pytest.approx(6 / 7)
    assert course.late_s == 50


def test_slack_adds_seconds_and_a_share_of_the_wait() -> None:
    assert Slack(30, 0.5).promise(1100, 1000) == 1180
    assert OFF.promise(1100, 1000) == FOREVER


@pytest.mark.parametrize(
    ("text", "slack"),
    [
        ("0", Slack()),
        ("4h", Slack(14400)),
        ("0.5w", Slack(share=0.5)),
        ("1m+1w", Slack(60, 1.0)),
        ("off", OFF),
    ],
)
def test_slack_is_read(text: str, slack: Slack) -> None:
    assert _slack(text) == slack


@pytest.mark.parametrize("text", ["", "x", "-1", "nanw", "1h+"])
def test_slack_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (argparse shows its own words)
        _slack(text)


def test_machines_of_several_nodes_are_refused() -> None:
    ready = prepared([Job(0, 1, 1, 1)])
    shaped = prepare(
        select(Trace("t", (TraceJob(id=1, submit=0, run=1, procs=1),), max_procs=4)), equal_nodes(2, 2)
    )
    assert improve(ready, OFF, None)[0].start.tolist() == [0]
    with pytest.raises(ValueError, match="one node"):
        improve(shaped, OFF, None)


def test_the_command_prints_one_line_per_slack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "a.swf"
    lines = ["; MaxProcs: 4"]
    for i, job in enumerate(LONG_THEN_SHORT, 1):
        fields = [i, job.submit, -1, job.run, job.procs, -1, -1, job.procs, job.limit, *[-1] * 9]
        lines.append(" ".join(map(str, fields)))
    log.write_text("\n".join(lines) + "\n")
    main(
        [str(log), "--slack", "0", "--slack", "off", "--moves", "60", "--every", "10", "--weights", "wait=1"]
    )
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["search"], row["slack"]) for row in rows] == [("none", ""), ("tabu", "0 s"), ("tabu", "off")]
    assert rows[0]["avg_wait_s"] == rows[1]["avg_wait_s"] > rows[2]["avg_wait_s"]
    assert rows[2]["moves_accepted"] > 0
