from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given

from schedd.wire import (
    Event,
    JobAltered,
    JobQueued,
    NodeFacts,
    QueueFacts,
    Reserve,
    ServerFacts,
    Snapshot,
    Unreserve,
)
from schedd.wire.snapshot_json import dump_snapshot, read_snapshot
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.diff import diff, endings, snapshot, with_steady_starts
from server_adapter.bridge.event_effects import apply
from server_adapter.bridge.facts import ACTIVE, Ending, Values
from server_adapter.bridge.state import EMPTY_STATE, ServerReservation, ServerState, StateBuilder
from server_adapter.servers.torque.facts import FACT_PARSERS, ending, job_facts, node_facts
from tests.server_adapter.bridge.strategies import states
from tests.server_adapter.bridge.test_facts import NODE, QUEUED, RUNNING

NOW = 1795265000
HELD = QUEUED | {"job_state": "H", "Hold_Types": "u"}
DONE = RUNNING | {"job_state": "C", "exit_status": "3", "comp_time": "1795264330"}


def ids() -> Iterator[str]:
    return (f"7:{number}" for number in count(1))


def single(values: Values | None) -> ServerState:
    if values is None:
        return EMPTY_STATE
    if values["job_state"] == "C":
        return ServerState(ended={"5.srv": ending(values)})
    return ServerState(jobs={"5.srv": job_facts("5.srv", values)})


def events(old: ServerState, new: ServerState) -> list[Event]:
    return list(diff(old, new, ids=ids(), now=NOW, mode="adviser"))


def kinds(found: list[Event]) -> list[str]:
    return [event.type for event in found]


def test_arrival_is_not_later_than_its_reading() -> None:
    """The server's clock may be ahead: the daemon sees by how much."""
    (event,) = events(EMPTY_STATE, single(QUEUED | {"ctime": str(NOW + 30), "qtime": str(NOW + 30)}))
    assert isinstance(event, JobQueued)
    assert (event.time, event.job.submitted) == (NOW, NOW + 30)


STEPS: list[tuple[str, Values | None, Values | None, list[str]]] = [
    ("arrives", None, QUEUED, ["job_queued"]),
    ("arrives held", None, HELD, ["job_queued"]),
    ("arrives and starts", None, RUNNING, ["job_queued", "job_started"]),
    ("stays", QUEUED, QUEUED, []),
    ("gets a comment", QUEUED, QUEUED | {"comment": "x"}, []),
    ("is altered", QUEUED, QUEUED | {"Priority": "3"}, ["job_altered"]),
    ("is held", QUEUED, HELD, ["job_held"]),
    ("is held once more", HELD, HELD | {"Hold_Types": "us"}, ["job_held"]),
    ("is released", HELD, QUEUED, ["job_released"]),
    ("is released later", HELD, QUEUED | {"etime": "1795264000"}, ["job_released"]),
    ("leaves a slot limit's hold", QUEUED | {"job_state": "H", "Hold_Types": ""}, QUEUED, ["job_released"]),
    ("is held and altered", QUEUED, HELD | {"Priority": "3"}, ["job_held", "job_altered"]),
    ("has waited", QUEUED | {"job_state": "W"}, QUEUED, ["job_released"]),
    ("must wait", QUEUED, QUEUED | {"job_state": "W", "Execution_Time": "1795270000"}, ["job_altered"]),
    ("starts", QUEUED, RUNNING, ["job_started"]),
    ("starts though held", HELD, RUNNING | {"Hold_Types": "u"}, ["job_started", "job_altered"]),
    ("exits", RUNNING, RUNNING | {"job_state": "E"}, []),
    ("is suspended", RUNNING, RUNNING | {"job_state": "S"}, ["job_altered"]),
    ("ends", RUNNING, DONE, ["job_ended"]),
    ("ran between two looks", QUEUED, DONE, ["job_started", "job_ended"]),
    ("came and ended between two looks", None, DONE, []),
    ("is deleted", QUEUED, QUEUED | {"job_state": "C", "exit_status": "271"}, ["job_deleted"]),
    ("is being deleted by its dependency", HELD, HELD | {"job_state": "E"}, ["job_altered"]),
    ("was deleted by its dependency", HELD | {"job_state": "E"}, None, ["job_deleted"]),
    ("vanishes from the queue", QUEUED, None, ["job_deleted"]),
    ("vanishes from its node", RUNNING, None, ["job_ended"]),
    ("is requeued", RUNNING, QUEUED | {"start_count": "1"}, ["job_queued"]),
    ("is requeued and held", RUNNING, HELD | {"start_count": "1"}, ["job_queued"]),
    ("was returned unseen", QUEUED, QUEUED | {"start_count": "1"}, ["job_queued"]),
    (
        "was requeued and runs again",
        RUNNING,
        RUNNING | {"start_count": "2", "start_time": "1795264500", "exec_host": "node3/0"},
        ["job_queued", "job_started"],
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), [step[1:] for step in STEPS], ids=[s[0] for s in STEPS])
def test_a_job(old: Values | None, new: Values | None, expected: list[str]) -> None:
    found = events(single(old), single(new))
    assert kinds(found) == expected
    assert [event.id for event in found] == [f"7:{number}" for number in range(1, len(found) + 1)]


