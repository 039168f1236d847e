"""Hard limits of cost: jobs are planned where they cost no more than their owners said."""

from typing import Any

import pytest

from schedd.engine import Engine
from schedd.model import WaitingFor
from schedd.wire import PolicyChanged, Run
from tests.engine.cluster import Cluster, T

# T is 22:13:20 UTC. A core-second costs 0.02 by day and 0.01 in the hour from 23:00 on.
CHEAP = 2_800
PRICES = [
    {"core_hour": 72.0},
    {"core_hour": 36.0, "first": "2023-11-14T23:00:00", "last": "2023-11-15T00:00:00", "rule": "FREQ=DAILY"},
]


class Priced(Cluster):
    def __init__(self, nodes: int = 1, limits: str = "hard", **more: Any) -> None:
        super().__init__(nodes=nodes, site={"prices": PRICES, "cost_limits": limits, **more})

    def ask_for(self, job: str, limit: str, walltime: int = 100, nodes: str = "1:ppn=4", **more: Any) -> None:
        self.submit(job, nodes, walltime, resources={"x.cost_limit": limit}, **more)

    def waiting_reason(self, job: str) -> str:
        answer = self.record(job).answer
        return f"{answer.kind}: {answer.what}" if isinstance(answer, WaitingFor) else ""


def test_a_job_waits_for_the_hour_that_it_can_pay_for() -> None:
    site = Priced()
    site.ask_for("1", "8")
    site.ask_for("2", "4.5")
    site.submit("3", "1:ppn=4", 100)
    assert [site.start(job) for job in "123"] == [0, CHEAP - 12, 100], "an eighth of it may be by day"


def test_job_with_a_soft_cost_limit_is_planned_at_once() -> None:
    site = Priced(limits="soft")
    site.ask_for("1", "4.5")
    assert site.start("1") == 0


def test_it_starts_in_that_hour_and_not_before_though_all_is_free() -> None:
    site = Priced()
    site.ask_for("1", "4")
    site.at(CHEAP - 1)
    assert site.record("1").run.started < 0
    site.at(CHEAP)
    assert site.record("1").run.started == T + CHEAP


def test_job_beyond_its_cost_limit_at_all_times_waits_until_it_is_raised() -> None:
    site = Priced()
    site.ask_for("1", "3.99")
    assert site.start("1") is None
    assert site.waiting_reason("1") == (
        "cost: a time at which it costs at most 3.99 EUR; it would cost 8.00 EUR"
    )
    site.alter_request("1", **{"x.cost_limit": "4"})
    assert site.start("1") == CHEAP
    site.alter_request("1", **{"x.cost_limit": "100"})
    assert site.start("1") == 0


def test_lower_prices_let_the_job_be_planned() -> None:
    site = Priced()
    site.ask_for("1", "2")
    assert site.start("1") is None
    cheaper = {"prices": [{"core_hour": 18.0}], "cost_limits": "hard"}
    site.send(PolicyChanged(id=site.server.event_id(), time=site.server.now, version=1, site=cheaper))
    site.at(1)
    assert site.record("1").run.started == T


def test_limits_that_become_hard_move_jobs_beyond_them() -> None:
    site = Priced(limits="soft")
    site.submit("0", "1:ppn=4", 100)
    site.ask_for("1", "4")
    assert site.start("1") == 100
    hard = {"prices": PRICES, "cost_limits": "hard"}
    site.send(PolicyChanged(id=site.server.event_id(), time=site.server.now, version=1, site=hard))
    assert site.start("1") == CHEAP
    soft = {"prices": PRICES}
    site.send(PolicyChanged(id=site.server.event_id(), time=site.server.now, version=2, site=soft))
    assert site.start("1") == 100


def test_freed_capacity_is_used_only_if_affordable() -> None:
    site = Priced()
    site.submit("0", "1:ppn=4", CHEAP + 1_000)
    site.submit("long", "1:ppn=4", 3_000)
    site.ask_for("1", "4")
    # The cheap hour ends while the others run: the next is tomorrow's.
    assert site.start("1") == CHEAP + 86_400
    site.send(*site.server.delete("long"))
    site.at(400)
    assert site.start("1") == CHEAP + 1_000
    site.send(*site.server.delete("0"))
    site.at(800)
    assert site.start("1") == CHEAP
    assert site.view("1").promised_start is not None


@pytest.mark.parametrize("restart", [False, True])
def test_restart_keeps_the_affordable_placement(restart: bool) -> None:
    site = Priced()
    site.ask_for("1", "4")
    if restart:
        site.engine = Engine.restore(site.engine.checkpoint())
    site.submit("2", "1:ppn=4", 50)
    site.at(CHEAP - 1)
    assert (site.start("1"), site.record("1").run.started) == (CHEAP, -1)


def test_cheaper_nodes_count_where_the_plan_takes_them() -> None:
    prices = [{"core_hour": 72.0}, {"core_hour": 3.6, "nodes": ["n2"]}]
    site = Priced(nodes=2, prices=prices)
    site.ask_for("1", "1", nodes="n2:ppn=4")
    assert site.start("1") == 0
    site.ask_for("2", "1", nodes="n1:ppn=4")
    assert site.start("2") is None


def test_the_limit_holds_again_after_a_refused_start() -> None:
    site = Priced(nodes=2)
    site.obeys = False
    site.ask_for("1", "4.5")
    site.at(CHEAP - 12)
    (run,) = (one for one in site.decisions if isinstance(one, Run))
    site.engine.state.cost_check_due = site.server.now + 1
    site.at(CHEAP - 10)
    site.send(*site.server.refuse(run, 15046, "busy"))
    assert "1" in site.engine.state.capped
