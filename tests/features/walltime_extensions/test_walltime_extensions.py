"""A run that is about to reach its walltime gets a longer one, unless a promise or a start would suffer."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.engine.facts.records import MAY_BREAK, Cause
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.walltime_extensions.metrics import collect_metrics
from schedd.features.walltime_extensions.state import extensions_state
from schedd.model import FOREVER
from schedd.plan.columns import PLANNED
from schedd.service.questions.summaries import summarise_users
from schedd.service.read.job_columns import columns
from schedd.service.read.plan_lists import job_listing
from schedd.wire import (
    AccountSet,
    ClockSet,
    Event,
    ExtendRun,
    ExtensionDone,
    PolicyChanged,
    QueueFacts,
    ServerFacts,
)
from tests.engine.cluster import Cluster, T
from tests.property_examples import examples

SITE = {"jobs": {"queues": ["batch"]}, "step": 400, "before": 100}


class ExtendingCluster(Cluster):
    """A cluster that extends walltimes, and carries out extensions at once unless ``extends`` is False."""

    def __init__(self, nodes: int = 1, cpus: int = 4, **extension: Any) -> None:
        self.extends = True
        more = extension.pop("more", {})
        site = extension.pop("site", {}) | {"walltime_extensions": SITE | extension}
        super().__init__(nodes, cpus, site=site, **more)
        self.send(*self.server.change_queue(QueueFacts(name="other")))

    def _handle(self, events: tuple[Event, ...]) -> None:
        before = len(self.decisions)
        super()._handle(events)
        while self.extends and (orders := self.orders(before)):
            before = len(self.decisions)
            for one in orders:
                super()._handle((self.outcome(one), *self.server.extend(one)))

    def outcome(
        self, order: ExtendRun, code: int = 0, text: str = "", *, outage: bool = False
    ) -> ExtensionDone:
        return ExtensionDone(
            id=self.server.event_id(),
            time=self.server.now,
            decision_id=order.id,
            job_id=order.job_id,
            done=not text,
            code=code,
            text=text,
            outage=outage,
        )

    def orders(self, first: int = 0) -> list[ExtendRun]:
        return [one for one in self.decisions[first:] if isinstance(one, ExtendRun)]

    def end(self, job: str) -> int:
        """The end of a job in the plan, in seconds after the beginning."""
        return self.engine.state.plan.end(self.record(job).slot) - T

    def counted(self) -> dict[str, float]:
        """The metric, by outcome."""
        (metric,) = collect_metrics({"main": publish_snapshot(self.engine.state)})
        return {one.labels["outcome"]: one.value for one in metric.samples}

    def notes(self, job: str) -> str:
        return "; ".join(self.view(job).notes)


def test_a_run_is_extended_before_its_walltime_ends() -> None:
    cluster = ExtendingCluster()
    cluster.submit("1", walltime=1_000, runtime=1_300)
    cluster.at(899)
    assert not cluster.orders()
    cluster.at(900)
    (order,) = cluster.orders()
    assert (order.job_id, order.before, order.walltime) == ("1", 1_000, 1_400)
    assert cluster.end("1") == 1_400
    assert "its walltime was extended by 400 s at " in cluster.notes("1")
    assert "(1 of 1 extensions)" in cluster.notes("1")
    cluster.at(1_301)
    assert "1" not in cluster.engine.state.records
    assert not extensions_state(cluster.engine.state).runs
    assert cluster.counted() == {"extended": 1, "refused": 0}


def test_nothing_is_extended_by_default() -> None:
    cluster = Cluster()
    cluster.submit("1", walltime=1_000, runtime=1_300)
    cluster.at(1_200)
    assert not any(isinstance(one, ExtendRun) for one in cluster.decisions)


def test_the_plan_has_the_longer_run_before_the_server_answers() -> None:
    cluster = ExtendingCluster()
    cluster.extends = False
    cluster.submit("1", walltime=1_000, runtime=1_300)
    cluster.at(900)
    assert cluster.end("1") == 1_400
    assert cluster.view("1").planned_end == T + 1_400
    published = publish_snapshot(cluster.engine.state)
    assert columns(published, job_listing(published), {"planned_end"}) == {"planned_end": [T + 1_400]}
    assert summarise_users(published)[0].last_end == T + 1_400
    cluster.submit("2", walltime=100)
    assert cluster.start("2") == 1_400
    assert "the server is asked to extend its walltime by 400 s" in cluster.notes("1")
    cluster.alter("1", priority=5)  # the server still shows the former walltime
    assert cluster.end("1") == 1_400
    cluster.send(cluster.outcome(cluster.orders()[0]))
    assert cluster.end("1") == 1_400
    cluster.alter_request("1", walltime="1400")
    assert cluster.end("1") == 1_400
    assert not cluster.breaches("2")


@pytest.mark.parametrize(("outage", "orders"), [(False, 1), (True, 2)])
def test_a_refused_run_has_its_former_end_and_is_tried_again_only_after_an_outage(
    outage: bool, orders: int
) -> None:
    cluster = ExtendingCluster()
    cluster.extends = False
    cluster.submit("1", walltime=1_000, runtime=1_000)
    cluster.at(900)
    cluster.submit("2", walltime=100)
    cluster.send(cluster.outcome(cluster.orders()[0], 15007, "Unauthorized Request", outage=outage))
    assert cluster.end("1") == 1_000
    assert cluster.start("2") == 1_000
    assert "its walltime was not extended: the server refused it: Unauthorized" in cluster.notes("1")
    alerts = [one.text for one in cluster.engine.state.alerts.values() if one.kind == "walltime_extension"]
    assert alerts == ["job 1 could not be extended: Unauthorized Request"]
    assert cluster.counted() == {"extended": 0, "refused": 1}
    cluster.send(*cluster.server.delete("2"))
    cluster.at(990)
    assert len(cluster.orders()) == orders


def test_only_free_time_is_used_unless_others_may_start_later() -> None:
    cluster = ExtendingCluster(2)
    cluster.submit("1", walltime=1_000, runtime=2_000)
    cluster.submit("2", walltime=1_000)
    cluster.submit("3", walltime=100, nodes="2:ppn=4")
    cluster.at(900)
    assert not cluster.orders()
    assert "planned jobs or reservations need its resources at that time" in cluster.notes("1")
    later = ExtendingCluster(2, delay=400, more={"slack": 600})
    later.submit("1", walltime=1_000, runtime=2_000)
    later.submit("2", walltime=1_000, queue="other")
    later.submit("3", walltime=100, nodes="2:ppn=4")
    later.at(900)
    assert [(one.job_id, one.walltime) for one in later.orders()] == [("1", 1_400)]
    assert later.start("3") == 1_400
    change = later.view("3").last_change
    assert change is not None
    assert change.cause == Cause.EXTENDED
    assert "the walltime of job 1 is extended" in change.words


def test_a_job_moves_to_other_nodes_rather_than_wait() -> None:
    cluster = ExtendingCluster(2)
    cluster.submit("1", nodes="n1:ppn=4", walltime=1_000, runtime=2_000)
    cluster.submit("2", nodes="n2:ppn=4", walltime=1_000, runtime=800)
    cluster.submit("3", walltime=500)
    assert cluster.start("3") == 1_000
    cluster.at(899)
    cluster.submit("4", nodes="n1:ppn=4", walltime=300)
    cluster.at(900)
    assert not cluster.orders()  # job 4 has no other node


def test_a_part_of_the_step_is_added_where_no_more_is_free() -> None:
    cluster = ExtendingCluster()
    cluster.submit("1", walltime=1_000, runtime=2_000)
    cluster.reserve("maintenance", "n1", start=1_250, end=2_000)
    cluster.at(900)
    assert [one.walltime for one in cluster.orders()] == [1_200]


def test_a_run_is_extended_no_more_often_than_the_site_allows() -> None:
    cluster = ExtendingCluster(times=2)
    cluster.submit("1", walltime=1_000, runtime=5_000)
    cluster.at(1_900)
    assert [one.walltime for one in cluster.orders()] == [1_400, 1_800]
    assert "extended by 13 min" not in cluster.notes("1")
    assert "extended by 800 s" in cluster.notes("1")


@pytest.mark.parametrize(
    "job",
    [
        {"queue": "other"},
        {"walltime": None},
    ],
)
def test_only_selected_runs_with_a_walltime_are_extended(job: dict[str, Any]) -> None:
    cluster = ExtendingCluster(more={"default_walltime": 1_000})
    cluster.submit("1", runtime=3_000, **{"walltime": 1_000, **job})
    cluster.at(1_050)
    assert not cluster.orders()


def test_a_suspended_run_is_not_extended() -> None:
    cluster = ExtendingCluster()
    cluster.submit("1", walltime=1_000, runtime=1_000)
    cluster.at(800)
    cluster.send(*cluster.server.suspend("1"))
    cluster.at(1_100)
    assert not cluster.orders()
    cluster.send(*cluster.server.resume("1"))
    cluster.at(1_200)
    assert len(cluster.orders()) == 1  # its walltime ends at 1300 now


def test_no_run_is_extended_while_starts_are_halted_and_time_goes_on() -> None:
    cluster = ExtendingCluster()
    cluster.submit("1", walltime=1_000, runtime=1_000)
    cluster.at(890)
    cluster.send(*cluster.server.change_server(ServerFacts(scheduling=False)))
    cluster.at(940)
    assert not cluster.orders()
    cluster.send(*cluster.server.change_server(ServerFacts(scheduling=True)))
    cluster.at(970)
    assert len(cluster.orders()) == 1


def test_an_altered_walltime_ends_the_effect_of_an_order() -> None:
    cluster = ExtendingCluster()
    cluster.extends = False
    cluster.submit("1", walltime=1_000, runtime=1_300)
    cluster.at(900)
    cluster.alter_request("1", walltime="950")
    assert cluster.end("1") == 950
    (order,) = cluster.orders()
    cluster.send(cluster.outcome(order, text="its walltime was altered"))
    assert cluster.end("1") == 950


def test_an_extension_under_way_survives_a_rebuild_of_the_plan() -> None:
    cluster = ExtendingCluster()
    cluster.extends = False
    cluster.submit("1", walltime=1_000, runtime=1_300)
    cluster.at(900)
    cluster.send(ClockSet(id="c", time=cluster.server.now))
    cluster.send(cluster.server.snapshot())
    assert cluster.end("1") == 1_400
    cluster.send(cluster.outcome(cluster.orders()[0]))
    assert len(cluster.orders()) == 1
    assert "its walltime was extended by 400 s" in cluster.notes("1")


def test_a_changed_policy_selects_other_runs() -> None:
    cluster = ExtendingCluster(jobs={"users": ["bob"]})
    cluster.submit("1", walltime=1_000, runtime=1_300)
    cluster.at(800)
    assert not extensions_state(cluster.engine.state).due
    site = {"walltime_extensions": SITE}
    cluster.send(PolicyChanged(id="p", time=cluster.server.now, version=1, site=site, by="root"))
    cluster.at(900)
    assert len(cluster.orders()) == 1


@given(st.integers(0, 10**9), st.sampled_from([0, 50, 400, 3_000]))
@settings(max_examples=examples(100))
def test_all_promises_hold_in_the_plan_after_each_extension(seed: int, delay: int) -> None:
    draw = random.Random(seed)
    slack = {"slack": draw.choice([0, 300, 1_000])}
    cluster = ExtendingCluster(3, delay=delay, times=3, step=draw.choice([60, 400, 1_000]), more=slack)
    cluster.extends = draw.random() < 0.5
    state = cluster.engine.state
    for i in range(25):
        walltime = draw.randint(150, 900)
        runtime = draw.choice([walltime, walltime + draw.randint(0, 900), draw.randint(1, walltime)])
        cluster.submit(str(i), nodes=f"{draw.randint(1, 3)}:ppn={draw.randint(1, 4)}", walltime=walltime)
        cluster.server.runtime[str(i)] = runtime
        known = len(cluster.orders())
        cluster.at(cluster.server.now - T + draw.choice([0, 0, 30, 200]))
        for one in cluster.orders()[known:] if not cluster.extends else ():
            if one.job_id not in cluster.server.jobs:
                continue
            if draw.random() < 0.5:
                cluster.send(cluster.outcome(one, 15007, "no"))
            else:
                cluster.send(cluster.outcome(one), *cluster.server.extend(one))
        late = [
            record.id
            for record in state.records.values()
            if record.slot >= 0
            and state.plan.state(record.slot) == PLANNED
            and state.promise[record.slot] < FOREVER
            and state.plan.start(record.slot) > state.promise[record.slot]
            and (record.risk is None or record.risk.cause not in MAY_BREAK)
        ]
        assert not late
        for change in state.changes:
            assert change.cause is not Cause.EXTENDED or (change.new - change.old <= delay).all()
    assert not any(
        breach.cause is Cause.EXTENDED for record in state.records.values() for breach in record.breaches
    )


def test_altered_jobs_are_examined_by_their_present_walltime() -> None:
    cluster = ExtendingCluster()
    cluster.submit("1", walltime=1_000, runtime=3_000)
    cluster.at(500)
    cluster.send(*cluster.server.alter("1", resources={"nodes": "1:ppn=4", "walltime": "2000"}))
    cluster.at(1_899)
    assert not cluster.orders()
    cluster.at(1_900)
    assert [one.walltime for one in cluster.orders()] == [2_400]


_USED = {"what": "cpu_seconds", "counts": "used", "period": 86_400}
_ELIGIBLE = {"what": "jobs", "amount": 1, "counts": "eligible"}
_PRICES = {"prices": [{"core_hour": 3.6}], "cost_limits": "hard"}


@pytest.mark.parametrize(
    ("site", "cost", "walltime", "why"),
    [
        (
            {"limits": [{**_USED, "amount": 4_000}]},
            "",
            0,
            "too little is left of a limit on use, or of its account's budget",
        ),
        ({"limits": [{**_USED, "amount": 4_800}]}, "", 1_200, ""),
        ({"limits": [{**_USED, "amount": 5_600}, _ELIGIBLE]}, "", 1_400, ""),
        ({"accounts": {}}, "", 1_100, ""),
        (_PRICES, "5", 0, "its cost limit counts its walltime"),
        (_PRICES, "50", 1_400, ""),
    ],
)
def test_no_limit_of_use_and_no_account_is_exceeded(
    site: dict[str, Any], cost: str, walltime: int, why: str
) -> None:
    cluster = ExtendingCluster(site=site)
    amount = 4_500 if "accounts" in site else 100_000
    account = AccountSet(
        id=cluster.server.event_id(), time=cluster.server.now, name="phys", amount=amount, by="root"
    )
    cluster.send(account)
    more: dict[str, Any] = {"resources": {"cost_limit": cost}} if cost else {}
    cluster.submit("1", walltime=1_000, runtime=1_000, account="phys", **more)
    cluster.submit("2", walltime=1_000, account="other", not_before=T + 5_000)
    cluster.at(950)
    assert [one.walltime for one in cluster.orders()] == ([walltime] if walltime else [])
    assert why in cluster.notes("1")
