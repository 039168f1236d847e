"""Nodes that are switched off in a replay, and the resulting figures."""

import pytest

from research.experiments.node_power import EnergyUse, NodePowerSimulation, PowerModel, run_with_power
from schedd.engine import EngineSettings
from schedd.policy.economy import Draw
from schedd.policy.site import site_policy
from schedd.replay.machine_state import ReplayDefectError
from schedd.replay.prepared import Prepared, prepare
from schedd.replay.simulation import Schedule
from schedd.replay.site import equal_node_site
from schedd.replay.workload import Trace, TraceJob, select
from schedd.wire import ShareFacts, Switch

DRAW = Draw(idle=100, core=50, off=10)
HOUR = 3600


def prepared(*jobs: tuple[int, int]) -> Prepared:
    """(submitted, run time) of jobs that need a node each; two nodes."""
    traced = tuple(
        TraceJob(id=i, submit=submit, run=ran, procs=1, estimate=ran, user="u")
        for i, (submit, ran) in enumerate(jobs, 1)
    )
    site = equal_node_site(2, 1)
    return prepare(select(Trace("two", traced), procs=2), site)


def played(
    what: Prepared, *, delay: int | None = None, timeout: int | None = None
) -> tuple[Schedule, EnergyUse]:
    site = {}
    if delay is not None:
        site = {"power_saving": {"mode": "on", "idle": 600, "min_up": 600, "min_off": 600, "delay": delay}}
        site["power_saving"] |= {"boot_time": 300, "stop_time": 60}
    policy = "easy" if timeout is not None else "conservative"
    boards = PowerModel(draw=DRAW, boot=300, stop=60, timeout=timeout)
    return run_with_power(what, policy, EngineSettings(site=site_policy(site)), boards, validate=True)


def test_always_on_nodes_draw_idle_and_job_power() -> None:
    _, energy = played(prepared((0, HOUR), (4 * HOUR, HOUR)))
    hours = 5
    assert energy.kwh == pytest.approx((2 * hours * 100 + 2 * 50) / 1000)
    assert energy.jobs_kwh == pytest.approx(0.1)
    assert energy.idle_kwh == pytest.approx((2 * hours - 2) * 100 / 1000)
    assert energy.switched_off == 0


def test_arriving_job_waits_for_a_booting_node() -> None:
    found, energy = played(prepared((0, HOUR), (4 * HOUR, HOUR)), delay=0)
    assert energy.switched_off >= 2
    assert found.where[0] != ()
    waited = int(found.start[1]) - 4 * HOUR
    assert 300 <= waited <= 300 + 75 + 60
    assert energy.kwh < 0.75 * played(prepared((0, HOUR), (4 * HOUR, HOUR)))[1].kwh


def test_with_a_delay_a_job_waits_for_the_node_that_is_on() -> None:
    jobs = ((0, 3 * HOUR), (2 * HOUR, 60))
    at_once, later = (played(prepared(*jobs), delay=delay)[0] for delay in (0, 2 * HOUR))
    assert int(at_once.start[1]) < 2 * HOUR + 500
    assert int(later.start[1]) == 3 * HOUR
    assert later.where[1] == later.where[0]


def test_idle_timeout_switches_node_off_and_next_job_waits() -> None:
    found, energy = played(prepared((0, HOUR), (4 * HOUR, HOUR)), timeout=600)
    assert (int(found.start[0]), int(found.start[1])) == (0, 4 * HOUR + 300)
    assert int(found.end[1]) == 5 * HOUR + 300
    # One node was on for 660 s, the other for the first job and 660 s; then one for 300 s and the second job.
    on = 660 + (HOUR + 660) + 300 + HOUR
    off = 2 * (5 * HOUR + 300) - on
    assert energy.kwh == pytest.approx((on * 100 + off * 10 + 2 * HOUR * 50) / 3.6e6)
    assert energy.switched_off == 2


def test_job_on_a_stopping_node_waits_for_stop_and_boot() -> None:
    play = NodePowerSimulation(PowerModel(draw=DRAW, boot=300, stop=60, timeout=600), ["n1"], 0)
    share = [ShareFacts("n1", 1)]
    assert play.next() == 600
    assert play.arrived(600) == []
    assert play.start_job(share, 620) == 40 + 300
    assert play.arrived(660) == []
    assert play.arrived(960) == [("n1", True)]


def test_switching_off_a_busy_node_or_starting_on_an_off_node_is_a_defect() -> None:
    def order(on: bool) -> Switch:
        return Switch(id="1", cause="", time=0, node="n1", on=on, expires=60)

    play = NodePowerSimulation(PowerModel(draw=DRAW), ["n1"], 0)
    share = [ShareFacts("n1", 1)]
    play.start_job(share, 0)
    with pytest.raises(ReplayDefectError, match="on which a job runs"):
        play.order(order(False), 10)
    play.left(share, 10, 10)
    play.order(order(False), 20)
    with pytest.raises(ReplayDefectError, match="which is stopping"):
        play.start_job(share, 30)
