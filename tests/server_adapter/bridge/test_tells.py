"""Which plan is written next, and what an earlier run of ours wrote."""

from collections import deque
from collections.abc import Mapping

from schedd.wire import JobFacts, Tell
from server_adapter.bridge.commands import comment
from server_adapter.bridge.state import State, Writing
from server_adapter.bridge.tells import Tells

NOW = 1_800_000_000


def tell(job: str, start: int | None, *, text: str = "") -> Tell:
    return Tell(
        id="d1",
        cause="",
        time=NOW,
        job_id=job,
        planned_start=start,
        planned_end=None if start is None else start + 60,
        planned_nodes=() if start is None else ("n1",),
        text=text,
    )


def state(*jobs: str, running: tuple[str, ...] = (), comments: Mapping[str, str] = {}) -> State:
    facts = {
        name: JobFacts(id=name, owner="a", queue="q", submitted=NOW, state="R" if name in running else "Q")
        for name in (*jobs, *running)
    }
    return State(jobs=facts, writings={name: Writing(text) for name, text in comments.items()})


def learn(tells: Tells, seen: State) -> None:
    deque(tells.learn(seen), maxlen=0)


def written(tells: Tells, seen: State) -> list[str]:
    found = []
    while (write := tells.next(seen)) is not None:
        found.append(write.tell.job_id)
        tells.wrote(write.tell)
    return found


def test_the_soonest_start_is_written_first_and_reasons_last() -> None:
    tells = Tells()
    seen = state("a", "b", "c")
    for told in (tell("a", None, text="held"), tell("b", NOW + 500), tell("c", NOW + 100)):
        tells.want(told)
    assert written(tells, seen) == ["c", "b", "a"]


def test_a_small_move_is_not_written() -> None:
    tells = Tells(threshold=60)
    seen = state("a")
    tells.want(tell("a", NOW + 500))
    assert written(tells, seen) == ["a"]
    tells.want(tell("a", NOW + 560))
    assert written(tells, seen) == []
    tells.want(tell("a", NOW + 561))
    assert written(tells, seen) == ["a"]


def test_what_an_earlier_run_wrote_is_read_from_the_jobs_in_slices() -> None:
    tells = Tells()
    names = [f"j{number}" for number in range(1000)]
    seen = state(*names, comments={name: comment(tell(name, NOW + 500)) for name in names})
    assert len(list(tells.learn(seen))) >= 5
    for name in names:
        tells.want(tell(name, NOW + 510))
    assert written(tells, seen) == []


def test_a_job_that_started_is_forgotten() -> None:
    tells = Tells()
    tells.want(tell("a", NOW + 500))
    tells.want(tell("b", NOW + 500))
    learn(tells, state("b", running=("a",)))
    assert len(tells) == 1
    assert tells.planned_start("a") is None
    assert tells.planned_start("b") == NOW + 500
