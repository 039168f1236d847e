"""Opening and closing of alerts: counted, listed, and sent to followers and webhooks."""

from schedd.engine.facts.alerts import FADES
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.questions.promises_at_risk import PromisesAtRisk
from schedd.wire import JobStarted, PlanningHeld, ShareFacts, Snapshot
from tests.service.planner_harness import StillClock, T, event_id, job, node, planner
from tests.waits import WAIT_S


def submit_incomplete_snapshot(loop: PlanLoop) -> None:
    """Submit a snapshot that the engine rejects."""
    loop.submit([Snapshot(id=event_id(), time=T, jobs=(), nodes=(), queues=(), complete=False)]).result(
        WAIT_S
    )


def alert_count(loop: PlanLoop, kind: str) -> float:
    return float(loop.metrics._alerts[kind]._value.get())


def test_open_alerts_include_engine_and_daemon_alerts() -> None:
    with planner() as loop:
        submit_incomplete_snapshot(loop)
        loop.adapter_contact.last -= 61
        loop.alerts.update()
        assert [(one.kind, one.since) for one in loop.alerts.current] == [("adapter", T), ("snapshot", T)]
        assert (
            alert_count(loop, "adapter"),
            alert_count(loop, "snapshot"),
            alert_count(loop, "database"),
        ) == (1, 1, 0)
        loop.record_adapter_request()
        loop.alerts.update()
        assert [one.kind for one in loop.alerts.current] == ["snapshot"]
        assert alert_count(loop, "adapter") == 1


def test_nodes_that_are_down_are_one_alert_unless_an_administrator_holds_them() -> None:
    with planner() as loop:
        loop.submit([node("n1", state="down"), node("n2"), node("n3", state="down")]).result(WAIT_S)
        loop.alerts.update()
        assert [(one.kind, one.text, one.since) for one in loop.alerts.current] == [
            ("nodes_down", "2 nodes are down: n1, n3", T)
        ]
        held = PlanningHeld(id=event_id(), time=T, kind="node", name="n3", reason="repair", by="ops")
        loop.submit([held]).result(WAIT_S)
        loop.alerts.update()
        assert [one.text for one in loop.alerts.current] == ["1 node is down: n1"]
        loop.submit([node("n1")]).result(WAIT_S)
        loop.alerts.update()
        assert loop.alerts.current == ()


def test_a_node_that_the_server_has_removed_is_not_down() -> None:
    with planner() as loop:
        nodes = [node(f"n{number}") for number in range(1, 9)]
        loop.submit(nodes).result(WAIT_S)
        kept = tuple(one.node for one in nodes[:-1])
        whole = Snapshot(id=event_id(), time=T, jobs=(), nodes=kept)
        loop.submit([whole]).result(WAIT_S)
        loop.alerts.update()
        assert loop.published.nodes["n8"].state == "down"
        assert loop.alerts.current == ()


def test_followers_are_woken_only_by_alert_changes() -> None:
    with planner() as loop:
        loop.submit([node("n1"), job("1")]).result(WAIT_S)
        loop.alerts.update()
        rung: list[int] = []
        loop.alerts._changed = lambda: rung.append(len(loop.alerts.current))
        loop.alerts.update()
        assert rung == []
        started = JobStarted(id=event_id(), time=T, job_id="x", shares=(ShareFacts("n1", 1),))
        loop.submit([started]).result(WAIT_S)
        loop.alerts.update()
        loop.alerts.update()
        assert rung == [1]
        clock = loop._clock
        assert isinstance(clock, StillClock)
        clock.moment += FADES
        loop.alerts.update()
        assert rung == [1, 0]


def test_reading_alerts_changes_nothing_and_a_batch_ends_the_risk_of_a_reload() -> None:
    with planner() as loop:
        loop.submit([job("1")]).result(WAIT_S)
        loop.reload_risk = risk = PromisesAtRisk(frozenset({"1"}), "1 promise put at risk, of ann (1)")
        loop.alerts.update()
        (alert,) = loop.alerts.current
        assert alert.text == "settings changed by a reload: 1 promise put at risk, of ann (1)"
        loop.reload_risk = settled = PromisesAtRisk(frozenset({"2"}), risk.text)
        loop.alerts.update()
        assert (loop.alerts.current, loop.reload_risk) == ((), settled)
        loop.submit([node("n2")]).result(WAIT_S)
        loop.call_between_batches(lambda _: None).result(WAIT_S)
        assert loop.reload_risk is None
