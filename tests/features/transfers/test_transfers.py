"""Transferred jobs: each step once, despite repetition, delay or loss."""

from dataclasses import replace

import pytest

from schedd.engine import Engine, EngineSettings
from schedd.features.transfers.state import TransferRecord, transfer_state
from schedd.model import FOREVER
from schedd.plan.columns import PLANNED
from schedd.wire import (
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

T = 1_700_000_000
JOB = SubmissionFacts("ann", "sleep 1", resources={"nodes": "1"})
DAY = 86_400


class TransferCluster:
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
    cluster = TransferCluster()
    (submit,) = cluster.request()
    assert (submit.step, submit.submission) == ("submit", JOB)
    assert cluster.request() == []
    assert cluster.release_transfer() == []  # not before it is held
    cluster.done(submit)
    assert (cluster["h"].phase, cluster["h"].server_job) == ("held", "7.srv")
    (release,) = cluster.release_transfer()
    assert (release.step, release.server_job) == ("release", "7.srv")
    assert cluster["h"].release_requested
    assert cluster.release_transfer() == []
    cluster.done(release)
    assert cluster["h"].phase == "released"
    cluster.send(JobEnded(id=cluster.id(), time=T, job_id="7.srv", exit_status=3))
    assert (cluster["h"].end, cluster["h"].exit_status) == ("ended", 3)


def array_let_run() -> TransferCluster:
    """An array of three jobs, which may start."""
    cluster = TransferCluster()
    facts = replace(JOB, array="4-6")
    (submit,) = cluster.send(
        TransferRequest(id=cluster.id(), time=T, transfer="h", submission=facts, by="fed")
    )
    cluster.done(submit, "7[].srv")
    (release,) = cluster.release_transfer()
    cluster.done(release, "7[].srv")
    return cluster


def ended(cluster: TransferCluster, index: int, exit_status: int = 0) -> None:
    cluster.send(
        JobEnded(id=cluster.id(), time=T + index, job_id=f"7[{index}].srv", exit_status=exit_status), at=T + 9
    )


def test_an_array_is_over_with_the_last_of_its_jobs() -> None:
    cluster = array_let_run()
    ended(cluster, 4)
    cluster.send(JobDeleted(id=cluster.id(), time=T, job_id="7[5].srv"))
    assert (cluster["h"].end, cluster["h"].tasks_ended, cluster["h"].tasks_deleted) == ("", 1, 1)
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    ended(cluster, 4)  # once more, by a server that was read again
    cluster.send(JobDeleted(id=cluster.id(), time=T, job_id="7[4].srv"))
    assert (cluster["h"].end, cluster["h"].tasks_ended, cluster["h"].tasks_deleted) == ("", 1, 1)
    ended(cluster, 6, 3)
    one = cluster["h"]
    assert (one.end, one.exit_status, one.last_end) == ("ended", 3, T + 6)
    assert (one.tasks, one.tasks_ended, one.tasks_failed, one.tasks_deleted) == (3, 2, 1, 1)


def test_array_with_finished_jobs_is_not_reported_as_withdrawn() -> None:
    cluster = array_let_run()
    ended(cluster, 4)
    (withdraw,) = cluster.withdraw()
    for index in (5, 6):
        cluster.send(JobDeleted(id=cluster.id(), time=T, job_id=f"7[{index}].srv"))
    assert cluster["h"].end == "ended"
    cluster.done(withdraw, "7[].srv")
    assert cluster["h"].phase == "released"


def test_array_without_runs_is_withdrawn() -> None:
    cluster = array_let_run()
    (withdraw,) = cluster.withdraw()
    for index in (4, 5, 6):
        cluster.send(JobDeleted(id=cluster.id(), time=T, job_id=f"7[{index}].srv"))
    assert cluster["h"].end == ""
    cluster.done(withdraw, "7[].srv")
    assert (cluster["h"].phase, cluster["h"].end) == ("withdrawn", "")


def test_refused_submission_has_a_reason_and_is_not_repeated() -> None:
    cluster = TransferCluster()
    (submit,) = cluster.request()
    cluster.done(submit, "", done=False, text="requested queue not found")
    assert (cluster["h"].phase, cluster["h"].text) == ("refused", "requested queue not found")
    assert cluster.request() == []
    assert cluster.withdraw() == []
    assert cluster["h"].phase == "withdrawn"


def test_transfer_withdrawn_before_its_request_is_never_submitted() -> None:
    cluster = TransferCluster()
    assert cluster.withdraw() == []
    assert cluster["h"].phase == "withdrawn"
    assert cluster.request() == []
    assert cluster.release_transfer() == []


def test_job_withdrawn_during_its_submission_is_deleted_once_its_id_is_known() -> None:
    cluster = TransferCluster()
    (submit,) = cluster.request()
    (withdraw,) = cluster.withdraw()
    cluster.done(submit)  # the adapter was at it already
    assert (cluster["h"].phase, cluster["h"].server_job) == ("withdrawing", "7.srv")
    cluster.done(withdraw)
    assert cluster["h"].phase == "withdrawn"


def test_running_job_is_not_withdrawn() -> None:
    cluster = TransferCluster()
    (submit,) = cluster.request()
    cluster.done(submit)
    (release,) = cluster.release_transfer()
    cluster.done(release)
    (withdraw,) = cluster.withdraw()
    cluster.done(withdraw, done=False, text="7.srv runs or has run")
    assert (cluster["h"].phase, cluster["h"].text) == ("released", "7.srv runs or has run")


def test_refused_release_can_be_requested_again() -> None:
    cluster = TransferCluster()
    (submit,) = cluster.request()
    cluster.done(submit)
    (release,) = cluster.release_transfer()
    cluster.done(release, done=False, text="the adapter is in shadow mode")
    assert (cluster["h"].phase, cluster["h"].release_requested) == ("held", True)
    assert [one.step for one in cluster.release_transfer()] == ["release"]


def test_deletion_by_a_user_is_reported() -> None:
    cluster = TransferCluster()
    (submit,) = cluster.request()
    cluster.done(submit)
    cluster.send(JobDeleted(id=cluster.id(), time=T, job_id="7.srv"))
    assert cluster["h"].end == "deleted"
    assert cluster.withdraw() == []
    assert cluster["h"].phase == "withdrawn"


def test_job_that_ended_during_its_withdrawal_counts_as_run() -> None:
    """Else it would run again elsewhere."""
    cluster = TransferCluster()
    (submit,) = cluster.request()
    cluster.done(submit)
    (release,) = cluster.release_transfer()
    cluster.done(release)
    (withdraw,) = cluster.withdraw()
    assert withdraw.release_requested
    cluster.send(JobEnded(id=cluster.id(), time=T, job_id="7.srv"))
    cluster.done(withdraw)
    assert (cluster["h"].phase, cluster["h"].end) == ("released", "ended")
    assert cluster.withdraw() == []
    assert cluster["h"].phase == "released"


def test_transfers_survive_a_checkpoint_and_a_rebuild() -> None:
    cluster = TransferCluster()
    (submit,) = cluster.request()
    cluster.done(submit)
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    assert cluster["h"].phase == "held"
    cluster.send(BatchSkipped(id=cluster.id(), time=T, batch=3, why="a test", anew=True))
    assert cluster["h"].phase == "held"
    cluster.send(JobEnded(id=cluster.id(), time=T, job_id="7.srv"))
    assert cluster["h"].end == "ended"


def test_transfers_that_ended_a_week_ago_are_dropped() -> None:
    cluster = TransferCluster()
    (submit,) = cluster.request("over")
    cluster.done(submit)
    cluster.send(JobEnded(id=cluster.id(), time=T, job_id="7.srv"))
    cluster.request("open")
    cluster.send(at=T + 8 * DAY)
    assert list(transfer_state(cluster.engine.state).transfers) == ["open"]
    assert transfer_state(cluster.engine.state).by_job == {}


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


def kept(cluster: TransferCluster, *, late: bool) -> None:
    """A held job with a held placement of ten minutes; ``late``: the server shows it afterwards."""
    node = NodeFacts(name="n1", cpus=4)
    cluster.send(NodeChanged(id=cluster.id(), time=T, node=node))
    event = TransferRequest(
        id=cluster.id(), time=T, transfer="h", submission=JOB, by="fed", keep_until=T + 600
    )
    (asked,) = cluster.send(event)
    if late:
        cluster.done(asked)
    cluster.send(shown())
    if not late:
        cluster.done(asked)


def starts(cluster: TransferCluster, job: str = "7.srv") -> int:
    state = cluster.engine.state
    return state.plan.start(state.records[job].slot)


@pytest.mark.parametrize("late", [True, False])
def test_held_placement_is_not_given_to_other_jobs(late: bool) -> None:
    cluster = TransferCluster()
    kept(cluster, late=late)
    assert starts(cluster) == T
    assert cluster.engine.state.promise[cluster.engine.state.records["7.srv"].slot] == FOREVER
    made = cluster.engine.handle([shown("", "8.srv")], T).decisions
    assert not [one for one in made if isinstance(one, Run)]  # it is not its turn, nor may the other start
    assert starts(cluster, "8.srv") == T + 100


def test_held_placement_is_used_after_the_release() -> None:
    cluster = TransferCluster()
    kept(cluster, late=False)
    cluster.release_transfer()
    made = cluster.engine.handle([JobReleased(id=cluster.id(), time=T + 5, job_id="7.srv")], T + 5).decisions
    assert [one.job_id for one in made if isinstance(one, Run)] == ["7.srv"]


def test_released_job_with_a_held_placement_gets_a_promise() -> None:
    cluster = TransferCluster()
    cluster.send(shown("", "8.srv", "500"))
    kept(cluster, late=False)
    assert starts(cluster) == T + 500
    cluster.release_transfer()
    cluster.engine.handle([JobReleased(id=cluster.id(), time=T + 5, job_id="7.srv")], T + 5)
    assert (
        starts(cluster) == cluster.engine.state.promise[cluster.engine.state.records["7.srv"].slot] == T + 500
    )


def test_held_placement_ends_at_its_expiry() -> None:
    cluster = TransferCluster()
    kept(cluster, late=False)
    cluster.send(shown("", "8.srv", "5000"), at=T)
    cluster.engine.handle((), T + 59)
    assert starts(cluster) == T
    cluster.engine.handle((), T + 601)
    state = cluster.engine.state
    assert state.plan.state(state.records["7.srv"].slot) != PLANNED
    assert not transfer_state(state).kept_places
    assert starts(cluster, "8.srv") <= T + 601


def test_a_job_on_hold_without_a_place_has_none() -> None:
    cluster = TransferCluster()
    cluster.send(NodeChanged(id=cluster.id(), time=T, node=NodeFacts(name="n1", cpus=4)))
    (asked,) = cluster.request()
    cluster.send(shown())
    cluster.done(asked)
    assert starts(cluster) == -1
