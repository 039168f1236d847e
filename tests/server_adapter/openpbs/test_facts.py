"""Facts of an OpenPBS server; the values were recorded from a real server."""

import ast
from pathlib import Path

import pytest

from schedd.dialect import Site, find_dialect
from schedd.wire import Reserve, ResourceFacts, ResourceTypes, ShareFacts, Unreserve
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.diff import diff
from server_adapter.bridge.event_effects import apply
from server_adapter.bridge.state import NOTHING_WRITTEN, ServerReservation, ServerState
from server_adapter.openpbs.notation import index_ranges, parent, subjob
from server_adapter.servers.openpbs.arrays import expand_arrays
from server_adapter.servers.openpbs.exec_vnodes import NOT_AS_DECIDED, exec_vnode
from server_adapter.servers.openpbs.facts import (
    ending,
    job_facts,
    node_facts,
    queue_facts,
    server_facts,
    shares,
    vnode_use,
    writing,
)

RECORDED = Path(__file__).resolve().parents[4] / "shared" / "protocols" / "captures" / "openpbs"
GIB = 1 << 20


def recorded() -> dict[str, dict[str, str]]:
    """The objects of `status-attributes.txt`: their attributes by the name of the object."""
    found: dict[str, dict[str, str]] = {}
    kind = ""
    for line in (RECORDED / "status-attributes.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("("):
            name, resource, value = ast.literal_eval(line)
            found[kind][name if resource is None else f"{name}.{resource}"] = value
        else:
            kind = line.split()[0]
            found[kind] = {}
    return found


@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"no captures of real servers under {RECORDED}")
def test_recorded_objects_become_facts() -> None:
    objects = recorded()
    job = job_facts("4.vm", objects["JOB"])
    assert (job.owner, job.state, job.family, job.queue) == ("pbsu1", "R", "openpbs", "workq")
    assert (job.submitted, job.eligible, job.started, job.starts) == (
        1795254534,
        1795254534,
        1795254535,
        1,
    )
    assert job.shares == (
        ShareFacts("n01", 1),
        ShareFacts("n02", 2, 102400),
        ShareFacts("n03", 2, 102400),
    )
    assert job.resources["schedselect"] == "1:ncpus=1+2:ncpus=2:mem=100mb"
    node = node_facts("n01", objects["VNODE"])
    assert (node.cpus, node.mem, node.state) == (4, 8 * GIB, "up")
    assert set(node.properties) >= {"vm", "arch=linux"}
    assert vnode_use(objects["VNODE"]).cpus == 1
    assert queue_facts("workq", objects["QUEUE"]).started
    words = {**objects["QUEUE"], "queue_type": "Route", "route_destinations": "workq,long"}
    assert queue_facts("in", words).routes == ("workq", "long")
    lists = {"acl_group_enable": "True", "acl_groups": "staff"}
    assert queue_facts("in", words | lists).attributes == lists
    server = server_facts(objects["SERVER"])
    assert server.scheduling
    assert server.open
    assert server.defaults == {"ncpus": "1"}


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ("free", "up"),
        ("job-busy", "up"),
        ("job-exclusive,resv-exclusive", "up"),
        ("offline", "drain"),
        ("maintenance", "drain"),
        ("down,offline", "down"),
        ("state-unknown,down", "down"),
        ("Stale", "down"),
        ("free,of-a-newer-server", "drain"),
        ("", "down"),
    ],
)
def test_each_vnode_state_maps_to_a_node_state(state: str, wanted: str) -> None:
    assert node_facts("n1", {"state": state}).state == wanted


def test_custom_resources_are_amounts_strings_or_booleans() -> None:
    node = node_facts(
        "n1",
        {
            "state": "free",
            "resources_available.ncpus": "8",
            "resources_available.scratch": "10gb",
            "resources_available.fpga": "2",
            "resources_available.switch": "A,B",
            "resources_available.ib": "True",
            "resv": "R7.s",
        },
    )
    assert node.resources == {"scratch": 10 * GIB, "fpga": 2}
    assert set(node.properties) == {"switch=A", "switch=B", "ib=True", "resv=R7"}


def test_a_chunk_over_several_vnodes_counts_on_each_of_them() -> None:
    assert shares("(n1:ncpus=2:mem=4kb+n2:ncpus=1)+(n1:ncpus=1:ngpus=1)") == (
        ShareFacts("n1", 3, 4, 1),
        ShareFacts("n2", 1),
    )
    assert shares("") == shares("()") == ()


