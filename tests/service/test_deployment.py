"""The unit and the compose file name programs, settings and paths that exist."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from schedd.cli.main import COMMANDS
from schedd.service.settings import Settings, load
from tests.conftest import ROOT

UNIT = ROOT / "systemd" / "schedd.service"
COMPOSE = ROOT / "docker-compose.yml"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    # The program is not installed here; everything else is taken as it is.
    unit = tmp_path / "schedd.service"
    unit.write_text(UNIT.read_text().replace("/opt/schedd/bin/schedd", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def from_environment(monkeypatch: pytest.MonkeyPatch, values: dict[str, str]) -> Settings:
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return load(None)


def test_the_units_environment_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dict(re.findall(r"^Environment=(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    settings = from_environment(monkeypatch, found)
    assert str(settings.auth.token_file) == "%d/tokens"
    command = re.search(r"^ExecStart=/opt/schedd/bin/schedd (\w+) ", UNIT.read_text(), re.MULTILINE)
    assert command is not None
    assert command[1] in COMMANDS


def composed() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def test_the_compose_file_sets_what_the_daemon_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    values = composed()["schedd"]["environment"]
    settings = from_environment(monkeypatch, values)
    assert settings.server.allow_remote
    assert str(settings.auth.token_file) == "/run/tokens"
    database = composed()["database"]["environment"]
    user, password, name = (database[f"POSTGRES_{key}"] for key in ("USER", "PASSWORD", "DB"))
    assert settings.store.url == f"postgresql://{user}:{password}@database/{name}"
    assert "SCHEDD_KERNEL_CACHE" in values


def test_nothing_in_the_compose_file_can_be_reached_from_other_machines() -> None:
    for service in composed().values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
