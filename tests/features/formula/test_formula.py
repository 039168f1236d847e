"""The formula in force: ranks, its threshold, its source, and reports about it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.engine import Engine
from schedd.engine.component.ranking_hooks import owner_shares
from schedd.engine.place.dependencies import last_starts
from schedd.engine.rank.priorities import current_demand, priority_breakdown
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.formula.rules import ranks
from schedd.features.formula.what_if import check_what_if_threshold, compute_what_if_rank
from schedd.model import WaitingFor
from schedd.optimize import SearchSettings
from schedd.optimize.search_input import SearchInput
from schedd.policy.protocol import Breakdown
from schedd.policy.ranks import decode_rank, encode_rank, encode_ranks
from schedd.service.questions.explain import explain
from schedd.service.questions.plan_fork import fork_plan
from schedd.wire import NodeFacts, PolicyChanged, QueueFacts, ResourceFacts, ServerChanged, ServerFacts
from tests.engine.cluster import Cluster

DAY = 86_400


class FormulaSite(Cluster):
    """A cluster with jobs that are ranked by a formula of the site."""

    def __init__(self, expression: str = "", site: dict[str, Any] | None = None, **more: Any) -> None:
        formula = {"expression": expression, **more.pop("formula", {})}
        super().__init__(**{"slack": 100_000, **more}, site={"formula": formula, **(site or {})})

    def serve(self, **attributes: str) -> None:
        """The server has these attributes."""
        server = replace(self.engine.state.server, attributes=attributes)
        self.send(ServerChanged(id=self.server.event_id(), time=self.server.now, server=server))

    def breakdown(self, job: str) -> Breakdown:
        state = self.engine.state
        return priority_breakdown(state, state.records[job], current_demand(state, None))

    def values(self, job: str) -> dict[str, float | str]:
        found = self.breakdown(job)
        return {**dict(found.values), **dict(found.texts)}

    def waits(self, job: str) -> str:
        answer = self.record(job).answer
        blocked = self.record(job).phase == "blocked"
        return answer.what if blocked and isinstance(answer, WaitingFor) else ""

    def faults(self) -> list[str]:
        return [one.text for one in self.engine.state.alerts.values() if one.kind == "formula"]


def starts(site: Cluster, jobs: str) -> list[int | None]:
    return [site.start(job) for job in jobs]


def test_jobs_are_ordered_by_the_site_formula() -> None:
    site = FormulaSite("1000 if walltime < 60 else job_priority / 10")
    for job, walltime, priority in (("1", 100, 0), ("2", 100, 1), ("3", 100, 2), ("4", 50, 0)):
        site.submit(job, walltime=walltime, priority=priority)
    assert starts(site, "1234") == [0, 250, 150, 100]
    change = site.view("3").last_change
    assert change is not None
    assert "most by 1000 if walltime < 60 else job_priority / 10 (formula.expression)" in change.words


def test_small_differences_of_values_count() -> None:
    site = FormulaSite("job_priority / 1e9")
    for job, priority in (("1", 0), ("2", 0), ("3", 1)):
        site.submit(job, priority=priority)
    assert starts(site, "123") == [0, 200, 100]


def test_the_formula_takes_the_place_of_weights() -> None:
    site = FormulaSite("ncpus", site={"priority": {"wish": 1000.0}})
    site.submit("1")
    site.submit("2", nodes="1:ppn=1", priority=1000)
    site.submit("3", nodes="1:ppn=4")
    assert starts(site, "123") == [0, 200, 100]


def test_server_formula_is_used_unless_the_site_has_one_or_declines() -> None:
    for own, wanted in (("", [0, 200, 100]), ("-job_priority", [0, 100, 200])):
        site = FormulaSite(own)
        site.serve(job_sort_formula="job_priority")
        for job, priority in (("1", 0), ("2", 0), ("3", 1)):
            site.submit(job, priority=priority)
        assert starts(site, "123") == wanted
        assert site.breakdown("3").formula_source == ("formula.expression" if own else "job_sort_formula")
    site = FormulaSite("", formula={"from_server": False})
    site.serve(job_sort_formula="job_priority", job_sort_formula_threshold="5")
    site.submit("1")
    site.submit("2", priority=1)
    assert starts(site, "12") == [0, 100]
    assert site.breakdown("2").formula == ""


def test_a_fault_of_the_server_formula_is_reported_once() -> None:
    site = FormulaSite()
    site.serve(job_sort_formula="fairshare_factor + fairshare_perc")
    site.serve(job_sort_formula="fairshare_factor + fairshare_perc", job_sort_formula_threshold="-1")
    terms = "fairshare_factor, fairshare_perc"
    words = f"job_sort_formula: {terms} count as 0, since the site has no table fair_share"
    assert site.alerts("formula") == [words, words]


def test_a_search_keeps_the_order_of_the_formula() -> None:
    for formula, moved in (("", True), ("job_priority", False)):
        site = FormulaSite(formula)
        for job, walltime, priority in (("1", 100, 0), ("2", 900, 1), ("3", 60, 0), ("4", 60, 0)):
            site.submit(job, walltime=walltime, priority=priority)
        assert starts(site, "1234") == [0, 100, 1000, 1060]
        state = site.engine.state
        found = SearchInput(state.plan.fork(), last_starts(state), state.columns, 1.0, state.now)
        search = found.make_search(SearchSettings(moves=200), state.settings.criteria, DAY)
        assert bool(search.run().places) == moved


def test_nodes_freed_early_go_to_the_job_of_the_highest_value() -> None:
    site = FormulaSite("job_priority")
    for job, walltime, priority in (("1", 900, 9), ("2", 100, 1), ("3", 300, 8), ("4", 50, 2)):
        site.submit(job, walltime=walltime, priority=priority, runtime=10)
    assert starts(site, "1234") == [0, 1250, 900, 1200]
    site.at(100)
    assert [site.runs(job) for job in "1234"] == [[0], [30], [10], [20]]


def test_jobs_are_ranked_again_when_the_server_formula_changes() -> None:
    site = FormulaSite()
    for job, priority in (("1", 0), ("2", 0), ("3", 1)):
        site.submit(job, priority=priority)
    assert starts(site, "123") == [0, 100, 200]
    site.serve(job_sort_formula="job_priority")
    assert starts(site, "123") == [0, 200, 100]
    site.serve(job_sort_formula="-job_priority")
    assert starts(site, "123") == [0, 100, 200]


def test_a_job_on_hold_is_ranked_by_a_new_formula() -> None:
    site = FormulaSite("job_priority")
    site.submit("1")
    site.submit("2")
    site.submit("3", priority=7, state="H", holds="u")
    policy = {"formula": {"expression": "100 * job_priority"}}
    site.send(PolicyChanged(id="p1", time=site.server.now, version=1, site=policy))
    assert decode_rank(int(site.engine.state.rank[site.record("3").slot])) == 700.0


def test_jobs_of_two_new_users_that_arrive_together_have_places_in_the_tree() -> None:
    shares = {"fair_share": {"levels": ["user"], "shares": {}}}
    site = FormulaSite("fairshare_factor", site=shares, formula={"threshold": 0.5})
    for job in "abc":
        site.submit(job, owner=f"{job}@login")
    assert [site.waits(job) for job in "abc"] == ["", "", ""]
    assert [site.breakdown(job).total for job in "abc"] == [1.0, 1.0, 1.0]


def test_questions_do_not_change_the_fair_shares_by_which_jobs_are_ranked() -> None:
    shares = {"fair_share": {"levels": ["user"], "shares": {"ann": 1, "bob": 1}}}
    site = FormulaSite("fairshare_factor", site=shares, priority_every=60)
    site.submit("1")
    state = site.engine.state
    before = owner_shares(state)
    state.now += 1000
    publish_snapshot(state)
    site.breakdown("1")
    assert owner_shares(state) is before


def test_terms_of_time_are_ranked_again_at_the_interval() -> None:
    site = FormulaSite("xfactor", priority_every=60)
    site.submit("1", walltime=1000)
    site.submit("2", walltime=1000)
    site.at(500)
    site.submit("3", walltime=100)
    assert starts(site, "23") == [1000, 2000]  # xfactor of 2 is 1.5, of 3 it is 1
    site.at(620)
    assert starts(site, "23") == [1100, 1000]  # 1.62 against 2.2


def test_jobs_at_or_below_the_threshold_wait_and_say_so() -> None:
    site = FormulaSite("job_priority", formula={"threshold": 5})
    site.submit("1", priority=5)
    site.submit("2", priority=6)
    assert starts(site, "12") == [None, 0]
    assert site.waits("1") == ("its value by formula.expression to be above the threshold 5 (it is 5)")
    site.alter("1", priority=7)
    site.at(310)
    assert site.start("1") == 300  # values are compared every priority_every


def test_jobs_are_planned_when_their_value_passes_the_threshold() -> None:
    site = FormulaSite("eligible_time", formula={"threshold": 600}, priority_every=100)
    site.submit("1")
    site.at(599)
    assert site.waits("1").startswith("its value by formula.expression to be above the threshold 600")
    site.at(701)
    assert site.start("1") == 700


def test_planned_jobs_leave_the_plan_when_their_value_falls() -> None:
    site = FormulaSite("1000 - eligible_time", formula={"threshold": 500}, priority_every=100)
    site.submit("1", walltime=5000)
    site.submit("2")
    assert site.start("2") == 5000
    assert site.promise("2") is not None
    site.at(600)
    assert site.start("2") is None
    assert site.waits("2").endswith("threshold 500 (it is 500)")
    assert (site.promise("2"), site.at_risk("2")) == (None, "")
    ended = site.record("2").ended
    assert ended is not None
    assert "to be above the threshold 500" in ended.words


def test_the_threshold_of_the_server_counts_and_goes() -> None:
    site = FormulaSite(nodes=2)
    site.serve(job_sort_formula="ncpus", job_sort_formula_threshold="3.5")
    site.submit("1", nodes="1:ppn=3")
    site.submit("2", nodes="1:ppn=4")
    assert starts(site, "12") == [None, 0]
    assert "job_sort_formula" in site.waits("1")
    site.serve(job_sort_formula="ncpus")
    assert starts(site, "12") == [0, 0]


def test_job_without_a_value_counts_as_0_with_a_reason() -> None:
    site = FormulaSite("5 / job_priority")
    site.submit("1", priority=1)
    site.submit("2", priority=0)
    found = site.breakdown("2")
    assert (found.total, found.failing, found.terms) == (0.0, "5 / job_priority", ())
    assert site.breakdown("1").total == 5.0


def test_shares_and_values_of_a_job() -> None:
    site = FormulaSite("100 * job_priority + ncpus ** 2 - (account == 'phys') * 7")
    site.submit("1", priority=3, account="phys")
    found = site.breakdown("1")
    assert found.total == 309
    assert [(one.name, one.points) for one in found.terms] == [
        ("100 * job_priority", 300.0),
        ("ncpus ** 2", 16.0),
        ("(account == 'phys') * 7", -7.0),
    ]
    assert site.values("1") == {"job_priority": 3.0, "ncpus": 4.0, "account": "phys"}


@pytest.mark.parametrize(
    ("term", "value"),
    [
        ("eligible_time", 30.0),
        ("age", 30.0),
        ("accrue_type", 2.0),
        ("queue_priority", 40.0),
        ("job_priority", 9.0),
        ("ncpus", 6.0),
        ("size", 6.0),
        ("nodect", 2.0),
        ("walltime", 120.0),
        ("planned_walltime", 120.0),
        ("predicted_run_time", 120.0),
        ("xfactor", 1.25),
        ("has_deadline", 0.0),
        ("deadline", 0.0),
        ("deadline_left", 316224000.0),
        ("class_points", 8.0),
        ("array", 0.0),
        ("total_cpus", 12.0),
        ("total_nodes", 3.0),
        ("mem", 2097152.0),
        ("pages", 12.0),
        ("tape", 7200.0),
        ("fairshare_perc", 0.75),
        ("fairshare_tree_usage", 0.0),
        ("fairshare_factor", 1.0),
        ("queue.max_run", 7.0),
        ("queue.resources_default.walltime", 3600.0),
        ("queue.Priority", 40.0),
        ("server.max_running", 99.0),
        ("not_requested", 0.0),
    ],
)
def test_terms(term: str, value: float) -> None:
    shares = {"fair_share": {"levels": ["group"], "shares": {"g": 3, "h": 1}}}
    classes = {"classes": {"gold": {"points": 8, "users": ["ann"]}}}
    site = FormulaSite(f"0 + {term}", site={**shares, **classes}, nodes=3)
    site.server.queues["long"] = QueueFacts(
        name="long",
        priority=40,
        limits={"max_run": "[u:PBS_GENERIC=7], [u:bob=2]"},
        defaults={"walltime": "1:00:00"},
    )
    site.send(site.server.snapshot())
    server = ServerFacts(limits={"max_running": "99"})
    site.send(ServerChanged(id="limits", time=site.server.now, server=server))
    site.reserve("all", "n1", "n2", "n3", start=0)
    resources = {"mem": "2gb", "pages": "12", "tape": "2:00:00"}
    more = {"queue": "long", "priority": 9, "group": "g", "resources": resources}
    site.submit("1", nodes="2:ppn=3", walltime=120, **more)
    site.at(30)
    assert site.breakdown("1").total == pytest.approx(value)
    state, job = site.engine.state, site.record("1")
    assert ranks(state, [job, job]) == 2 * (ranks(state, [job]) or [])  # one is computed without arrays


def test_a_server_formula_that_cannot_be_used_is_reported_and_weights_count() -> None:
    site = FormulaSite(site={"priority": {"wish": 1.0}})
    site.serve(job_sort_formula="job_priority ^ 2")
    (alert,) = site.faults()
    assert alert.startswith(
        "the server's job_sort_formula cannot be used, jobs are ranked by weights: column 14"
    )
    assert alert.endswith("'^' is not part of a formula; a power is **")
    for job, priority in (("1", 0), ("2", 0), ("3", 1)):
        site.submit(job, priority=priority)
    assert starts(site, "123") == [0, 200, 100]
    site.serve(job_sort_formula="job_priority")
    assert site.faults() == []


def test_terms_that_count_as_0_are_reported() -> None:
    site = FormulaSite("fairshare_factor + tapes + ncpus")
    resources = {"ncpus": ResourceFacts("long", "hnq")}
    site.send(ServerChanged(id="types", time=site.server.now, server=ServerFacts(resources=resources)))
    assert site.faults() == [
        "formula.expression: tapes is no term and no resource of the server; it counts as 0",
        "formula.expression: fairshare_factor counts as 0, since the site has no table fair_share",
    ]


def test_another_policy_brings_another_formula() -> None:
    site = FormulaSite("job_priority")
    for job, priority in (("1", 0), ("2", 0), ("3", 1)):
        site.submit(job, priority=priority)
    policy = {"formula": {"expression": "-job_priority", "threshold": -0.5}}
    site.send(PolicyChanged(id="p1", time=site.server.now, version=1, site=policy))
    assert starts(site, "123") == [0, 100, None]
    bad = {"formula": {"expression": "job_priority +"}}
    site.send(PolicyChanged(id="p2", time=site.server.now, version=2, site=bad))
    assert starts(site, "123") == [0, 100, None]


def test_a_restored_engine_goes_on_with_formula_and_threshold() -> None:
    site = FormulaSite("eligible_time", formula={"threshold": 600}, priority_every=100)
    site.submit("1")
    site.at(250)
    site.engine = Engine.restore(site.engine.checkpoint())
    assert site.waits("1")
    site.at(701)
    assert site.start("1") == 700


def test_a_resource_of_the_site_takes_the_place_of_a_term_of_the_same_name() -> None:
    site = FormulaSite("total_cpus", nodes=2)
    site.submit("1")
    site.submit("2", resources={"total_cpus": "640"})
    assert [site.breakdown(job).total for job in "12"] == [8, 640]


def test_nodes_that_are_down_do_not_count_in_totals() -> None:
    site = FormulaSite("total_cpus", nodes=2)
    site.server.nodes["n3"] = NodeFacts(name="n3", cpus=64, state="down")
    site.send(site.server.snapshot())
    site.submit("1")
    assert site.breakdown("1").total == 8


def test_blockers_name_the_formula_of_jobs_that_go_first_by_their_value() -> None:
    site = FormulaSite("job_priority")
    for job, priority in (("1", 0), ("2", 0), ("3", 5)):
        site.submit(job, priority=priority, walltime=200 if job == "2" else 100)
    state = site.engine.state
    found = explain(fork_plan(site.engine, publish_snapshot(state)), "2", state.now)
    assert found is not None
    by = {one.name: one.ranked_by for one in found.blockers}
    assert by == {"1": "", "3": "formula.expression"}
    words = next(one.words for one in found.blockers if one.name == "3")
    assert words.endswith("; it goes first, since its value by formula.expression is higher")


numbers = st.floats(allow_nan=False)


@given(numbers, numbers)
def test_ranks_keep_the_order_of_values(a: float, b: float) -> None:
    first, second = encode_ranks(np.array([a, b])).tolist()
    assert (encode_rank(a), encode_rank(b)) == (first, second)
    if a < b:
        assert first <= second
    elif a == b:
        assert first == second
    assert abs(first) < 1 << 60
    if abs(a) > 1e-300 and np.isfinite(a):
        assert decode_rank(first) == pytest.approx(a, rel=1e-11)
    if b > a and min(abs(a), abs(b)) > 1e-300 and b - a > 1e-11 * max(abs(a), abs(b)):
        assert first < second


def test_what_if_waits_for_the_threshold_as_the_job_would() -> None:
    shares = {"fair_share": {"levels": ["user"], "shares": {"ann": 1, "bob": 1}}}
    site = FormulaSite("walltime / 100 + 0 * fairshare_factor", formula={"threshold": 5}, site=shares)
    site.submit("1", walltime=1000)
    snapshot, state = publish_snapshot(site.engine.state), site.engine.state
    for walltime, waits in (("501", False), ("500", True)):
        facts = replace(site.record("1").facts, id="", owner="bob@x", resources={"walltime": walltime})
        parsed = state.requests.read(facts, None, {})
        found = check_what_if_threshold(snapshot, facts, parsed, "")
        what = found.what if found is not None else ""
        assert what.endswith("threshold 5 (it is 5)") is waits
        rank = compute_what_if_rank(snapshot, facts, parsed)
        assert rank is not None
        assert decode_rank(rank) == pytest.approx(int(walltime) / 100)
