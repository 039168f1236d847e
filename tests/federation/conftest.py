"""The federation that its tests share, and the users' commands over it."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvicorn

from schedd.cli.main import main
from schedd.federation.routing.cluster_status import TransferStatus
from tests.federation.federation_harness import HERE, JOB, FederationHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[FederationHarness]:
    made = FederationHarness(tmp_path)
    yield made
    made.log.close()


@pytest.fixture
def shell(harness: FederationHarness, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Run commands as ann. Two of her jobs are known: one planned in the north, one without a cluster."""
    server = uvicorn.Server(uvicorn.Config(harness.app, port=0, log_config=None, lifespan="off"))
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    monkeypatch.setenv("SCHEDD_FEDERATION", f"http://127.0.0.1:{listening.getsockname()[1]}")
    monkeypatch.setenv("SCHEDD_TOKEN", "token-of-ann@org")
    monkeypatch.setenv("COLUMNS", "120")
    ann = harness.client("ann@org")
    ann.post(HERE, json={**JOB, "request": "nodes=1,walltime=90m", "attributes": {"Job_Name": "fold"}})
    for name, end in (("north", 500), ("south", 900)):
        harness.report(name, end)
    assert [one.kind for one in harness.federation.pending_actions("north")] == ["submit"]
    for state in ("held", "released"):
        seen = TransferStatus(state, job="7.north", state="planned", planned_start=1_699_999_950)
        harness.report("north", fed_1_1=seen)
        harness.federation.pending_actions("north")
    harness.now += 61
    harness.report("south")
    ann.post(HERE, json={**JOB, "key": "k2"})
    harness.client("bob@org").post(HERE, json=JOB)
    yield lambda *words: main(list(words))
    server.should_exit = True
    thread.join()
