"""Transferred jobs: each step once, despite repetition, delay or loss."""

from dataclasses import replace

import pytest

from schedd.engine import Engine, EngineSettings
from schedd.engine.checkpoint import _opened
from schedd.features.transfers.state import TransferRecord, transfer_state
from schedd.model import FOREVER
from schedd.plan.columns import PLANNED
from schedd.wire import (
    BagEndReported,
    BatchSkipped,
    Decision,
    Event,
    JobDeleted,
    JobEnded,
    JobFacts,
    JobQueued,
    JobReleased,
    NodeChanged,
    NodeFacts,
    Run,
    SubmissionFacts,
    TransferDecision,
    TransferRelease,
    TransferRequest,
    TransferStep,
    TransferStepDone,
    TransferWithdrawal,
)
from tests.engine.chaos.streams import packed

T = 1_700_000_000
JOB = SubmissionFacts("ann", "sleep 1", resources={"nodes": "1"})
DAY = 86_400


class Desk:
    """An engine and the result of its last call."""

    def __init__(self) -> None:
        self.engine = Engine(EngineSettings(validate=True), T)
        self.number = 0

    def send(self, *events: Event, at: int = T) -> list[TransferDecision]:
        made: tuple[Decision, ...] = self.engine.handle(events, at).decisions
        return [one for one in made if isinstance(one, TransferDecision)]

    def id(self) -> str:
        self.number += 1
        return f"e:{self.number}"

    def request(self, name: str = "h") -> list[TransferDecision]:
        return self.send(TransferRequest(id=self.id(), time=T, transfer=name, submission=JOB, by="fed"))

    def release_transfer(self, name: str = "h") -> list[TransferDecision]:
        return self.send(TransferRelease(id=self.id(), time=T, transfer=name))

    def withdraw(self, name: str = "h") -> list[TransferDecision]:
        return self.send(TransferWithdrawal(id=self.id(), time=T, transfer=name, by="fed"))

    def done(
        self, decision: TransferDecision, job: str = "7.srv", *, done: bool = True, text: str = ""
    ) -> None:
        step: TransferStep = decision.step
        self.send(
            TransferStepDone(
                id=self.id(),
                time=T,
                decision_id=decision.id,
                transfer=decision.transfer,
                step=step,
                done=done,
                server_job=job,
                text=text,
            )
        )

    def __getitem__(self, name: str) -> TransferRecord:
        return transfer_state(self.engine.state).transfers[name]


def test_transferred_job_is_submitted_held_and_then_released() -> None:
    desk = Desk()
    (submit,) = desk.request()
    assert (submit.step, submit.submission) == ("submit", JOB)
    assert desk.request() == []
    assert desk.release_transfer() == []  # not before it is held
    desk.done(submit)
    assert (desk["h"].phase, desk["h"].server_job) == ("held", "7.srv")
    (release,) = desk.release_transfer()
    assert (release.step, release.server_job) == ("release", "7.srv")
    assert desk["h"].release_requested
    assert desk.release_transfer() == []
    desk.done(release)
    assert desk["h"].phase == "released"
    desk.send(JobEnded(id=desk.id(), time=T, job_id="7.srv", exit_status=3))
    assert (desk["h"].end, desk["h"].exit_status) == ("ended", 3)


def array_let_run() -> Desk:
    """An array of three jobs, which may start."""
    desk = Desk()
    facts = replace(JOB, array="4-6")
    (submit,) = desk.send(TransferRequest(id=desk.id(), time=T, transfer="h", submission=facts, by="fed"))
    desk.done(submit, "7[].srv")
    (release,) = desk.release_transfer()
    desk.done(release, "7[].srv")
    return desk


def ended(desk: Desk, index: int, exit_status: int = 0) -> None:
    desk.send(
        JobEnded(id=desk.id(), time=T + index, job_id=f"7[{index}].srv", exit_status=exit_status), at=T + 9
    )


def test_an_array_is_over_with_the_last_of_its_jobs() -> None:
    desk = array_let_run()
    ended(desk, 4)
    desk.send(JobDeleted(id=desk.id(), time=T, job_id="7[5].srv"))
    assert (desk["h"].end, desk["h"].tasks_ended, desk["h"].tasks_deleted) == ("", 1, 1)
    desk.engine = Engine.restore(desk.engine.checkpoint())
    ended(desk, 4)  # once more, by a server that was read again
    desk.send(JobDeleted(id=desk.id(), time=T, job_id="7[4].srv"))
    assert (desk["h"].end, desk["h"].tasks_ended, desk["h"].tasks_deleted) == ("", 1, 1)
    ended(desk, 6, 3)
    one = desk["h"]
    assert (one.end, one.exit_status, one.last_end) == ("ended", 3, T + 6)
    assert (one.tasks, one.tasks_ended, one.tasks_failed, one.tasks_deleted) == (3, 2, 1, 1)


