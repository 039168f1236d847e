"""Power saving: nodes are switched off and on according to the plan."""

from typing import Any, Literal

import pytest

from schedd.engine import Engine
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.power.state import PublishedPower, power_state
from schedd.policy.economy import Draw
from schedd.policy.site import site_policy
from schedd.wire import PlanningHeld, PolicyChanged, PowerRequested, Switch, Switched, WattsRead
from tests.engine.cluster import Cluster, T
from tests.features.preemption.test_suspension import SuspendingCluster

SAVING = {"mode": "on", "idle": 100, "min_up": 100, "min_off": 200, "boot_time": 80, "stop_time": 40}
WATTS = {"*": {"idle": 100.0, "off": 10.0}}


class PoweredCluster(Cluster):
    """A cluster with nodes that obey orders: down ``stops`` seconds after an order, up after ``boots``."""

    def __init__(
        self, nodes: int = 2, stops: int = 20, boots: int = 60, caps: Any = (), **saving: Any
    ) -> None:
        self.stops, self.boots = stops, boots
        self.works = True
        self.known = 0
        self.coming: list[tuple[int, str, str]] = []
        site = {"power_saving": {**SAVING, **saving}, "power": WATTS, "power_caps": caps}
        super().__init__(nodes=nodes, site=site)

    def orders(self) -> list[tuple[int, str, bool]]:
        return [(one.time - T, one.node, one.on) for one in self.decisions if isinstance(one, Switch)]

    def phase(self, node: str) -> str:
        found = power_state(self.engine.state).nodes.get(node)
        return found.phase if found is not None else "on"

    def at(self, moment: int) -> None:
        """Advance to the moment; nodes obey their orders in time."""
        while self.server.now < T + moment:
            for one in self.decisions[self.known :]:
                if isinstance(one, Switch) and self.works:
                    took = self.boots if one.on else self.stops
                    self.coming.append((one.time + took, one.node, "up" if one.on else "down"))
                    self.send(self.done(one))
            self.known = len(self.decisions)
            wake = self.engine.next_wake
            jobs = [job for job in self.server.jobs.values() if job.started is not None]
            ends = [job.started + self.server.runtime[job.id] for job in jobs if job.started is not None]
            moments = [*ends, *(when for when, _, _ in self.coming), *([wake] if wake else [])]
            self.server.now = min([m for m in moments if m > self.server.now] + [T + moment])
            for arrived in [coming for coming in self.coming if coming[0] <= self.server.now]:
                self.coming.remove(arrived)
                self.node(arrived[1], state=arrived[2])
            self.send(*self.server.ends())

    def done(self, decision: Switch, *, done: bool = True, code: int = 0, text: str = "") -> Switched:
        return Switched(
            id=self.server.event_id(),
            time=self.server.now,
            decision_id=decision.id,
            node=decision.node,
            on=decision.on,
            done=done,
            code=code,
            text=text,
        )

    def request_power(self, node: str, wish: Literal["on", "off", "hold", "auto"]) -> None:
        self.send(
            PowerRequested(id=self.server.event_id(), time=self.server.now, node=node, wish=wish, by="root")
        )


def test_idle_nodes_are_switched_off_and_on_before_the_next_job() -> None:
    cluster = PoweredCluster()
    cluster.submit("1", walltime=1000)
    cluster.at(200)
    assert [(node, on) for _, node, on in cluster.orders()] == [("n2", False)]
    assert 100 <= cluster.orders()[0][0] <= 130
    assert cluster.phase("n2") == "off"
    assert cluster.engine.state.down_since == {}
    cluster.submit("2", not_before=T + 800)
    assert (cluster.planned_node_names("2"), cluster.start("2")) == (["n2"], 800)
    cluster.at(790)
    on = [one for one in cluster.orders() if one[2]]
    assert [node for _, node, _ in on] == ["n2"]
    assert 800 - 80 - 60 <= on[0][0] <= 800 - 80
    assert cluster.phase("n2") == "on"
    cluster.at(801)
    assert (cluster.view("2").state, cluster.runs("2")) == ("running", [800])
    assert cluster.alerts("power") == []


