"""The unit and the compose file name programs, settings and paths that exist."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from schedd.cli.installed import USUAL
from schedd.cli.main import COMMANDS
from schedd.service.settings import Settings, load
from tests.conftest import ROOT

UNITS = ROOT / "systemd"
UNIT = UNITS / "schedd.service"
COMPOSE = ROOT / "docker-compose.yml"


def ran(*command: str) -> tuple[int, str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("name", ["schedd", "pbs-adapter"])
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path, name: str) -> None:
    # The programs are not installed here; everything else is taken as it is.
    unit = tmp_path / f"{name}.service"
    text = (UNITS / unit.name).read_text()
    unit.write_text(re.sub(r"/opt/schedd/bin/[\w-]+", "/bin/true", text))
    assert ran("systemd-analyze", "verify", "--man=no", str(unit)) == (0, "")
    code, said = ran("systemd-analyze", "security", "--offline=true", "--threshold=25", str(unit))
    assert code == 0, said  # an exposure of 2.5 of 10 at most


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="no systemd-sysusers here")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes users")
def test_the_users_and_directories_are_those_of_the_units(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    assert ran("systemd-sysusers", f"--root={tmp_path}", str(UNITS / "sysusers.d" / "schedd.conf"))[0] == 0
    made = {line.split(":")[0] for line in (tmp_path / "etc" / "passwd").read_text().splitlines()}
    units = [(UNITS / f"{name}.service").read_text() for name in ("schedd", "pbs-adapter")]
    assert made == {found for text in units for found in re.findall(r"^User=(.*)$", text, re.MULTILINE)}
    tmpfiles = UNITS / "tmpfiles.d" / "schedd.conf"
    code, said = ran("systemd-tmpfiles", f"--root={tmp_path}", "--create", str(tmpfiles))
    assert code == 0, said
    for text in units:
        (state,) = re.findall(r"^StateDirectory=(.*)$", text, re.MULTILINE)
        assert (tmp_path / "var" / "lib" / state).stat().st_mode & 0o777 == 0o700


def from_environment(monkeypatch: pytest.MonkeyPatch, values: dict[str, str]) -> Settings:
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return load(None)


def test_the_units_environment_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dict(re.findall(r"^Environment=(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    assert found.pop("SCHEDD_CONFIG") == str(USUAL)
    settings = from_environment(monkeypatch, found)
    assert str(settings.server.socket) == "/run/schedd/socket"
    commands = re.findall(r"^Exec\w+=/opt/schedd/bin/schedd (\w+)", UNIT.read_text(), re.MULTILINE)
    assert commands == ["serve", "config"]
    assert set(commands) <= COMMANDS.keys()
    # What a unit keeps stands in its directories of systemd's.
    assert "RuntimeDirectory=schedd" in UNIT.read_text()


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
