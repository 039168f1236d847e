"""How well our plan agrees with the incumbent's starts."""

from schedd.wire import JobStarted, Run, ShareFacts, WriteAttributes
from server_adapter.bridge.shadow import Agreement, ShadowComparison


def plan(job: str, start: int | None, *nodes: str) -> WriteAttributes:
    return WriteAttributes(
        id="d1",
        cause="",
        time=0,
        job_id=job,
        planned_start=start,
        planned_end=None if start is None else start + 60,
        planned_nodes=nodes,
        text="",
    )


def started(job: str, time: int, *nodes: str) -> JobStarted:
    return JobStarted(id="e:1", time=time, job_id=job, shares=tuple(ShareFacts(node, 2) for node in nodes))


def test_starts_are_compared_with_the_last_published_plan() -> None:
    shadow = ShadowComparison()
    shadow.record_plan(plan("on time", 500, "n1"))
    shadow.record_plan(plan("on time", 1000, "n1", "n2"))
    shadow.record_plan(plan("elsewhere", 900, "n3"))
    shadow.record_plan(plan("before we would", 5000, "n1"))
    shadow.record_plan(plan("unplanned", None))
    found = shadow.compare(
        [
            started("on time", 1010, "n2", "n1"),
            started("elsewhere", 1000, "n4"),
            started("before we would", 1000, "n1"),
            started("unplanned", 1000, "n1"),
            started("unknown", 1000, "n1"),
        ]
    )
    assert found == Agreement(started=5, due=2, same_nodes=1, errors=(10, 100, -4000))
    assert str(found) == (
        "5 started by the incumbent, 2 of them due by our plan (1 on the same nodes); "
        "published starts off by +10 s (median), -4000 s (worst)"
    )
    assert shadow.compare([started("on time", 2000, "n1")]) == Agreement(started=1)


def test_published_starts_of_the_incumbent_are_evaluated_too() -> None:
    shadow = ShadowComparison()
    shadow.record_plan(plan("a", 900, "n1"))
    found = shadow.compare(
        [started("a", 1000, "n1"), started("b", 1000, "n2"), started("c", 1000, "n3")], {"a": 1300, "b": 990}
    )
    assert (found.errors, found.own) == ((100,), (-300, 10))
    assert str(found).endswith("its own by -145 s (median), -300 s (worst)")


def test_a_run_decision_takes_precedence_over_a_published_plan() -> None:
    shadow = ShadowComparison()
    shadow.record_plan(plan("a", 5000, "n1"))
    shadow.record_run(
        Run(
            id="d2",
            cause="",
            time=0,
            job_id="a",
            shares=(ShareFacts("n2", 2),),
            version="",
            expires=60,
        )
    )
    assert shadow.compare([started("a", 1000, "n2")]) == Agreement(1, 1, 1, (-4000,))


def test_a_job_that_is_gone_is_forgotten() -> None:
    shadow = ShadowComparison()
    shadow.record_plan(plan("a", 1000, "n1"))
    shadow.forget("a")
    assert shadow.compare([started("a", 1000, "n1")]) == Agreement(started=1)
