"""Runs on the emulated server: destinations, refusals, outcomes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server_adapter.batch.codes import ObjectType, RequestCode
from server_adapter.batch.requests import JobRequest
from server_adapter.dis import Attribute
from server_adapter.emulator import JobState, RefusalError
from server_adapter.emulator.destination import parse_destination
from tests.server_adapter.lab import Lab


@pytest.mark.parametrize(
    ("destination", "code"),
    [
        ("node1:ppn=4+node2:ppn=4", 0),
        ("node1", 0),
        ("node1+node1", 0),
        ("node1/0+node1/1", 0),
        ("1:ppn=2:even", 0),
        ("2:ppn=4:odd", 0),
        ("", 0),
        ("node9:ppn=1", 15064),
        ("node1:ppn=5", 15064),
        ("node1:ppn=", 15064),
        ("3:ppn=4:odd", 15064),
        ("4:ppn=1", 15064),
    ],
)
def test_destinations_are_interpreted_as_in_the_protocol_document(
    lab: Lab, destination: str, code: int
) -> None:
    assert lab.run(lab.server.submit(resources={"nodes": "1:ppn=2"}), destination) == code


def test_a_name_without_ppn_uses_a_single_slot_for_any_request(lab: Lab) -> None:
    name = lab.server.submit(resources={"nodes": "1:ppn=4"})
    lab.run(name, "node1")
    assert lab.job(name).exec_host == "node1/0"


def test_an_empty_destination_follows_neednodes(lab: Lab) -> None:
    name = lab.server.submit(resources={"nodes": "1:ppn=2"})
    lab.manage(RequestCode.MODIFY_JOB, name, Attribute("Resource_List", "node3:ppn=2", "neednodes"))
    assert lab.run(name) == 0
    assert lab.job(name).exec_host == "node3/0-1"


def test_the_older_version_writes_single_slots() -> None:
    lab = Lab("4.2")
    name = lab.server.submit()
    lab.run(name, "node1:ppn=2+node2:ppn=1")
    assert lab.job(name).exec_host == "node1/0+node1/1+node2/0"
    assert lab.job(name).exec_port == "30003+30003+30005"


def test_requests_that_the_server_does_not_check_are_accepted(lab: Lab) -> None:
    name = lab.server.submit(resources={"nodes": "2:ppn=4", "mem": "9999gb"}, holds="u")
    assert lab.run(name, "node1:ppn=1") == 0


def test_runs_are_refused_with_the_real_codes(lab: Lab) -> None:
    first, second = lab.server.submit(), lab.server.submit()
    assert lab.run(first, "node1:ppn=3") == 0
    assert lab.run(first, "node2:ppn=1") == 15018
    assert lab.run(second, "node1:ppn=2") == 15046
    assert lab.run("99.localhost", "node1") == 15001
    lab.cluster.queues["batch"].attributes["started"] = "False"
    assert lab.run(second, "node2:ppn=1") == 15004
    assert lab.cluster.runs == {first: 1}


def test_an_offline_or_dead_node_is_busy_not_unknown(lab: Lab) -> None:
    lab.manage(RequestCode.MANAGER, "node1", Attribute("state", "offline"), kind=ObjectType.NODE)
    lab.server.kill_node("node2")
    name = lab.server.submit()
    assert lab.run(name, "node1:ppn=1") == 15046
    lab.server.skip(151)
    assert lab.run(name, "node2:ppn=1") == 15046
    assert lab.server.node("node2").state == "down"


def test_a_job_on_a_dead_node_runs_until_its_mom_restarts(lab: Lab) -> None:
    name = lab.server.submit(runtime=10)
    lab.run(name, "node1:ppn=1")
    lab.server.kill_node("node1")
    lab.server.skip(1000)
    assert lab.job(name).state is JobState.RUNNING
    lab.server.revive_node("node1")
    lab.server.skip(1)
    assert lab.job(name).state is JobState.COMPLETE


def test_a_rerun_is_counted_and_frees_the_slots(lab: Lab) -> None:
    name = lab.server.submit(runtime=100)
    lab.run(name, "node1:ppn=4")
    assert lab.request(JobRequest(code=RequestCode.RERUN, job=name)).code == 0
    assert lab.server.node("node1").free == 4
    lab.run(name, "node1:ppn=4")
    lab.server.skip(100.1)
    assert lab.job(name).start_count == 2
    assert lab.cluster.runs[name] == 2
    pinned = lab.server.submit(rerunnable=False)
    lab.run(pinned, "node2:ppn=1")
    assert lab.request(JobRequest(code=RequestCode.RERUN, job=pinned)).code == 15040


def test_faults_refuse_and_return_runs(lab: Lab) -> None:
    name = lab.server.submit()
    lab.server.faults.refuse_runs(1)
    assert lab.run(name, "node1:ppn=1") == 15043
    lab.server.faults.return_runs(1)
    assert lab.run(name, "node1:ppn=1", RequestCode.ASYNC_RUN_JOB) == 0
    lab.server.skip(1)
    assert lab.job(name).state is JobState.QUEUED
    assert lab.server.node("node1").free == 4
    assert lab.run(name, "node1:ppn=1") == 0


def test_a_mom_that_died_unnoticed_refuses_or_returns_the_job(lab: Lab) -> None:
    name = lab.server.submit()
    lab.server.kill_node("node1")
    assert lab.server.node("node1").state == "free"
    assert lab.run(name, "node1:ppn=1") == 15043
    assert lab.run(name, "node1:ppn=1", RequestCode.ASYNC_RUN_JOB) == 0
    lab.server.skip(1)
    assert (lab.job(name).state, lab.job(name).start_count) == (JobState.QUEUED, 0)


actions = st.sampled_from(["submit", "run", "delete", "rerun", "hold", "release", "kill", "revive", "wait"])


@settings(deadline=None)
@given(st.lists(st.tuples(actions, st.integers(0, 9), st.integers(0, 2), st.integers(1, 4)), max_size=60))
def test_slots_are_never_assigned_twice_and_every_run_is_counted(
    steps: list[tuple[str, int, int, int]],
) -> None:
    lab = Lab()
    for action, number, node, slots in steps:
        name, host = f"{number}.localhost", f"node{node + 1}"
        match action:
            case "submit":
                lab.server.submit(runtime=10.0 * slots)
            case "run":
                lab.run(name, f"{host}:ppn={slots}")
            case "delete":
                lab.delete(name)
            case "rerun":
                lab.request(JobRequest(code=RequestCode.RERUN, job=name))
            case "hold":
                lab.hold(name, "u")
            case "release":
                lab.release(name, "u")
            case "kill":
                lab.server.kill_node(host)
            case "revive":
                lab.server.revive_node(host)
            case _:
                lab.server.skip(7.0 * slots)
        for place in lab.cluster.nodes.values():
            assert len(place.taken) <= place.slots
            for slot, holder in place.taken.items():
                assert (place.name, slot) in [
                    (held, one) for held, many in lab.job(holder).held_slots for one in many
                ]
        for job in lab.cluster.jobs.values():
            assert job.start_count == lab.cluster.runs.get(job.id, 0)
            assert bool(job.held_slots) == job.active


@given(st.text("node123:ppn=+/odev, ", max_size=30))
def test_any_destination_is_read_or_refused(text: str) -> None:
    lab = Lab()
    try:
        parse_destination(text, lab.cluster.nodes)
    except RefusalError as error:
        assert error.code == 15064