def test_an_estimate_is_read_again_and_zero_says_that_there_is_none() -> None:
    assert writing({"estimated.start_time": "0"}) is NOTHING_WRITTEN
    found = writing({"estimated.start_time": "1795254536", "estimated.exec_vnode": "(n1)+(n2)"})
    assert (found.planned_start, found.planned_nodes, found.start_time) == (1795254536, "n1,n2", None)


def test_the_end_of_a_run_comes_from_the_history() -> None:
    end = ending(
        {
            "job_state": "F",
            "Exit_status": "271",
            "stime": "100",
            "obittime": "160",
            "run_count": "2",
            "exec_vnode": "(n1:ncpus=1)",
        }
    )
    assert (end.exit_status, end.used, end.starts, end.shares) == (271, 60, 2, (ShareFacts("n1", 1),))


def test_a_job_that_was_deleted_after_a_requeue_ended_at_its_deletion_and_not_with_its_run() -> None:
    values = {
        "job_state": "F",
        "stime": "100",
        "obittime": "160",
        "run_count": "1",
        "history_timestamp": "900",
    }
    assert ending(values).completed == 900
    assert ending(values | {"exec_vnode": "(n1:ncpus=1)"}).completed == 160


def test_a_moved_job_is_reported_with_its_destination() -> None:
    """Recorded from 23.06: `queue` and comment of a moved job name the other server's queue."""
    moved = {"job_state": "M", "substate": "91", "queue": "workq@far", "history_timestamp": "900"}
    assert ending(moved).moved_to == "workq@far"
    assert ending(moved | {"job_state": "F"}).moved_to == ""


def test_the_exit_status_of_a_requeued_job_is_read_and_that_of_a_running_one_is_not() -> None:
    rerun = {"job_state": "Q", "run_count": "1", "Exit_status": "-11", "schedselect": "1:ncpus=1"}
    assert job_facts("1.s", rerun).exit_status == -11
    assert job_facts("1.s", rerun | {"job_state": "R", "exec_vnode": "(n1:ncpus=1)"}).exit_status is None


def test_a_job_of_a_reservation_requests_the_reservations_nodes() -> None:
    values = {"job_state": "Q", "schedselect": "2:ncpus=1+1:ncpus=2", "reserve_ID": "R7.s", "queue": "R7"}
    facts = job_facts("1.s", values)
    assert facts.resources["schedselect"] == "2:ncpus=1:resv=R7+1:ncpus=2:resv=R7"
    request = find_dialect(facts.family).read(facts, Site(defaults={}))
    assert {chunk.features for chunk in request.chunks} == {(frozenset({"resv=R7"}),)}
    typed = Site(defaults={}, types=ResourceTypes({"lic": ResourceFacts("long", "q")}))
    assert not find_dialect(facts.family).read(facts, typed).notes


# -- arrays --------------------------------------------------------------------------------------------


def test_queued_subjobs_of_an_array_are_separate_jobs() -> None:
    array = DescribedObject(
        2,
        "18[].s",
        {
            "job_state": "B",
            "array": "True",
            "array_indices_remaining": "1,3-5",
            "max_run_subjobs": "2",
            "schedselect": "1:ncpus=1",
        },
    )
    running = DescribedObject(2, "18[2].s", {"job_state": "R", "array_id": "18[].s"})
    found = [job_facts(job.name, job.values) for job in expand_arrays([array, running])]
    assert [(job.id, job.state) for job in found] == [
        ("18[1].s", "Q"),
        ("18[3].s", "Q"),
        ("18[4].s", "Q"),
        ("18[5].s", "Q"),
        ("18[2].s", "R"),
    ]
    assert {job.array for job in found} == {"18[].s"}
    assert {job.slot_limit for job in found} == {2}  # 23.06.06 shows it only on the array
    assert (subjob("18[].s", 7), parent("18[7].s"), parent("9.s")) == ("18[7].s", "18[].s", "9.s")


def test_an_array_without_remaining_indices_has_no_queued_subjobs() -> None:
    values = {"job_state": "B", "array": "True", "array_indices_remaining": "-"}
    assert expand_arrays([DescribedObject(2, "1[].s", values)]) == []


