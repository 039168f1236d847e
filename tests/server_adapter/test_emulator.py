"""What the emulated server does with jobs, nodes and time, without sockets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server_adapter.batch.codes import ManagerCommand, ObjectType, RequestCode
from server_adapter.batch.replies import SelectedJobs, Status
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import (
    JobRequest,
    JobScriptRequest,
    MoveRequest,
    QueueJobRequest,
    RunRequest,
    SelectRequest,
    SignalRequest,
    StatusRequest,
)
from server_adapter.dis import Attribute, Decoder, Operation, encode_attribute
from server_adapter.emulator import JobState, RefusalError, Timing
from server_adapter.emulator.client_context import ClientContext
from server_adapter.emulator.encoding import encode_entry
from server_adapter.emulator.principal import make_principal
from server_adapter.torque.codes import SchedulerCommand
from server_adapter.torque.replies import decode_reply
from tests.server_adapter.lab import Lab


def test_a_job_runs_to_its_end_and_is_forgotten_after_the_retention_time(lab: Lab) -> None:
    name = lab.server.submit(runtime=30)
    assert lab.run(name, "node1:ppn=2") == 0
    assert lab.job(name).exec_host == "node1/0-1"
    assert lab.server.node("node1").free == 2
    lab.server.skip(30)
    assert lab.job(name).state is JobState.EXITING
    assert lab.server.node("node1").free == 2  # until the obit
    lab.server.skip(1)
    assert lab.job(name).state is JobState.COMPLETE
    assert lab.server.node("node1").free == 4
    lab.server.skip(60)
    with pytest.raises(RefusalError):
        lab.job(name)


@pytest.mark.parametrize("period", [0, 2, 45])
def test_a_job_beyond_its_walltime_is_killed_at_the_next_poll_of_its_mom(period: int) -> None:
    lab = Lab(timing=Timing(check_poll=period))
    for node in ("node1", "node2", "node3"):
        name = lab.server.submit(resources={"nodes": "1", "walltime": "00:01:00"}, runtime=500)
        lab.run(name, f"{node}:ppn=1")
        lab.server.skip(59)
        assert lab.job(name).state is JobState.RUNNING
        lab.server.skip(period + 2)
        assert lab.job(name).exit_status == -11
        runtime = lab.job(name).runtime
        assert runtime is not None
        assert 60 <= runtime <= 60.3 + period


def test_the_events_send_the_recorded_commands(lab: Lab) -> None:
    name = lab.server.submit(runtime=1000)
    assert lab.command() is SchedulerCommand.NEW
    assert lab.manage(RequestCode.MODIFY_JOB, name, Attribute("Priority", "5")) == 0
    assert lab.hold(name, "u") == 0
    assert lab.command() is None
    lab.release(name, "u")
    assert lab.command() is SchedulerCommand.NEW
    lab.run(name, "node1:ppn=1")
    assert lab.command() is None
    lab.request(JobRequest(code=RequestCode.RERUN, job=name))
    assert lab.command() is SchedulerCommand.NEW
    lab.run(name, "node1:ppn=1")
    lab.delete(name)
    assert lab.command() is SchedulerCommand.TERM
    lab.server.skip(3)
    assert lab.command() is SchedulerCommand.TERM
    lab.server.skip(60)
    assert lab.command() is SchedulerCommand.TERM  # the record is purged
    for operation in (Operation.INCR, Operation.DECR):
        offline = Attribute("state", "offline", operation=operation)
        lab.manage(RequestCode.MANAGER, "node1", offline, kind=ObjectType.NODE)
        assert lab.command() is None
    scheduling = Attribute("scheduling", "True")
    lab.manage(RequestCode.MANAGER, "", scheduling, kind=ObjectType.SERVER)
    assert lab.command() is SchedulerCommand.CMD
    lab.server.skip(600)
    assert lab.command() is SchedulerCommand.TIME


def test_a_held_job_is_announced_and_runs_on_request(lab: Lab) -> None:
    name = lab.server.submit(holds="s")
    assert lab.command() is SchedulerCommand.NEW
    assert lab.job(name).state is JobState.HELD
    assert lab.run(name, "node1:ppn=1") == 0


def test_without_scheduling_no_command_is_sent(lab: Lab) -> None:
    lab.server.set_scheduling(False)
    lab.server.submit()
    assert lab.command() is None


def test_a_job_with_an_execution_time_waits_for_it(lab: Lab) -> None:
    name = lab.server.submit(not_before=lab.server.now + 100)
    assert lab.command() is SchedulerCommand.NEW
    assert lab.job(name).state is JobState.WAITING
    lab.server.skip(101)
    assert lab.job(name).state is JobState.QUEUED
    assert lab.command() is SchedulerCommand.NEW
    moment = str(int(lab.server.now) + 50)
    assert lab.manage(RequestCode.MODIFY_JOB, name, Attribute("Execution_Time", moment)) == 0
    assert lab.job(name).state is JobState.WAITING


def test_an_array_keeps_to_its_slot_limit(lab: Lab) -> None:
    array = lab.server.submit(array="1-4%2", runtime=10)
    assert array == "0[].localhost"
    assert [lab.job(f"0[{n}]").state.value for n in range(1, 5)] == ["Q", "Q", "H", "H"]
    lab.run("0[1].localhost", "node1:ppn=1")
    lab.server.skip(11)
    assert [lab.job(f"0[{n}]").state.value for n in range(1, 5)] == ["C", "Q", "Q", "H"]
    assert lab.delete(array) == 0
    assert all(job.finished for job in lab.cluster.jobs.values())


def test_dependent_jobs_are_released_or_deleted_as_their_condition_ends(lab: Lab) -> None:
    good, bad = lab.server.submit(runtime=5), lab.server.submit(runtime=5, exit_status=3)
    after_good = lab.server.submit(depend=f"afterok:{good}")
    after_bad = lab.server.submit(depend=f"afterok:{bad}")
    whatever = lab.server.submit(depend=f"afterany:{good}:{bad}")
    started = lab.server.submit(depend=f"after:{good}")
    assert {lab.job(name).state for name in (after_good, after_bad, whatever, started)} == {JobState.HELD}
    lab.run(good, "node1:ppn=1")
    assert lab.job(started).state is JobState.QUEUED
    lab.run(bad, "node1:ppn=1")
    lab.server.skip(6)
    assert lab.job(after_good).state is JobState.QUEUED
    assert lab.job(after_bad).state is JobState.COMPLETE
    assert lab.job(whatever).state is JobState.QUEUED


def test_a_dependency_on_a_job_nobody_knows_is_refused(lab: Lab) -> None:
    with pytest.raises(RefusalError, match="15056"):
        lab.server.submit(depend="afterok:77.localhost")


def test_rights_equal_those_of_the_real_server(lab: Lab) -> None:
    name = lab.server.submit("alice")
    start, note = Attribute("start_time", "1795259262"), Attribute("comment", "planned")
    extra, time = Attribute("x", "site"), Attribute("Resource_List", "00:02:00", "walltime")
    modify = RequestCode.MODIFY_JOB
    assert lab.manage(modify, name, start, note) == 0
    assert [lab.manage(modify, name, entry, user="alice") for entry in (start, note, extra, time)] == [
        15003,
        15003,
        0,
        0,
    ]
    assert lab.manage(modify, name, time, user="bob") == 15007
    assert lab.hold(name, "s", user="alice") == 15007
    assert lab.hold(name, "u", user="alice") == 0
    assert lab.delete(name, user="bob") == 15007
    assert lab.request(RunRequest(code=RequestCode.RUN_JOB, job=name), "alice").code == 15007
    assert lab.manage(modify, name, Attribute("planned_start", "1")) == 15002
    assert lab.manage(modify, name, Attribute("Resource_List", "1", "planned_nodes")) == 15037


def test_the_start_time_of_a_queued_job_is_shown_and_overwritten_by_its_start(lab: Lab) -> None:
    name = lab.server.submit()
    lab.manage(RequestCode.MODIFY_JOB, name, Attribute("start_time", "1795999999"))
    assert lab.job(name).start_time == 1795999999
    lab.run(name, "node1:ppn=1")
    assert lab.job(name).start_time == lab.server.now


def test_signals_moves_and_order_need_the_right_state(lab: Lab) -> None:
    first, second = lab.server.submit(), lab.server.submit()
    signal = SignalRequest(code=RequestCode.SIGNAL_JOB, job=first, signal="SIGCONT")
    assert lab.request(signal).code == 15018
    ranks = lab.job(first).rank, lab.job(second).rank
    assert lab.request(MoveRequest(code=RequestCode.ORDER_JOB, job=first, destination=second)).code == 0
    assert (lab.job(second).rank, lab.job(first).rank) == ranks
    assert lab.request(MoveRequest(code=RequestCode.MOVE_JOB, job=first, destination="none")).code == 15020
    lab.run(first, "node1:ppn=1")
    assert lab.request(signal).code == 0
    assert lab.request(MoveRequest(code=RequestCode.MOVE_JOB, job=first, destination="batch")).code == 15018


def test_submission_in_four_steps_is_accepted() -> None:
    lab = Lab("4.2")
    who = make_principal(lab.cluster, "alice", privileged=False)
    dialogue = ClientContext(who)
    attributes = (Attribute("Job_Name", "first"), Attribute("Resource_List", "1:ppn=2", "nodes"))
    script = b"sleep 5\nexit 3\n"
    steps: list[BatchRequest] = [
        QueueJobRequest(code=RequestCode.QUEUE_JOB, destination="batch", attributes=attributes),
        JobScriptRequest(code=RequestCode.JOB_SCRIPT, size=len(script), job="", data=script),
        JobRequest(code=RequestCode.READY_TO_COMMIT, job="0.localhost"),
    ]
    for step in steps:
        assert decode_reply(Decoder(lab.server.handlers.answer(step, dialogue))).code == 0
    assert not lab.cluster.jobs
    commit = JobRequest(code=RequestCode.COMMIT, job="0.localhost")
    lab.server.handlers.answer(commit, dialogue)
    assert lab.run("0.localhost", "node1:ppn=1") == 0
    lab.server.skip(6)
    assert lab.job("0.localhost").exit_status == 3


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ((Attribute("Resource_List", "1", "bananas"),), 15037),
        ((Attribute("Priority", "high"),), 15016),
        ((), 0),
    ],
)
def test_submissions_are_refused_with_the_real_codes(changes: tuple[Attribute, ...], code: int) -> None:
    lab = Lab()
    request = QueueJobRequest(code=RequestCode.QUEUE_JOB_2, attributes=changes)
    assert lab.request(request, "alice").code == code
    assert lab.request(QueueJobRequest(code=RequestCode.QUEUE_JOB_2)).code == 15025  # root may not qsub
    elsewhere = QueueJobRequest(code=RequestCode.QUEUE_JOB_2, destination="nowhere")
    assert lab.request(elsewhere, "alice").code == 15020


def test_a_node_may_lie_about_its_load(lab: Lab) -> None:
    lab.server.lie_about_load("node1", load=99.5, available=7)
    raw = lab.server.handlers.answer(
        StatusRequest(code=RequestCode.STATUS_NODE, name="node1"),
        ClientContext(make_principal(lab.cluster, "root", privileged=True)),
    )
    assert b"loadave=99.50" in raw
    assert b"availmem=7kb" in raw


def test_selection_compares_attributes(lab: Lab) -> None:
    big = lab.server.submit(resources={"nodes": "1", "walltime": "02:00:00"}, priority=5)
    lab.server.submit(resources={"nodes": "1", "walltime": "00:10:00"})

    def select(*conditions: Attribute) -> tuple[str, ...]:
        payload = lab.request(SelectRequest(code=RequestCode.SELECT_JOBS, conditions=conditions)).payload
        assert isinstance(payload, SelectedJobs)
        return payload.jobs

    assert select(Attribute("Resource_List", "01:00:00", "walltime", Operation.GE)) == (big,)
    assert select(Attribute("Priority", "1", operation=Operation.GT)) == (big,)
    assert len(select(Attribute("destination", "batch", operation=Operation.EQ))) == 2


def test_qmgr_makes_queues_and_nodes_and_unmakes_them(lab: Lab) -> None:
    manager = RequestCode.MANAGER
    create, delete = ManagerCommand.CREATE, ManagerCommand.DELETE
    assert lab.manage(manager, "long", kind=ObjectType.QUEUE, command=create) == 0
    assert lab.manage(manager, "long", Attribute("enabled", "t"), kind=ObjectType.QUEUE) == 0
    assert lab.cluster.queues["long"].enabled
    assert lab.manage(manager, "long", Attribute("enabled", "perhaps"), kind=ObjectType.QUEUE) == 15016
    assert lab.manage(manager, "long", kind=ObjectType.QUEUE, command=delete) == 0
    assert lab.manage(manager, "node9", Attribute("np", "8"), kind=ObjectType.NODE, command=create) == 0
    assert lab.server.node("node9").free == 8
    assert lab.manage(manager, "", Attribute("colour", "red"), kind=ObjectType.SERVER) == 15002
    assert lab.manage(manager, "", kind=ObjectType.SERVER, user="alice") == 15007


def test_a_queue_refuses_jobs_beyond_its_limits(lab: Lab) -> None:
    limits = lab.cluster.queues["batch"].attributes
    limits |= {"max_user_queuable": "1", "resources_max.walltime": "01:00:00", "resources_min.mem": "1gb"}
    with pytest.raises(RefusalError, match="15038"):
        lab.server.submit(resources={"walltime": "01:00:01"})
    with pytest.raises(RefusalError, match="15038"):
        lab.server.submit(resources={"mem": "1000mb"})
    lab.server.submit()
    with pytest.raises(RefusalError, match="15076"):
        lab.server.submit()
    lab.server.submit("bob")


def test_a_summary_shows_an_array_as_a_single_job(lab: Lab) -> None:
    lab.server.submit(array="1-3")
    lab.server.submit()
    lab.run("0[2].localhost", "node1:ppn=1")
    ask = StatusRequest(code=RequestCode.STATUS_JOB, extension="summarize_arrays")
    payload = lab.request(ask).payload
    assert isinstance(payload, Status)
    assert [item.name for item in payload.objects] == ["0[].localhost", "1.localhost"]
    values = {entry.key: entry.value for entry in payload.objects[0].attributes}
    assert (values["job_state"], values["Job_Name"], values["job_array_request"]) == ("R", "STDIN", "1-3")


@given(
    st.builds(
        Attribute, st.text(max_size=20), st.text(max_size=50) | st.just("x" * 5000), st.none() | st.text()
    )
)
def test_status_entries_are_encoded_as_any_entry_is(entry: Attribute) -> None:
    assert encode_entry(entry) == encode_attribute(entry)


def test_an_array_is_forgotten_with_its_last_job(lab: Lab) -> None:
    array = lab.server.submit(array="1-2")
    lab.delete("0[1].localhost")
    lab.server.skip(61)
    assert [job.id for job in lab.cluster.array(array)] == ["0[2].localhost"]
    lab.delete("0[2].localhost")
    lab.server.skip(61)
    with pytest.raises(RefusalError, match="15001"):
        lab.cluster.array(array)
    assert not lab.cluster.arrays
