"""The start of a daemon: readiness, and private files."""

import os
import stat
from pathlib import Path

import pytest

from schedd.store import Store
from tests.store.daemon_processes import DaemonProcess, UnavailableError
from tests.store.forked_processes import DaemonLauncher

MAIN = "/v1/clusters/main"


@pytest.mark.parametrize("lives", [3])
def test_ready_daemon_accepts_events(launcher: DaemonLauncher, tmp_path: Path, url: str, lives: int) -> None:
    daemon = DaemonProcess(launcher, tmp_path, url)
    for number in range(lives):
        daemon.start()
        daemon.await_ready(leads=False)
        try:
            node = {"name": f"n{number}", "cpus": 4, "mem": 1 << 20}
            event = {"type": "node_changed", "id": f"e:{number}", "time": 1_000, "node": node}
            assert daemon.post(f"{MAIN}/events", {"events": [event]})["accepted"] == 1
        except UnavailableError as error:
            pytest.fail(f"ready, but {error}")
        finally:
            daemon.kill()


def test_database_files_are_private(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = Store.open(str(tmp_path / "s.sqlite"))
        store.register_cluster("main", 1_000)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert {"s.sqlite", "s.sqlite-wal"} <= set(modes)
    assert set(modes.values()) == {0o600}, modes