@pytest.mark.parametrize(
    ("submitted", "remaining", "waiting"),
    [("1-20:4", "5-17:4,21", [5, 9, 13, 17]), ("1-20:4", "21", []), ("0-9%2", "3,5-6", [3, 5, 6])],
)
def test_indices_that_were_not_submitted_are_no_subjobs(
    submitted: str, remaining: str, waiting: list[int]
) -> None:
    values = {"array_indices_submitted": submitted, "array_indices_remaining": remaining}
    array = DescribedObject(2, "1[].s", {"job_state": "B", "array": "True", **values})
    assert [job.name for job in expand_arrays([array])] == [f"1[{one}].s" for one in waiting]


def test_indices_may_have_a_step_and_absurd_indices_are_refused() -> None:
    assert list(index_ranges("1-7:3,9")) == [range(1, 8, 3), range(9, 10)]
    with pytest.raises(ValueError, match="not a list"):
        list(index_ranges("0-99999999999"))


# -- where a job runs ----------------------------------------------------------------------------------


def test_each_unit_of_a_select_gets_a_bracket_in_select_order() -> None:
    decided = (ShareFacts("n1", 4, 2 * GIB), ShareFacts("n2", 5, GIB))
    assert exec_vnode("1:ncpus=1+3:ncpus=2:mem=1gb+1:ncpus=2:mpiprocs=2", decided) == (
        "(n2:ncpus=1)+(n1:ncpus=2:mem=1048576kb)+(n1:ncpus=2:mem=1048576kb)+(n2:ncpus=2:mem=1048576kb)"
        "+(n2:ncpus=2)"
    )


def test_each_unit_is_placed_on_a_vnode_that_meets_its_request() -> None:
    # As the plan had it: n1 for the first and the last unit, n2, which is red, and n3.
    decided = (ShareFacts("n1", 3), ShareFacts("n2", 3), ShareFacts("n3", 1))
    tags = {"n1": ("rack1",), "n2": ("color=red", "rack1"), "n3": ("old=True", "rack2")}
    for select, wanted in (
        (
            "1:ncpus=1:vnode=n1+1:ncpus=3:color=red+1:ncpus=1:vnode=n3+1:ncpus=2",
            "(n1:ncpus=1)+(n2:ncpus=3)+(n3:ncpus=1)+(n1:ncpus=2)",
        ),
        (
            "1:ncpus=1:host=rack2+1:ncpus=3:old=False+1:ncpus=3:color=red:mpiprocs=3",
            "(n3:ncpus=1)+(n1:ncpus=3)+(n2:ncpus=3)",
        ),
        (
            "1:ncpus=1:old=true:size=big+2:ncpus=3:host=elsewhere",
            "(n3:ncpus=1)+(n1:ncpus=3)+(n2:ncpus=3)",
        ),
    ):
        assert exec_vnode(select, decided, tags=tags) == wanted
    with pytest.raises(ValueError, match=NOT_AS_DECIDED):
        exec_vnode("1:ncpus=1+2:ncpus=3:color=red", decided, tags=tags)


def test_consumable_vnode_resources_are_charged_and_properties_are_not() -> None:
    found = exec_vnode(
        "1:ncpus=1:scratch=5gb:ib=True:host=n1:ngpus=1", (ShareFacts("n1", 1, 0, 1),), {"scratch"}
    )
    assert found == "(n1:ncpus=1:scratch=5gb:ngpus=1)"


@pytest.mark.parametrize("select", ["2:ncpus=2", "1:ncpus=1", "1:ncpus=3:vnode=n2"])
def test_a_select_that_is_another_than_was_decided_on_is_refused(select: str) -> None:
    with pytest.raises(ValueError, match="select"):
        exec_vnode(select, (ShareFacts("n1", 3),))


def test_a_new_changed_or_ended_reservation_is_reported() -> None:
    held = ServerReservation(100, 160, ("n1",), ("R7",))
    ids = (str(number) for number in range(9))
    events = list(
        diff(ServerState(), ServerState(reservations={"R7.s": held}), ids=ids, now=5, mode="scheduler")
    )
    [event] = events
    assert isinstance(event, Reserve)
    assert (event.name, event.nodes, event.start, event.end, event.queues) == (
        "R7.s",
        ("n1",),
        100,
        160,
        ("R7",),
    )
    state = apply(ServerState(), events)
    assert state.reservations == {"R7.s": held}
    assert list(diff(state, state, ids=ids, now=6, mode="scheduler")) == []
    [gone] = diff(state, ServerState(), ids=ids, now=7, mode="scheduler")
    assert isinstance(gone, Unreserve)
    assert apply(state, [gone]).reservations == {}
