"""Real logs: the known properties of the policies hold."""

from pathlib import Path

import pytest

from schedd.replay.driver import replay
from schedd.replay.prepared import prepare
from schedd.replay.result import ReplayResult
from schedd.replay.site import single_node_site
from schedd.replay.trace_reader import read_traces
from schedd.replay.workload import Estimates, select

LOGS = {
    "KTH-SP2-1996-2": 100,
    "CTC-SP2-1996-3.1-cln": 338,
    "SDSC-SP2-1998-4.2-cln": 128,
    "SDSC-BLUE-2000-4.1-cln": 1152,
    "HPC2N-2002-2.1-cln": 240,
    "METACENTRUM-2009-2": 806,
}


def results(
    folder: Path, log: str, jobs: int | None = None, estimates: Estimates = "exact"
) -> dict[str, ReplayResult]:
    (trace,) = read_traces([folder / f"{log}.swf.gz"])
    chosen = select(trace, estimates=estimates, jobs=jobs, procs=LOGS[log])
    prepared = prepare(chosen, single_node_site(LOGS[log]), trace.unix_start_time)
    return {policy: replay(prepared, policy) for policy in ("fcfs", "easy", "conservative")}


def check(found: dict[str, ReplayResult], estimates: Estimates) -> None:
    """The replay itself fails where a machine is over-committed or a job does not run once."""
    fcfs = found["fcfs"].metrics
    for policy in ("easy", "conservative"):
        backfilled = found[policy].metrics
        assert backfilled.avg_wait_s <= fcfs.avg_wait_s
        assert backfilled.avg_slowdown <= fcfs.avg_slowdown
        assert backfilled.avg_bounded_slowdown_10s <= fcfs.avg_bounded_slowdown_10s
        assert backfilled.utilisation >= fcfs.utilisation - 1e-9
    assert found["easy"].metrics.utilisation == pytest.approx(
        found["conservative"].metrics.utilisation, rel=0.03
    )
    assert found["conservative"].promise_breaches == 0
    assert (found["conservative"].repairs > 0) == (estimates == "user")


@pytest.mark.parametrize("estimates", ["exact", "user"])
def test_backfilling_beats_strict_order_and_keeps_its_promises(workloads: Path, estimates: Estimates) -> None:
    check(results(workloads, "KTH-SP2-1996-2", 400, estimates), estimates)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("log", LOGS)
def test_backfilling_beats_strict_order_on_every_log(workloads: Path, log: str) -> None:
    check(results(workloads, log), "exact")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("log", [log for log in LOGS if not log.startswith("META")])
def test_promises_hold_with_user_estimates_on_every_log(workloads: Path, log: str) -> None:
    check(results(workloads, log, estimates="user"), "user")