def test_an_end_has_the_servers_time_exit_status_and_length() -> None:
    (ended,) = events(single(RUNNING), single(DONE))
    assert ended.type == "job_ended"
    assert (ended.time, ended.exit_status, ended.used) == (1795264330, 3, 10)


def test_an_end_that_the_server_no_longer_lists_has_no_exit_status() -> None:
    """A server with `keep_completed = 0` forgets its jobs at once: they may have failed or been deleted."""
    (vanished,) = events(single(RUNNING), single(None))
    (listed,) = events(single(RUNNING), single({k: v for k, v in DONE.items() if k != "exit_status"}))
    assert vanished.type == listed.type == "job_ended"
    assert (vanished.exit_status, listed.exit_status) == (None, None)


def test_a_start_has_the_servers_time_and_shares() -> None:
    (started,) = events(single(QUEUED), single(RUNNING))
    assert started.type == "job_started"
    assert started.time == 1795264320
    assert [(share.node, share.cpus) for share in started.shares] == [("node1", 2), ("node2", 2)]


def test_ends_come_before_changes_and_changes_before_arrivals() -> None:
    def job(number: int, values: Values) -> dict[str, Values]:
        return {f"{number}.srv": values}

    old = job(1, QUEUED) | job(2, RUNNING) | job(3, QUEUED) | job(4, RUNNING)
    new = job(5, QUEUED) | job(1, HELD) | job(3, RUNNING) | job(4, QUEUED | {"start_count": "1"})
    found = events(
        ServerState(jobs={name: job_facts(name, values) for name, values in old.items()}),
        ServerState(
            jobs={name: job_facts(name, values) for name, values in new.items()},
            nodes={"n1": node_facts("n1", NODE)},
            queues={"batch": QueueFacts(name="batch")},
            server=ServerFacts(scheduling=False),
        ),
    )
    assert kinds(found) == [
        "job_ended",
        "job_queued",  # the requeued one: its nodes are free, as after an end
        "node_changed",
        "queue_changed",
        "server_changed",
        "job_held",
        "job_started",
        "job_queued",
    ]


def test_a_node_that_is_gone_altogether_brings_a_snapshot() -> None:
    old = ServerState(nodes={"n1": NodeFacts(name="n1", cpus=4), "n2": NodeFacts(name="n2", cpus=4)})
    new = ServerState(nodes={"n1": NodeFacts(name="n1", cpus=4)})
    (found,) = events(old, new)
    assert isinstance(found, Snapshot)
    assert found.nodes == (NodeFacts(name="n1", cpus=4),)
    assert found.mode == "adviser", "it is the mode that the daemon takes over"


@given(states(), states())
def test_the_events_lead_from_the_old_state_to_the_new_state(old: ServerState, new: ServerState) -> None:
    reached = apply(old, events(old, new))
    assert dict(reached.jobs) == dict(new.jobs)
    assert dict(reached.nodes) == dict(new.nodes)
    assert dict(reached.queues) == dict(new.queues)
    assert reached.server == new.server


@given(states(), states())
def test_the_last_reported_version_of_a_queued_job_is_its_current_version(
    old: ServerState, new: ServerState
) -> None:
    told = {name: job.version for name, job in old.jobs.items()}
    for event in events(old, new):
        if isinstance(event, JobQueued | JobAltered):
            told[event.job.id] = event.job.version
        elif isinstance(event, Snapshot):
            told = {job.id: job.version for job in event.jobs}
    for name, job in new.jobs.items():
        if job.state not in ACTIVE:
            assert told[name] == job.version


@given(states())
def test_nothing_happens_between_equal_states(state: ServerState) -> None:
    assert events(state, state) == []


def test_unchanged_values_give_the_same_objects_and_the_loop_may_run_in_between() -> None:
    builder = StateBuilder(FACT_PARSERS)

    def read() -> list[ServerState | None]:
        jobs = [DescribedObject(2, f"{number}.srv", dict(QUEUED)) for number in range(10)]
        jobs.append(DescribedObject(2, "77.srv", dict(DONE)))
        nodes = [DescribedObject(3, "n1", dict(NODE))]
        return list(builder.build(server={}, queues=[], nodes=nodes, jobs=jobs, slice_length=4))

    first, second = read(), read()
    assert first[:-1] == [None, None]
    assert first[-1] is not None
    assert second[-1] is not None
    assert second[-1] == first[-1]
    assert all(second[-1].jobs[name] is job for name, job in first[-1].jobs.items())
    assert first[-1].ended.keys() == {"77.srv"}


def test_values_that_the_planner_does_not_need_give_the_same_facts_object() -> None:
    builder = StateBuilder(FACT_PARSERS)

    def read(used: str) -> ServerState:
        jobs = [DescribedObject(2, "1.srv", QUEUED | {"resources_used.cput": used})]
        *_, state = builder.build(server={}, queues=[], nodes=[], jobs=jobs)
        assert state is not None
        return state

    assert read("00:00:01").jobs["1.srv"] is read("00:00:02").jobs["1.srv"]


