"""Priority: each term against values worked out in its source or by hand, and their sum."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.policy.demand import Demand, demand
from schedd.policy.priority import TERMS, JobClass, SiteWeights, deadline_value, priority, short_value
from schedd.policy.protocol import Applicant, Shares
from schedd.policy.site import site_policy

NOW = 1_700_000_000
HOUR = 3600
NONE = site_policy({"priority": {"queue": 0.0, "class": 0.0}}).weights
NOBODY: Shares = Demand()


def job(**what: object) -> Applicant:
    return Applicant(**{"id": "1", "owner": "ann", "queue": "q", "submitted": NOW - HOUR, **what})  # type: ignore[arg-type]


def changed(weights: SiteWeights, **changes: object) -> SiteWeights:
    return weights.model_copy(update=changes)


def points(weights: SiteWeights, one: Applicant, shares: Shares = NOBODY, now: int = NOW) -> dict[str, float]:
    return {term.name: term.points for term in priority(one, now, shares, weights).terms}


# ---- the multilevel scheduler -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deadline", "value"),
    [(10800, 0.1), (9000, 5.075), (7200, 10.05), (5400, 15.025), (3600, 20.0), (3599, 0.1)],
)
def test_deadline_pressure_matches_the_source(deadline: int, value: float) -> None:
    """multilevel.md §3.2: estimate 3600, k 2, min 0.1, max 20, now 0."""
    assert deadline_value(0, deadline, 3600) == pytest.approx(value, abs=1e-12)


@given(st.integers(0, 50_000), st.integers(1, 20_000), st.floats(0.1, 10))
def test_deadline_pressure_never_falls_before_it_is_lost(deadline: int, walltime: int, lead: float) -> None:
    last = deadline - walltime
    values = [deadline_value(now, deadline, walltime, lead=lead) for now in range(last - 999, last + 1)]
    assert values == sorted(values)
    assert values[-1] == 20.0
    assert deadline_value(last + 1, deadline, walltime, lead=lead) == 0.1
    assert deadline_value(last + 1, deadline, walltime, lead=lead, keep_lost=True) == 20.0


def test_missed_deadline_displaces_no_job_unless_the_site_keeps_it() -> None:
    weights, lost = changed(NONE, deadline=1.0), job(deadline=NOW + 99, walltime=100)
    assert points(weights, lost) == {"deadline": 0.1}
    assert points(changed(weights, deadline_lost="keep"), lost) == {"deadline": 20.0}
    assert points(weights, job(deadline=NOW + 100, walltime=100)) == {"deadline": 20.0}


def test_unnamed_queues_use_server_or_default_priority() -> None:
    weights = changed(NONE, queue=2.0, queues={"fast": 7.0})
    assert points(weights, job(queue="fast", queue_priority=5)) == {"queue": 14.0}
    assert points(weights, job(queue="slow", queue_priority=5)) == {"queue": 10.0}
    weights = changed(weights, queues={"fast": 7.0, "*": 1.0})
    assert points(weights, job(queue="slow", queue_priority=5)) == {"queue": 2.0}


def test_waiting_counts_from_eligibility() -> None:
    """W_A of 0.01 a second, as the authors used it, is 36 points an hour."""
    weights = changed(NONE, waiting=36.0)
    assert points(weights, job(eligible=NOW - 2000)) == {"waiting": pytest.approx(20.0)}
    assert points(weights, job(eligible=None)) == {"waiting": 0.0}
    assert points(weights, job(eligible=NOW + 60)) == {"waiting": 0.0}
    assert points(changed(weights, waiting_most=0.5), job(eligible=NOW - HOUR)) == {"waiting": 18.0}


def test_short_jobs_gain_in_proportion() -> None:
    waiting = [job(walltime=600), job(walltime=2400)]
    shares = demand(waiting)
    weights = changed(NONE, short=2.0)
    assert [points(weights, one, shares)["short"] for one in waiting] == [2.0, 0.5]
    assert points(weights, job(walltime=0), shares) == {"short": 0.0}


def test_scarce_licence_outweighs_all_others_together() -> None:
    """multilevel.md §3.3: rho is copies asked for, held ones included, over the copies there are."""
    copies = {"a": 4, "b": 2, "c": 2, "d": 10}
    waiting = [
        job(licences=(("a", 4),)),
        job(licences=(("b", 1), ("c", 2), ("d", 1))),
        job(licences=(("a", 1),)),
        job(licences=(("b", 1),)),
    ]
    shares = demand(waiting, [job(licences=(("a", 1),))], copies=copies)
    assert shares.pressures == {"a": 1.5, "b": 1.0, "c": 1.0, "d": 0.1}
    assert shares.relaxed == 3
    weights = changed(NONE, licences=1.0)
    found = [points(weights, one, shares)["licences"] for one in waiting]
    assert found == [pytest.approx(x) for x in (3 * 1.5, 1.0 + 1.0 + 0.1, 3 * 1.5, 1.0)]
    assert points(weights, job(), shares) == {"licences": 0.0}


def test_missing_licence_counts_as_scarce() -> None:
    shares = demand([job(licences=(("gone", 2),))])
    assert shares.pressures == {"gone": 2.0}


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 5), min_size=1), st.integers(6, 30))
def test_whatever_the_demand_a_short_licence_outweighs_the_rest(asked: dict[str, int], short: int) -> None:
    relaxed = job(licences=tuple(sorted(asked.items())))
    critical = job(licences=(("short", short),))
    shares = demand([relaxed, critical], copies={**dict.fromkeys("abcdef", 5), "short": 5})
    weights = changed(NONE, licences=1.0)
    assert points(weights, critical, shares)["licences"] > points(weights, relaxed, shares)["licences"]


# ---- the others ---------------------------------------------------------------------------------


def test_queue_priority_is_the_servers_unless_the_site_overrides_it() -> None:
    weights = SiteWeights(queues={"urgent": 500.0})
    assert points(weights, job(queue_priority=70))["queue"] == 70
    assert points(weights, job(queue="urgent", queue_priority=70))["queue"] == 500


@pytest.mark.parametrize(
    "one",
    [
        {"owner": "gold@host"},
        {"group": "gold"},
        {"account": "gold"},
        {"project": "gold"},
        {"queue": "gold"},
    ],
)
def test_job_gets_the_points_from_its_best_class(one: dict[str, str]) -> None:
    who = ("gold",)
    gold = JobClass(points=8.0, users=who, groups=who, accounts=who, projects=who, queues=who)
    weights = SiteWeights(queue=0.0, classes={"gold": gold, "ann": JobClass(points=4.0, users=("ann",))})
    assert points(weights, job(**one)) == {"class": 8.0}
    assert points(weights, job()) == {"class": 4.0}
    assert points(weights, job(owner="bob")) == {"class": 0.0}


def test_only_a_class_that_may_breaks_promises() -> None:
    urgent = JobClass(points=1.0, queues=("urgent",), breaks_promises=True)
    weights = SiteWeights(classes={"urgent": urgent, "ann": JobClass(points=9.0, users=("ann",))})
    assert weights.breaks_promises(job(queue="urgent"))
    assert not weights.breaks_promises(job())


def test_owner_priority_size_and_deadline_are_weighted() -> None:
    weights = changed(NONE, wish=0.5, size=-2.0, deadline=3.0)
    one = job(priority=-100, cpus=8, walltime=HOUR, deadline=NOW + HOUR)
    assert points(weights, one) == {"wish": -50.0, "size": -16.0, "deadline": 60.0}
    assert points(weights, job())["deadline"] == 0.0


def test_total_is_the_rounded_sum() -> None:
    weights = changed(NONE, wish=0.5, size=0.25)
    found = priority(job(priority=7, cpus=4), NOW, NOBODY, weights)
    assert (found.total, sum(term.points for term in found.terms)) == (5, 4.5)
    assert priority(job(priority=-9, cpus=0), NOW, NOBODY, weights).total == -4
    assert priority(job(priority=9), NOW, NOBODY, NONE).terms == ()


def test_every_term_has_a_weight() -> None:
    weights = {name.rstrip("_") for name in SiteWeights.model_fields}
    assert set(TERMS) <= weights


def test_shortest_job_gets_all_shortness_points() -> None:
    assert [short_value(walltime, 1) for walltime in (0, 1, 4)] == [0.0, 1.0, 0.25]
    assert [demand(waiting, []).shortest for waiting in ([], [job(walltime=0), job(walltime=1)])] == [0, 1]


def test_class_weight_is_named_class() -> None:
    weights = site_policy({"priority": {"class": 3.0, "waiting": 0.5}}).weights
    assert (weights.class_, weights.waiting) == (3.0, 0.5)


def test_jobs_wait_for_a_node_set_up_to_the_site_limit() -> None:
    waits: list[dict[str, object]] = [{}, {"wait": 600}, {"strict": True}, {"strict": True, "wait": 600}]
    found = [site_policy({"node_sets": {"by": "rack", **one}}).node_sets for one in waits]
    assert [one.wait if one is not None else -1 for one in found] == [0, 600, None, None]
