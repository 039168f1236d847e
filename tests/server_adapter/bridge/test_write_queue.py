"""Which plan is written next, and what an earlier run of ours wrote."""

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

import pytest

from schedd.wire import JobFacts, WriteAttributes
from server_adapter.bridge.job_comments import NODES_SHOWN, comment, is_foreign, read_comment, start_to_write
from server_adapter.bridge.state import ServerState, WrittenAttributes
from server_adapter.bridge.write_queue import AttributeWriteQueue
from server_adapter.servers.torque.requests import WritableAttributes, plan_request

NOW = 1_800_000_000


def plan(job: str, start: int | None, *, text: str = "") -> WriteAttributes:
    return WriteAttributes(
        id="d1",
        cause="",
        time=NOW,
        job_id=job,
        planned_start=start,
        planned_end=None if start is None else start + 60,
        planned_nodes=() if start is None else ("n1",),
        text=text,
    )


def state(*jobs: str, running: tuple[str, ...] = (), comments: Mapping[str, str] = {}) -> ServerState:
    facts = {
        name: JobFacts(id=name, owner="a", queue="q", submitted=NOW, state="R" if name in running else "Q")
        for name in (*jobs, *running)
    }
    return ServerState(
        jobs=facts, writings={name: WrittenAttributes(text) for name, text in comments.items()}
    )


def refresh(tells: AttributeWriteQueue, seen: ServerState) -> None:
    deque(tells.refresh(seen), maxlen=0)


def written(tells: AttributeWriteQueue, seen: ServerState) -> list[str]:
    found = []
    while (write := tells.next(seen)) is not None:
        found.append(write.decision.job_id)
        tells.mark_written(write.decision)
    return found


def test_an_expected_start_is_in_the_comment_and_rewritten_on_change() -> None:
    tells, seen = AttributeWriteQueue(), state("a")
    plain = plan("a", NOW + 9_000, text="its mem is not planned")
    told = replace(plain, expected_start=NOW + 1_000, expected_by=NOW + 3_000, promised_start=NOW + 12_600)
    tells.enqueue(told)
    assert written(tells, seen) == ["a"]
    said = comment(told)
    assert re.fullmatch(
        r"schedd: Likely \w+ \d+ \w+ \S+ \(90 % by \w+ \d+ \w+ \S+\), at the latest \w+ \d+ \w+ \S+; "
        r"planned start \S+ \S+ \S+ on n1 \(its mem is not planned\)",
        said,
    )
    again = AttributeWriteQueue()
    refresh(again, state("a", comments={"a": said}))
    again.enqueue(told)
    assert written(again, seen) == [], "it says so already"
    again.enqueue(replace(told, expected_start=NOW + 2_000))
    assert written(again, seen) == ["a"]


def test_a_time_outside_the_calendar_is_named_so() -> None:
    one = replace(plan("a", NOW + 9_000), expected_start=NOW + 1_000, expected_by=538_000_000_000)
    assert comment(one).startswith("schedd: Likely ")
    assert "(90 % by beyond the calendar)" in comment(one)


@pytest.mark.parametrize(("expected", "start"), [(False, 9_000), (True, 1_000)])
def test_the_site_chooses_the_start_for_a_single_value(expected: bool, start: int) -> None:
    told = replace(plan("a", NOW + 9_000), expected_start=NOW + 1_000, expected_by=NOW + 3_000)
    assert start_to_write(told, expected=expected) == NOW + start
    request = plan_request(told, WritableAttributes(comment=False, start_time=True, expected=expected))
    assert request is not None
    assert [(one.name, one.value) for one in request.attributes] == [("start_time", str(NOW + start))]
    assert start_to_write(plan("a", NOW + 9_000), expected=expected) == NOW + 9_000
    assert start_to_write(plan("a", None), expected=expected) is None