def test_new_job_is_planned_after_the_boot_and_starts_once_the_node_is_up() -> None:
    cluster = PoweredCluster(nodes=1)
    cluster.at(300)
    assert cluster.phase("n1") == "off"
    cluster.submit("1")
    start = cluster.start("1")
    assert start is not None
    assert 380 <= start <= 300 + 80 + 40
    cluster.at(300 + 62 + 20)
    assert cluster.runs("1") == [360 + cluster.orders()[-1][0] - 300]
    assert power_state(cluster.engine.state).boots == {"4": [60]}


def test_measured_boot_time_is_used_for_the_next_order() -> None:
    cluster = PoweredCluster(nodes=1, boots=20)
    cluster.at(300)
    cluster.submit("1", runtime=10)
    cluster.at(1000)
    assert cluster.phase("n1") == "off"
    cluster.submit("2", not_before=T + 2000)
    cluster.at(1999)
    assert cluster.orders()[-1][0] >= 2000 - 20 - 5 - 20
    cluster.at(2001)
    assert cluster.runs("2") == [2000]


def test_job_waits_for_powered_nodes_within_the_allowed_delay() -> None:
    cluster = PoweredCluster(delay=600)
    cluster.submit("1", walltime=500)
    cluster.at(250)
    assert cluster.phase("n2") == "off"
    cluster.submit("2")
    assert (cluster.planned_node_names("2"), cluster.start("2")) == (["n1"], 500)
    cluster.submit("3", walltime=3000)
    cluster.submit("4", walltime=100)
    cluster.at(400)
    assert [one for one in cluster.orders() if one[2]] == []


@pytest.mark.parametrize("trouble", ["reserved", "held", "offline", "never", "running", "soon"])
def test_reserved_held_or_soon_needed_nodes_stay_on(trouble: str) -> None:
    cluster = PoweredCluster(nodes=1, never=["n1"] if trouble == "never" else [])
    match trouble:
        case "reserved":
            cluster.reserve("r", "n1", start=300, end=5000)
        case "held":
            cluster.send(PlanningHeld(id="h", time=T, kind="node", name="n1", reason="repair"))
        case "offline":
            cluster.node("n1", state="drain")
        case "running":
            cluster.submit("1", walltime=5000)
        case "soon":
            cluster.submit("1", not_before=T + 400)
    cluster.at(399)
    assert cluster.orders() == []


def test_spare_nodes_stay_on_and_concurrent_switches_are_limited() -> None:
    cluster = PoweredCluster(nodes=6, at_once=2, spares={"*": 1})
    cluster.works = False
    cluster.at(150)
    assert len(cluster.orders()) == 2
    cluster.works = True
    cluster = PoweredCluster(nodes=6, at_once=2, spares={"*": 1})
    cluster.at(1000)
    assert sum(cluster.phase(f"n{i}") == "off" for i in range(1, 7)) == 5
    cluster.submit("1", walltime=1000)  # it takes the spare: another is switched on
    cluster.at(1200)
    assert sum(cluster.phase(f"n{i}") == "on" for i in range(1, 7)) == 2


def test_node_that_fails_to_boot_opens_an_alert_and_its_jobs_move() -> None:
    cluster = PoweredCluster(nodes=2)
    cluster.submit("0", walltime=2000)
    cluster.at(300)
    cluster.works = False
    cluster.submit("1")
    assert cluster.planned_node_names("1") == ["n2"]
    cluster.at(300 + 2 * 80 + 120)
    assert cluster.phase("n2") == "failed"
    assert (cluster.planned_node_names("1"), cluster.start("1")) == (["n1"], 2000)
    assert "could not be switched on" in cluster.alerts("power")[0]
    assert [one.about for one in cluster.engine.state.alerts.values() if one.kind == "power"] == ["n2"]
    orders = len(cluster.orders())
    cluster.at(300 + 240 + 1800 + 100)
    assert len(cluster.orders()) > orders  # another attempt
    cluster.node("n2", state="up")
    cluster.send()
    assert cluster.phase("n2") == "on"
    assert [one for one in cluster.engine.state.alerts.values() if one.kind == "power"] == []


