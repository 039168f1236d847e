"""Units, compose file, image and trial files use existing programs, settings and paths."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from schedd.cli.installation import DEFAULT_CONFIG
from schedd.cli.main import COMMANDS
from schedd.service.cluster.metrics import PlannerMetrics
from schedd.service.settings.file import Settings, read_settings_file
from server_adapter.settings import load_settings
from tests.conftest import ROOT
from tests.service.promtool import HOW, find_promtool

UNITS = ROOT / "systemd"
UNIT = UNITS / "schedd.service"
COMPOSE = ROOT / "docker-compose.yml"
TRIAL = ROOT / "docs" / "trial"


def run_command(*command: str) -> tuple[int, str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("name", ["schedd", "pbs-adapter"])
def test_systemd_accepts_the_units(tmp_path: Path, name: str) -> None:
    # The programs are not installed here; everything else is unchanged.
    unit = tmp_path / f"{name}.service"
    text = (UNITS / unit.name).read_text()
    unit.write_text(re.sub(r"/opt/schedd/bin/[\w-]+", "/bin/true", text))
    assert run_command("systemd-analyze", "verify", "--man=no", str(unit)) == (0, "")
    code, output = run_command("systemd-analyze", "security", "--offline=true", "--threshold=25", str(unit))
    assert code == 0, output  # an exposure of 2.5 of 10 at most


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="no systemd-sysusers here")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes users")
def test_sysusers_and_tmpfiles_match_the_units(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    assert (
        run_command("systemd-sysusers", f"--root={tmp_path}", str(UNITS / "sysusers.d" / "schedd.conf"))[0]
        == 0
    )
    made = {line.split(":")[0] for line in (tmp_path / "etc" / "passwd").read_text().splitlines()}
    units = [(UNITS / f"{name}.service").read_text() for name in ("schedd", "pbs-adapter")]
    assert made == {found for text in units for found in re.findall(r"^User=(.*)$", text, re.MULTILINE)}
    tmpfiles = UNITS / "tmpfiles.d" / "schedd.conf"
    code, output = run_command("systemd-tmpfiles", f"--root={tmp_path}", "--create", str(tmpfiles))
    assert code == 0, output
    for text in units:
        (state,) = re.findall(r"^StateDirectory=(.*)$", text, re.MULTILINE)
        assert (tmp_path / "var" / "lib" / state).stat().st_mode & 0o777 == 0o700


def settings_from_environment(monkeypatch: pytest.MonkeyPatch, values: dict[str, str]) -> Settings:
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return read_settings_file(None)


def test_unit_environment_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dict(re.findall(r"^Environment=(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    assert found.pop("SCHEDD_CONFIG") == str(DEFAULT_CONFIG)
    settings = settings_from_environment(monkeypatch, found)
    assert str(settings.server.socket) == "/run/schedd/schedd.sock"
    commands = re.findall(r"^Exec\w+=/opt/schedd/bin/schedd (\w+)", UNIT.read_text(), re.MULTILINE)
    assert commands == ["serve", "config"]
    assert set(commands) <= COMMANDS.keys()
    # Units keep their data in systemd's directories.
    assert "RuntimeDirectory=schedd" in UNIT.read_text()


def compose_services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def test_compose_file_sets_existing_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_from_environment(monkeypatch, compose_services()["schedd"]["environment"])
    assert settings.server.allow_remote
    database = compose_services()["database"]["environment"]
    user, password, name = (database[f"POSTGRES_{key}"] for key in ("USER", "PASSWORD", "DB"))
    assert settings.store.url == f"postgresql://{user}:{password}@database/{name}"
    assert compose_services()["tokens"]["environment"]["SCHEDD_STORE__URL"] == settings.store.url


def test_compose_publishes_ports_only_on_loopback() -> None:
    for service in compose_services().values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_containers_are_unprivileged_and_read_only() -> None:
    ours = [service for service in compose_services().values() if service["image"] == "schedd"]
    assert len(ours) == 4
    for service in ours:
        assert (service["cap_drop"], service["read_only"], service.get("privileged")) == (["ALL"], True, None)


def test_files_that_the_compose_file_mounts_exist() -> None:
    mounts = [mount for service in compose_services().values() for mount in service.get("volumes", ())]
    files = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    assert len(files) == 6
    assert [name for name in files if not (ROOT / name).is_file()] == []


COMPOSES = [("docker", "compose"), ("docker-compose",)]


def test_compose_file_is_valid() -> None:
    for command in COMPOSES:
        if shutil.which(command[0]) is not None and run_command(*command, "version")[0] == 0:
            assert run_command(*command, "-f", str(COMPOSE), "config", "-q") == (0, "")
            return
    pytest.skip("no docker compose here")


def test_trial_adapter_settings_are_valid() -> None:
    settings = load_settings(TRIAL / "pbs-adapter.toml", {})
    assert (settings.mode, settings.server.auth, settings.listen.any_port) == ("scheduler", "none", True)
    assert settings.daemon.url == ("http://schedd:8080",)


def test_image_copies_existing_files_and_runs_unprivileged() -> None:
    text = (ROOT / "Dockerfile").read_text()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)
        for name in line.split()[:-1]
    ]
    assert {"schedd", "server_adapter", "sql", "requirements.lock"} <= set(copied)
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored
    last = text[text.rindex("\nFROM ") :]
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert "HEALTHCHECK" in last
    assert re.search(r'^ENTRYPOINT \["schedd"\]\nCMD \["(\w+)"\]', last, re.MULTILINE)[1] in COMMANDS  # type: ignore[index]


@pytest.fixture
def checker() -> str:
    found = find_promtool()
    if found is None:
        pytest.skip(HOW)
    return found


def test_promtool_accepts_alert_rules_and_configuration(checker: str) -> None:
    code, output = run_command(
        checker, "check", "rules", "--lint=all", "--lint-fatal", str(TRIAL / "alerts.yml")
    )
    assert code == 0, output
    code, output = run_command(checker, "check", "config", "--syntax-only", str(TRIAL / "prometheus.yml"))
    assert code == 0, output


def test_prometheus_alerts_fire_at_their_thresholds(checker: str, tmp_path: Path) -> None:
    rule_tests = (Path(__file__).parent / "alerts_test.yml").read_text()
    (tmp_path / "test.yml").write_text(rule_tests.replace("RULES", str(TRIAL / "alerts.yml")))
    code, output = run_command(checker, "test", "rules", str(tmp_path / "test.yml"))
    assert code == 0, output


def test_promtool_detects_a_wrong_alert(checker: str, tmp_path: Path) -> None:
    wrong = (TRIAL / "alerts.yml").read_text().replace("schedd_failing == 1", "schedd_failing === 1")
    (tmp_path / "alerts.yml").write_text(wrong)
    assert run_command(checker, "check", "rules", str(tmp_path / "alerts.yml"))[0] != 0


def test_grafana_panels_do_not_overlap() -> None:
    board = json.loads((TRIAL / "dashboard.json").read_text())
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_grafana_dashboard_and_alerts_use_existing_metrics() -> None:
    page = (ROOT / "docs" / "reference" / "monitoring.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(schedd_\w+)`", page, re.MULTILINE))
    board = json.loads((TRIAL / "dashboard.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    rules = yaml.safe_load((TRIAL / "alerts.yml").read_text())["groups"][0]["rules"]
    expressions += [rule["expr"] for rule in rules]
    series = {name for expr in expressions for name in re.findall(r"schedd_\w+", expr)}
    # A histogram has no number of its own name.
    assert not series & {one.name for one in PlannerMetrics().registry.collect() if one.type == "histogram"}
    names = {re.sub(r"_(bucket|count)$", "", name) for name in series}
    assert names <= documented
    # What an admin should see is shown: all but the version and what other numbers say better.
    assert documented - names == {
        *(
            "schedd_build",
            "schedd_expected_halted_total",
            "schedd_generations_total",
            "schedd_plan_age_seconds",
            "schedd_planner_busy_seconds",
        )
    }
