"""Hours without the daemon do not count in the accuracy of its forecasts, and teach them nothing."""

import re
import urllib.request
from dataclasses import asdict
from pathlib import Path

from schedd.wire import JobFacts, NodeFacts, ShareFacts
from tests.engine.server import Server
from tests.store.daemon_processes import DaemonProcess
from tests.store.forked_processes import DaemonLauncher
from tests.waits import WAIT_S, wait_until

HOUR = 3_600
MAIN = "/v1/clusters/main"


def send_snapshot(daemon: DaemonProcess, server: Server) -> None:
    body = {"events": [asdict(server.snapshot())]}
    daemon.insist(lambda: daemon.post(f"{MAIN}/events", body))


def forecast_metrics(daemon: DaemonProcess) -> dict[str, float]:
    """Return the metrics about forecasts at submission."""
    request = urllib.request.Request(f"http://127.0.0.1:{daemon.port}/metrics", headers=daemon.headers)
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        page = answer.read().decode()
    lines = re.findall(
        r'^schedd_expected_(coverage|halted_total)\{.*published="submission".*\} (\S+)$', page, re.MULTILINE
    )
    return {name: float(value) for name, value in lines}


def test_the_stop_of_a_killed_daemon_is_a_halt_for_its_forecasts(
    launcher: DaemonLauncher, tmp_path: Path
) -> None:
    """It is killed while a job waits, and started again when the clock of its host is three hours later."""
    skew = tmp_path / "skew"
    skew.write_text("0")
    daemon = DaemonProcess(launcher, tmp_path, f"sqlite:///{tmp_path}/schedd.sqlite")
    daemon.config.write_text(daemon.config.read_text() + "predict = true\n")
    daemon.skew = str(skew)
    daemon.start().await_ready()
    try:
        began = daemon.get(MAIN)["now"]
        server = Server(began)
        server.change_node(NodeFacts(name="n1", cpus=4))
        for job in ("runs", "waits"):
            resources = {"nodes": "1:ppn=4", "walltime": str(HOUR)}
            facts = JobFacts(id=job, owner="ann", queue="q", submitted=began, resources=resources)
            server.submit(facts, HOUR)
        server.start("runs", (ShareFacts("n1", 4),))
        send_snapshot(daemon, server)
        by = wait_until(lambda: daemon.get(f"{MAIN}/jobs/waits")["expected_by"])
        assert began < by < began + 2 * HOUR
        daemon.kill()
        skew.write_text(str(3 * HOUR))
        daemon.start().await_ready()
        server.now = began + 3 * HOUR
        server.ends()
        send_snapshot(daemon, server)
        found = wait_until(lambda: (known := forecast_metrics(daemon)) != {"halted_total": 0} and known)
        assert found == {"halted_total": 1}, "a coverage of 0 without the halt: it would be late by an hour"
    finally:
        daemon.kill()