def test_array_with_finished_jobs_is_not_reported_as_withdrawn() -> None:
    desk = array_let_run()
    ended(desk, 4)
    (withdraw,) = desk.withdraw()
    for index in (5, 6):
        desk.send(JobDeleted(id=desk.id(), time=T, job_id=f"7[{index}].srv"))
    assert desk["h"].end == "ended"
    desk.done(withdraw, "7[].srv")
    assert desk["h"].phase == "released"


def test_array_without_runs_is_withdrawn() -> None:
    desk = array_let_run()
    (withdraw,) = desk.withdraw()
    for index in (4, 5, 6):
        desk.send(JobDeleted(id=desk.id(), time=T, job_id=f"7[{index}].srv"))
    assert desk["h"].end == ""
    desk.done(withdraw, "7[].srv")
    assert (desk["h"].phase, desk["h"].end) == ("withdrawn", "")


def test_refused_submission_has_a_reason_and_is_not_repeated() -> None:
    desk = Desk()
    (submit,) = desk.request()
    desk.done(submit, "", done=False, text="requested queue not found")
    assert (desk["h"].phase, desk["h"].text) == ("refused", "requested queue not found")
    assert desk.request() == []
    assert desk.withdraw() == []
    assert desk["h"].phase == "withdrawn"


def test_transfer_withdrawn_before_its_request_is_never_submitted() -> None:
    desk = Desk()
    assert desk.withdraw() == []
    assert desk["h"].phase == "withdrawn"
    assert desk.request() == []
    assert desk.release_transfer() == []


def test_job_withdrawn_during_its_submission_is_deleted_once_its_id_is_known() -> None:
    desk = Desk()
    (submit,) = desk.request()
    (withdraw,) = desk.withdraw()
    desk.done(submit)  # the adapter was at it already
    assert (desk["h"].phase, desk["h"].server_job) == ("withdrawing", "7.srv")
    desk.done(withdraw)
    assert desk["h"].phase == "withdrawn"


def test_running_job_is_not_withdrawn() -> None:
    desk = Desk()
    (submit,) = desk.request()
    desk.done(submit)
    (release,) = desk.release_transfer()
    desk.done(release)
    (withdraw,) = desk.withdraw()
    desk.done(withdraw, done=False, text="7.srv runs or has run")
    assert (desk["h"].phase, desk["h"].text) == ("released", "7.srv runs or has run")


def test_refused_release_can_be_requested_again() -> None:
    desk = Desk()
    (submit,) = desk.request()
    desk.done(submit)
    (release,) = desk.release_transfer()
    desk.done(release, done=False, text="the adapter is in shadow mode")
    assert (desk["h"].phase, desk["h"].release_requested) == ("held", True)
    assert [one.step for one in desk.release_transfer()] == ["release"]


def test_deletion_by_a_user_is_reported() -> None:
    desk = Desk()
    (submit,) = desk.request()
    desk.done(submit)
    desk.send(JobDeleted(id=desk.id(), time=T, job_id="7.srv"))
    assert desk["h"].end == "deleted"
    assert desk.withdraw() == []
    assert desk["h"].phase == "withdrawn"


def test_job_that_ended_during_its_withdrawal_counts_as_run() -> None:
    """Else it would run again elsewhere."""
    desk = Desk()
    (submit,) = desk.request()
    desk.done(submit)
    (release,) = desk.release_transfer()
    desk.done(release)
    (withdraw,) = desk.withdraw()
    assert withdraw.release_requested
    desk.send(JobEnded(id=desk.id(), time=T, job_id="7.srv"))
    desk.done(withdraw)
    assert (desk["h"].phase, desk["h"].end) == ("released", "ended")
    assert desk.withdraw() == []
    assert desk["h"].phase == "released"


def test_transfers_survive_a_checkpoint_and_a_rebuild() -> None:
    desk = Desk()
    (submit,) = desk.request()
    desk.done(submit)
    desk.engine = Engine.restore(desk.engine.checkpoint())
    assert desk["h"].phase == "held"
    desk.send(BatchSkipped(id=desk.id(), time=T, batch=3, why="a test", anew=True))
    assert desk["h"].phase == "held"
    desk.send(JobEnded(id=desk.id(), time=T, job_id="7.srv"))
    assert desk["h"].end == "ended"