def test_failed_switch_off_leaves_the_node_on_and_is_retried_later() -> None:
    cluster = PoweredCluster(nodes=1)
    cluster.works = False
    cluster.at(140)
    (order,) = [one for one in cluster.decisions if isinstance(one, Switch)]
    cluster.send(cluster.done(order, done=False, code=7, text="no such BMC"))
    assert cluster.alerts("power") == [
        "node n1 could not be switched off: no such BMC; the next try is in 30 min"
    ]
    cluster.submit("1")
    assert cluster.runs("1") == [140]
    cluster.at(1900)
    assert len(cluster.orders()) == 1
    cluster.at(2100)
    assert len(cluster.orders()) == 2


def test_outcome_for_an_older_order_changes_nothing() -> None:
    cluster = PoweredCluster(nodes=1)
    cluster.at(300)
    (off,) = [one for one in cluster.decisions if isinstance(one, Switch)]
    cluster.send(cluster.done(off, done=False, code=1, text="late"))
    assert cluster.phase("n1") == "off"


def test_dry_run_switches_nothing_and_lists_candidates() -> None:
    cluster = PoweredCluster(nodes=3, mode="dry", spares={"*": 1})
    cluster.at(300)
    assert cluster.orders() == []
    assert publish_snapshot(cluster.engine.state).part(PublishedPower).would_be_off == ("n1", "n2")


def test_admin_switches_a_node_off_and_on_and_withdraws_the_request() -> None:
    cluster = PoweredCluster(nodes=2, mode="off")
    cluster.submit("1", walltime=300)
    node = cluster.planned_node_names("1")[0]
    cluster.request_power(node, "off")
    cluster.submit("2", nodes="2:ppn=4")
    assert cluster.view("2").why == f"waiting for node {node}, which is switched off by root"
    cluster.at(299)
    assert cluster.orders() == []
    cluster.at(400)
    assert cluster.phase(node) == "off"
    cluster.request_power(node, "on")
    cluster.at(600)
    assert cluster.phase(node) == "on"
    assert cluster.runs("2") == [460]
    cluster.request_power(node, "auto")
    assert [on for _, _, on in cluster.orders()] == [False, True]


def test_held_node_is_not_switched_by_the_plan() -> None:
    cluster = PoweredCluster(nodes=1)
    cluster.request_power("n1", "hold")
    cluster.at(1000)
    assert cluster.orders() == []
    cluster.request_power("n1", "auto")
    cluster.at(1100)
    assert [on for _, _, on in cluster.orders()] == [False]


def test_an_order_to_be_off_that_fails_is_repeated_after_the_retry_time() -> None:
    cluster = PoweredCluster(nodes=1, retry=600)
    cluster.works = False
    cluster.request_power("n1", "off")
    (order,) = [one for one in cluster.decisions if isinstance(one, Switch)]
    cluster.send(cluster.done(order, done=False, code=1, text="no board"))
    cluster.at(590)
    assert len(cluster.orders()) == 1
    cluster.at(640)
    assert len(cluster.orders()) == 2


def test_a_node_whose_power_is_held_is_not_said_to_be_switched_off() -> None:
    cluster = PoweredCluster(nodes=1)
    cluster.request_power("n1", "hold")
    cluster.node("n1", state="drain")
    cluster.submit("1")
    assert cluster.view("1").why == "waiting for node n1, which is offline"


def test_the_list_of_a_dry_run_ends_with_it() -> None:
    cluster = PoweredCluster(mode="dry")
    cluster.at(300)
    assert power_state(cluster.engine.state).would_be_off == ("n1", "n2")
    site = {"power_saving": {**SAVING, "mode": "off"}}
    cluster.send(PolicyChanged(id="off", time=cluster.server.now, version=1, site=site, by="root"))
    assert power_state(cluster.engine.state).would_be_off == ()


def test_disabling_power_saving_switches_nodes_on() -> None:
    cluster = PoweredCluster(nodes=2)
    cluster.at(300)
    settings = cluster.engine.state.settings
    cluster.engine = Engine.restore(cluster.engine.checkpoint(), settings.with_changes(site=site_policy({})))
    cluster.send()
    cluster.at(600)
    assert [cluster.phase(name) for name in ("n1", "n2")] == ["on", "on"]