def test_the_soonest_start_is_written_first_and_reasons_last() -> None:
    tells = AttributeWriteQueue()
    seen = state("a", "b", "c")
    for told in (plan("a", None, text="held"), plan("b", NOW + 500), plan("c", NOW + 100)):
        tells.enqueue(told)
    assert written(tells, seen) == ["c", "b", "a"]


def test_a_small_move_is_not_written() -> None:
    tells = AttributeWriteQueue(threshold=60)
    seen = state("a")
    tells.enqueue(plan("a", NOW + 500))
    assert written(tells, seen) == ["a"]
    tells.enqueue(plan("a", NOW + 560))
    assert written(tells, seen) == []
    tells.enqueue(plan("a", NOW + 561))
    assert written(tells, seen) == ["a"]


def test_comments_of_an_earlier_run_are_read_back_in_slices() -> None:
    tells = AttributeWriteQueue()
    names = [f"j{number}" for number in range(1000)]
    seen = state(*names, comments={name: comment(plan(name, NOW + 500)) for name in names})
    assert len(list(tells.refresh(seen))) >= 5
    for name in names:
        tells.enqueue(plan(name, NOW + 510))
    assert written(tells, seen) == []


def test_comments_that_a_restarted_server_lost_are_written_again() -> None:
    tells, seen = AttributeWriteQueue(), state("a", "b", "c")
    for name in ("a", "b", "c"):
        tells.enqueue(plan(name, None, text="waiting for node n1"))
    assert sorted(written(tells, seen)) == ["a", "b", "c"]
    kept = f"{comment(plan('a', None, text='waiting for node n1'))}"
    older = f"{comment(plan('b', NOW + 600))}"
    after = state("a", "b", "c", comments={"a": kept, "b": older})
    refresh(tells, after)
    assert written(tells, after) == []
    deque(tells.restore(after), maxlen=0)
    assert sorted(written(tells, after)) == ["b", "c"]


def test_a_lost_comment_is_not_written_again_when_nothing_is_to_be_said_any_more() -> None:
    tells, seen = AttributeWriteQueue(), state("a")
    tells.enqueue(plan("a", NOW + 600))
    assert written(tells, seen) == ["a"]
    for _ in range(2):
        deque(tells.rewrite_lost(seen), maxlen=0)  # it is due to be written again
    tells.enqueue(plan("a", None))
    assert written(tells, seen) == []
    for _ in range(2):
        deque(tells.rewrite_lost(seen), maxlen=0)
    assert written(tells, seen) == []


def test_a_comment_that_the_server_removed_is_written_again_after_two_readings() -> None:
    tells, seen = AttributeWriteQueue(), state("a", "b")
    for name in ("a", "b"):
        tells.enqueue(plan(name, NOW + 600))
    assert sorted(written(tells, seen)) == ["a", "b"]
    moved = state("a", "b", comments={"b": comment(plan("b", NOW + 600))})
    for expected in ([], ["a"], [], ["a"]):
        deque(tells.rewrite_lost(moved), maxlen=0)
        assert written(tells, moved) == expected


def test_a_comment_from_before_a_restart_of_the_adapter_that_the_server_removed_is_written_again() -> None:
    """The daemon repeats its decisions; one whose comment is there already was not remembered."""
    tells, decision = AttributeWriteQueue(), plan("a", None, text="waiting for a limit")
    there = state("a", comments={"a": comment(decision)})
    refresh(tells, there)
    tells.enqueue(decision)
    assert written(tells, there) == []
    released = state("a")
    for expected in ([], ["a"]):
        deque(tells.rewrite_lost(released), maxlen=0)
        assert written(tells, released) == expected


def test_a_job_that_started_is_forgotten() -> None:
    tells = AttributeWriteQueue()
    tells.enqueue(plan("a", NOW + 500))
    tells.enqueue(plan("b", NOW + 500))
    refresh(tells, state("b", running=("a",)))
    assert len(tells) == 1
    assert tells.planned_start("a") is None
    assert tells.planned_start("b") == NOW + 500