def test_transfers_that_ended_a_week_ago_are_dropped() -> None:
    desk = Desk()
    (submit,) = desk.request("over")
    desk.done(submit)
    desk.send(JobEnded(id=desk.id(), time=T, job_id="7.srv"))
    desk.request("open")
    desk.send(at=T + 8 * DAY)
    assert list(transfer_state(desk.engine.state).transfers) == ["open"]
    assert transfer_state(desk.engine.state).by_job == {}


# ---- places kept for jobs on hold --------------------------------------------------------------------------


def shown(holds: str = "o", job: str = "7.srv", walltime: str = "100") -> JobQueued:
    """The server shows the job that was handed over; every job takes the only node."""
    facts = JobFacts(
        id=job,
        owner="ann@login",
        queue="batch",
        submitted=T,
        state="H" if holds else "Q",
        holds=holds,
        resources={"nodes": "1:ppn=4", "walltime": walltime},
        version="1",
    )
    return JobQueued(id=f"q:{job}:{holds}", time=T, job=facts)


def kept(desk: Desk, *, late: bool) -> None:
    """A held job with a held placement of ten minutes; ``late``: the server shows it afterwards."""
    node = NodeFacts(name="n1", cpus=4)
    desk.send(NodeChanged(id=desk.id(), time=T, node=node))
    event = TransferRequest(id=desk.id(), time=T, transfer="h", submission=JOB, by="fed", keep_until=T + 600)
    (asked,) = desk.send(event)
    if late:
        desk.done(asked)
    desk.send(shown())
    if not late:
        desk.done(asked)


def starts(desk: Desk, job: str = "7.srv") -> int:
    state = desk.engine.state
    return state.plan.start(state.records[job].slot)


@pytest.mark.parametrize("late", [True, False])
def test_held_placement_is_not_given_to_other_jobs(late: bool) -> None:
    desk = Desk()
    kept(desk, late=late)
    assert starts(desk) == T
    assert desk.engine.state.promise[desk.engine.state.records["7.srv"].slot] == FOREVER
    made = desk.engine.handle([shown("", "8.srv")], T).decisions
    assert not [one for one in made if isinstance(one, Run)]  # it is not its turn, nor may the other start
    assert starts(desk, "8.srv") == T + 100


def test_held_placement_is_used_after_the_release() -> None:
    desk = Desk()
    kept(desk, late=False)
    desk.release_transfer()
    made = desk.engine.handle([JobReleased(id=desk.id(), time=T + 5, job_id="7.srv")], T + 5).decisions
    assert [one.job_id for one in made if isinstance(one, Run)] == ["7.srv"]


def test_held_placement_ends_at_its_expiry() -> None:
    desk = Desk()
    kept(desk, late=False)
    desk.send(shown("", "8.srv", "5000"), at=T)
    desk.engine.handle((), T + 59)
    assert starts(desk) == T
    desk.engine.handle((), T + 601)
    state = desk.engine.state
    assert state.plan.state(state.records["7.srv"].slot) != PLANNED
    assert not transfer_state(state).kept_places
    assert starts(desk, "8.srv") <= T + 601


def test_a_job_on_hold_without_a_place_has_none() -> None:
    desk = Desk()
    desk.send(NodeChanged(id=desk.id(), time=T, node=NodeFacts(name="n1", cpus=4)))
    (asked,) = desk.request()
    desk.send(shown())
    desk.done(asked)
    assert starts(desk) == -1


def test_ends_of_bags_come_along_from_a_checkpoint_in_which_they_were_a_field_of_the_engine() -> None:
    desk = Desk()
    desk.send(BagEndReported(id=desk.id(), time=T, array="9[].server", end=T + 500))
    header, arrays = _opened(desk.engine.checkpoint())
    header["state"]["bag_ends"] = header["components"]["transfers"].pop("bag_ends")
    restored = Engine.restore(packed(header, arrays))
    assert transfer_state(restored.state).bag_ends == {"9[].server": T + 500}
    facts = JobFacts(id="9[1].server", owner="ann", queue="q", submitted=T, array="9[].server")
    restored.handle([JobQueued(id=desk.id(), time=T, job=replace(facts, resources={"nodes": "1"}))], T)
    assert restored.state.bag_end[restored.state.records["9[1].server"].slot] == T + 500