def test_checkpoint_keeps_power_states_and_saved_energy() -> None:
    cluster = PoweredCluster(nodes=2)
    cluster.at(500)
    saved = power_state(cluster.engine.state).saved_joules
    assert saved > 2 * 90 * 200
    again = Engine.restore(cluster.engine.checkpoint())
    assert power_state(again.state).nodes == power_state(cluster.engine.state).nodes
    cluster.engine = again
    cluster.submit("1")
    cluster.at(700)
    assert cluster.runs("1")


def test_node_switched_on_by_hand_is_on() -> None:
    cluster = PoweredCluster(nodes=1)
    cluster.at(300)
    cluster.node("n1", state="up")
    cluster.submit("1")
    assert (cluster.phase("n1"), cluster.runs("1")) == ("on", [300])


# ---- what boards measure ------------------------------------------------------------------------


class MeteredCluster(PoweredCluster):
    """A powered cluster with power readings."""

    def submit_readings(self, **watts: float) -> None:
        now = self.server.now
        self.send(
            WattsRead(id=self.server.event_id(), time=now, nodes=tuple(watts), watts=tuple(watts.values()))
        )

    def node_draw(self, node: str) -> Draw | None:
        state = self.engine.state
        return state.economy.draw(node, state.node_facts[node].properties)


def test_measured_draw_overrides_the_settings() -> None:
    cluster = MeteredCluster(mode="dry")
    assert cluster.node_draw("n1") == Draw(idle=100.0, off=10.0)
    cluster.submit("1", walltime=1000, runtime=1000)
    busy = cluster.engine.state.node_facts["n1"].cpus
    for minute in range(1, 25):
        cluster.at(60 * minute)
        cluster.submit_readings(
            n1=150.0 + (4.0 * busy if "1" in cluster.server.jobs else 0), n2=150.0, strange=9.0
        )
    found = cluster.node_draw("n1")
    assert found is not None
    assert (found.idle, found.off) == (150.0, 10.0)
    assert found.core == pytest.approx(4.0, abs=0.01)
    assert cluster.node_draw("n2") == Draw(idle=150.0, off=10.0)  # it was never busy
    assert "strange" not in power_state(cluster.engine.state).meters
    again = Engine.restore(cluster.engine.checkpoint(), cluster.engine.state.settings)
    assert power_state(again.state).meters == power_state(cluster.engine.state).meters
    assert again.state.economy == cluster.engine.state.economy


def test_power_cap_subtracts_the_measured_idle_power() -> None:
    cluster = MeteredCluster(mode="off", caps=[{"watts": 320}])
    assert [one.amount for one in cluster.engine.state.limits.caps] == [120]
    for minute in range(12):
        cluster.at(60 * minute + 1)
        cluster.submit_readings(n1=150.0, n2=150.0)
    assert [one.amount for one in cluster.engine.state.limits.caps] == [20]


def test_booting_or_stopping_node_is_not_measured() -> None:
    cluster = MeteredCluster(stops=100)
    cluster.at(135)
    assert cluster.phase("n2") == "stopping"
    cluster.submit_readings(n2=555.0)
    assert "n2" not in power_state(cluster.engine.state).meters
    cluster.at(300)
    assert cluster.phase("n2") == "off"
    cluster.submit_readings(n2=6.0)
    assert power_state(cluster.engine.state).meters["n2"].off == 6.0


def test_a_node_with_a_suspended_job_is_not_switched_off() -> None:
    cluster = SuspendingCluster(2, more={"slack": 20_000})
    saving = site_policy({**cluster.engine.state.site.plain, "power_saving": SAVING})
    cluster.send(PolicyChanged(id="p1", time=cluster.server.now, version=1, site=saving.plain, by="root"))
    cluster.submit("long", "2:ppn=4", 100_000)
    cluster.at(1_000)
    cluster.submit("now", "1:ppn=4", 50_000, queue="urgent")
    cluster.at(10_000)
    assert (cluster.server.jobs["long"].state, cluster.planned_node_names("now")) == ("S", ["n1"])
    assert not [one for one in cluster.decisions if isinstance(one, Switch)]