def test_new_jobs_and_moved_plans_alternate() -> None:
    tells = AttributeWriteQueue()
    seen = state(*(f"old{n}" for n in range(5)), *(f"new{n}" for n in range(3)))
    for number in range(5):
        tells.enqueue(plan(f"old{number}", NOW + 500 + number))
    assert len(written(tells, seen)) == 5
    for number in range(3):
        tells.enqueue(plan(f"new{number}", NOW + 90_000 + number))
    for number in range(5):
        tells.enqueue(plan(f"old{number}", NOW + 700 + number))
    order = written(tells, seen)
    assert [name for name in order if name.startswith("new")] == ["new0", "new1", "new2"]
    assert [name for name in order if name.startswith("old")] == [f"old{n}" for n in range(5)]
    assert {name[:3] for name in order[:2]} == {name[:3] for name in order[2:4]} == {"new", "old"}


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ("Not Running: Not enough of the right type of nodes are available", False),
        ("Not Running - PBS Error: Unknown node-attribute", False),
        ("Job started on Mon Nov 23 at 15:24", False),
        ("Job run at Sun Nov 29 at 22:42 on (h1_0:ncpus=1:ngpus=1)", False),  # and was requeued, by OpenPBS
        ("Job was sent for execution at Sun Nov 29 at 22:42 on (h1_0:ncpus=1)", False),
        ("schedd: planned start 2026-11-21 15:39:48 +0000 on node4", False),
        ("please ask bob", True),
        ("Not Running? ask bob", True),
        ("", False),
    ],
)
def test_comments_of_people_are_preserved_and_those_of_servers_and_schedulers_are_replaced(
    text: str, foreign: bool
) -> None:
    assert is_foreign(text) is foreign


@pytest.mark.parametrize(("beyond", "words"), [(0, ""), (1, " and 1 more"), (7, " and 7 more")])
def test_a_comment_names_some_nodes_and_counts_the_others(beyond: int, words: str) -> None:
    names = tuple(f"n{i}" for i in range(NODES_SHOWN + beyond))
    tell = WriteAttributes(
        id="d1",
        cause="",
        time=5,
        job_id="1",
        planned_start=100,
        planned_end=200,
        planned_nodes=names,
        text="",
    )
    assert comment(tell).endswith(f" on {','.join(names[:NODES_SHOWN])}{words}")


def test_a_comment_without_a_forecast_has_the_promise_after_the_planned_start() -> None:
    tells, seen = AttributeWriteQueue(), state("a")
    promised = replace(plan("a", NOW + 9_000), promised_start=NOW + 12_600)
    assert re.fullmatch(
        r"schedd: planned start \S+ \S+ \S+ on n1 \(at the latest \w+ \d+ \w+ \S+\)", comment(promised)
    )
    stale = replace(promised, expected_start=NOW - 900, expected_by=NOW)
    assert " on n1 (no current forecast, at the latest " in comment(stale)
    refresh(tells, state("a", comments={"a": comment(stale)}))
    tells.enqueue(stale)
    assert written(tells, seen) == [], "the comment that was read back says so already"


def test_the_sentence_and_nodes_of_a_long_comment_come_before_its_remarks() -> None:
    names = tuple(f"compute-node-{number:04}" for number in range(40))
    full = replace(
        plan("a", NOW + 9_000, text="remark " * 60), planned_nodes=names, expected_start=NOW + 1_000,
        expected_by=NOW + 3_000, promised_start=NOW + 12_600,
    )  # fmt: skip
    text = comment(full)
    assert len(text) == 400
    found = read_comment(text)
    assert found is not None
    assert (found.planned_start, found.nodes) == (NOW + 9_000, names[:NODES_SHOWN])
    tells, seen = AttributeWriteQueue(), state("a")
    refresh(tells, state("a", comments={"a": text}))
    tells.enqueue(full)
    assert written(tells, seen) == []