def test_written_attributes_are_recorded_only_for_jobs_with_any() -> None:
    jobs = [
        DescribedObject(2, "1.srv", QUEUED | {"comment": "hello"}),
        DescribedObject(2, "2.srv", dict(QUEUED)),
        DescribedObject(2, "3.srv", RUNNING | {"job_state": "R"}),
    ]
    *_, state = StateBuilder(FACT_PARSERS).build(server={}, queues=[], nodes=[], jobs=jobs)
    assert state is not None
    assert state.writings.keys() == {"1.srv"}


def test_a_reservation_of_the_server_stays_in_the_state_until_it_is_deleted() -> None:
    bounded = Reserve(id="e:1", time=5, name="R1", nodes=("n1",), start=10, end=20, queues=("R1",))
    held = apply(EMPTY_STATE, [bounded])
    assert held.reservations == {"R1": ServerReservation(10, 20, ("n1",), ("R1",))}
    for old, new, kinds in (
        (EMPTY_STATE, held, ["reserve"]),
        (held, held, []),
        (held, EMPTY_STATE, ["unreserve"]),
    ):
        found = diff(old, new, ids=iter(map(str, count())), now=6, mode="scheduler")
        assert [one.type for one in found] == kinds
    assert apply(held, [Unreserve(id="e:2", time=6, name="R1")]).reservations == {}


def test_a_snapshot_lists_the_reservations_so_that_they_precede_its_jobs() -> None:
    held = ServerState(reservations={"R1": ServerReservation(10, 20, ("n1",), ("R1",))})
    whole = snapshot(held, id="e:9", now=6, mode="scheduler")
    assert whole.reservations is not None
    ((name, nodes, start, end),) = [(one.name, one.nodes, one.start, one.end) for one in whole.reservations]
    assert (name, nodes, start, end) == ("R1", ("n1",), 10, 20)
    assert apply(EMPTY_STATE, [whole]).reservations == held.reservations
    assert apply(held, [snapshot(EMPTY_STATE, id="e:10", now=7, mode="scheduler")]).reservations == {}
    assert read_snapshot(b"".join(dump_snapshot(whole)).decode()) == whole


def test_a_job_end_without_time_is_dated_now() -> None:
    def ending(completed: int | None) -> Ending:
        return Ending(exit_status=3, completed=completed, started=50, starts=1, shares=())

    state = replace(EMPTY_STATE, ended={"1": ending(90), "2": ending(None)})
    found = endings(state.ended, ids=iter(["e:1", "e:2"]), now=100)
    assert [
        (one.job_id, one.time, one.used, one.exit_status) for one in found if one.type == "job_ended"
    ] == [
        ("1", 90, 40, 3),
        ("2", 100, None, 3),
    ]


def test_a_job_that_was_moved_away_or_deleted_in_its_queue_did_not_end_with_status_0() -> None:
    """Seen after a start of the adapter, which reports what ended of late."""
    moved = Ending(exit_status=None, completed=90, started=None, starts=0, shares=())
    (found,) = endings({"1": moved}, ids=iter(["e:1"]), now=100)
    assert (found.type, found.job_id, found.time) == ("job_deleted", "1", 90)


@pytest.mark.parametrize(
    ("change", "steady"),
    [
        ({"started": 1_000_002}, True),
        ({"started": 999_998}, True),
        ({"started": 1_000_006}, False),
        ({"started": 1_000_002, "starts": 2}, False),
        ({"started": 1_000_002, "shares": ()}, False),
        ({"started": 1_000_002, "state": "Q"}, False),
    ],
    ids=str,
)
def test_a_start_that_the_server_corrects_by_seconds_is_no_alteration(
    change: dict[str, object], *, steady: bool
) -> None:
    job = replace(single(RUNNING).jobs["5.srv"], started=1_000_000, starts=1)
    old = ServerState(jobs={job.id: job})
    new = ServerState(jobs={job.id: replace(job, **change)})  # type: ignore[arg-type]
    found = with_steady_starts(old, new)
    assert (events(old, found) == []) == steady
    assert (found.jobs[job.id].started == 1_000_000) == steady


def test_the_end_of_a_reservation_with_its_queue_causes_no_snapshot() -> None:
    own = {"R1": QueueFacts(name="R1")}
    held = {"R1": ServerReservation(100, 200, ("n1",), ("R1",))}
    old = ServerState(queues={"batch": QueueFacts(name="batch"), **own}, reservations=held)
    new = ServerState(queues={"batch": QueueFacts(name="batch")})
    found = events(old, new)
    assert kinds(found) == ["unreserve"]
    assert dict(apply(old, found).queues) == dict(new.queues)
    stays = ServerState(queues={"batch": QueueFacts(name="batch"), **own})
    assert dict(apply(old, events(old, stays)).queues) == dict(stays.queues)
