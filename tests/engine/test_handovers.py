"""Jobs handed over by a federation: each step once, whatever is repeated, late or lost."""

from schedd.engine import Engine, EngineSettings
from schedd.engine.records import HandedOver
from schedd.wire import (
    Decision,
    Event,
    HandOver,
    Handover,
    HandoverDone,
    HandoverStep,
    JobDeleted,
    JobEnded,
    LetRun,
    PassedOver,
    SubmissionFacts,
    TakeBack,
)

T = 1_700_000_000
JOB = SubmissionFacts("ann", "sleep 1", resources={"nodes": "1"})
DAY = 86_400


class Desk:
    """An engine, and what came of the last thing told to it."""

    def __init__(self) -> None:
        self.engine = Engine(EngineSettings(validate=True), T)
        self.number = 0

    def tell(self, *events: Event, at: int = T) -> list[Handover]:
        made: tuple[Decision, ...] = self.engine.handle(events, at).decisions
        return [one for one in made if isinstance(one, Handover)]

    def id(self) -> str:
        self.number += 1
        return f"e:{self.number}"

    def ask(self, name: str = "h") -> list[Handover]:
        return self.tell(HandOver(id=self.id(), time=T, handover=name, submission=JOB, by="fed"))

    def let_run(self, name: str = "h") -> list[Handover]:
        return self.tell(LetRun(id=self.id(), time=T, handover=name))

    def take_back(self, name: str = "h") -> list[Handover]:
        return self.tell(TakeBack(id=self.id(), time=T, handover=name, by="fed"))

    def done(self, decision: Handover, job: str = "7.srv", *, done: bool = True, text: str = "") -> None:
        step: HandoverStep = decision.step
        self.tell(
            HandoverDone(
                id=self.id(),
                time=T,
                decision_id=decision.id,
                handover=decision.handover,
                step=step,
                done=done,
                server_job=job,
                text=text,
            )
        )

    def __getitem__(self, name: str) -> HandedOver:
        return self.engine.state.handovers[name]


def test_a_job_is_submitted_once_held_and_then_let_run() -> None:
    desk = Desk()
    (submit,) = desk.ask()
    assert (submit.step, submit.submission) == ("submit", JOB)
    assert desk.ask() == []
    assert desk.let_run() == []  # not before it is held
    desk.done(submit)
    assert (desk["h"].phase, desk["h"].server_job) == ("held", "7.srv")
    (release,) = desk.let_run()
    assert (release.step, release.server_job) == ("release", "7.srv")
    assert desk["h"].let_run
    assert desk.let_run() == []
    desk.done(release)
    assert desk["h"].phase == "released"
    desk.tell(JobEnded(id=desk.id(), time=T, job_id="7.srv", exit_status=3))
    assert (desk["h"].end, desk["h"].exit_status) == ("ended", 3)


def test_a_refused_submission_says_why_and_is_not_tried_again() -> None:
    desk = Desk()
    (submit,) = desk.ask()
    desk.done(submit, "", done=False, text="requested queue not found")
    assert (desk["h"].phase, desk["h"].text) == ("refused", "requested queue not found")
    assert desk.ask() == []
    assert desk.take_back() == []
    assert desk["h"].phase == "withdrawn"


def test_what_was_taken_back_before_it_came_never_comes() -> None:
    desk = Desk()
    assert desk.take_back() == []
    assert desk["h"].phase == "withdrawn"
    assert desk.ask() == []
    assert desk.let_run() == []


def test_a_job_taken_back_while_it_is_submitted_is_deleted_when_its_id_is_known() -> None:
    desk = Desk()
    (submit,) = desk.ask()
    (withdraw,) = desk.take_back()
    desk.done(submit)  # the adapter was at it already
    assert (desk["h"].phase, desk["h"].server_job) == ("withdrawing", "7.srv")
    desk.done(withdraw)
    assert desk["h"].phase == "withdrawn"


def test_a_job_that_runs_is_not_taken_back() -> None:
    desk = Desk()
    (submit,) = desk.ask()
    desk.done(submit)
    (release,) = desk.let_run()
    desk.done(release)
    (withdraw,) = desk.take_back()
    desk.done(withdraw, done=False, text="7.srv runs or has run")
    assert (desk["h"].phase, desk["h"].text) == ("released", "7.srv runs or has run")


def test_a_release_that_was_refused_can_be_asked_for_again() -> None:
    desk = Desk()
    (submit,) = desk.ask()
    desk.done(submit)
    (release,) = desk.let_run()
    desk.done(release, done=False, text="the adapter is in shadow mode")
    assert (desk["h"].phase, desk["h"].let_run) == ("held", True)
    assert [one.step for one in desk.let_run()] == ["release"]


def test_a_job_that_somebody_deleted_is_told_as_deleted() -> None:
    desk = Desk()
    (submit,) = desk.ask()
    desk.done(submit)
    desk.tell(JobDeleted(id=desk.id(), time=T, job_id="7.srv"))
    assert desk["h"].end == "deleted"
    assert desk.take_back() == []
    assert desk["h"].phase == "withdrawn"


def test_a_job_that_ended_while_it_was_taken_back_has_run() -> None:
    """Else it would run again elsewhere."""
    desk = Desk()
    (submit,) = desk.ask()
    desk.done(submit)
    (release,) = desk.let_run()
    desk.done(release)
    (withdraw,) = desk.take_back()
    assert withdraw.let_run
    desk.tell(JobEnded(id=desk.id(), time=T, job_id="7.srv"))
    desk.done(withdraw)
    assert (desk["h"].phase, desk["h"].end) == ("released", "ended")
    assert desk.take_back() == []
    assert desk["h"].phase == "released"


def test_handovers_outlast_a_checkpoint_and_a_plan_that_is_made_anew() -> None:
    desk = Desk()
    (submit,) = desk.ask()
    desk.done(submit)
    desk.engine = Engine.restore(desk.engine.checkpoint())
    assert desk["h"].phase == "held"
    desk.tell(PassedOver(id=desk.id(), time=T, batch=3, why="a test", anew=True))
    assert desk["h"].phase == "held"
    desk.tell(JobEnded(id=desk.id(), time=T, job_id="7.srv"))
    assert desk["h"].end == "ended"


def test_what_was_over_a_week_ago_is_forgotten() -> None:
    desk = Desk()
    (submit,) = desk.ask("over")
    desk.done(submit)
    desk.tell(JobEnded(id=desk.id(), time=T, job_id="7.srv"))
    desk.ask("open")
    desk.tell(at=T + 8 * DAY)
    assert list(desk.engine.state.handovers) == ["open"]
    assert desk.engine.state.handed == {}
