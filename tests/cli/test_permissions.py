"""Files in directories that the caller may not search: each command says so, and the daemon starts."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from schedd.cli.main import main
from schedd.service.cluster.accounting_logs import ended_runs
from schedd.service.settings.advice import settings_advice
from schedd.service.settings.file import read_settings_file
from schedd.wire.toml_files import SettingsError, read_toml


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that only others may search, even where the tests run as root."""
    directory = tmp_path / "private"
    real: Callable[..., Any] = os.stat

    def stat(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if not isinstance(path, int) and directory in Path(os.fsdecode(path)).parents:
            raise PermissionError(13, "Permission denied", str(path))
        result: os.stat_result = real(path, *args, **options)
        return result

    monkeypatch.setattr(os, "stat", stat)
    return directory


@pytest.mark.parametrize(
    "command", [("audit",), ("token", "list"), ("migrate",), ("history", "1"), ("shadow-report",)]
)
def test_a_database_of_another_user_is_no_defect_of_the_command(
    command: tuple[str, ...], private: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "schedd.toml"
    config.write_text(f'[store]\nurl = "sqlite:///{private}/schedd.sqlite"\n')
    assert main([*command, "--config", str(config)]) == 1
    assert f"{private}/schedd.sqlite: permission denied; run this as root" in capsys.readouterr().err


def test_settings_of_another_user_are_no_defect_of_the_command(
    private: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SettingsError, match="permission denied"):
        read_toml(private / "schedd.toml")
    assert main(["audit", "--config", str(private / "schedd.toml")]) == 2
    assert "schedd.toml: permission denied" in capsys.readouterr().err


def test_the_doctor_says_what_it_may_not_look_at(
    private: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "schedd.toml"
    config.write_text(f'[server]\nport = 0\n[store]\nurl = "sqlite:///{private}/schedd.sqlite"\n')
    options = ["--config", str(config), "--adapter", str(private / "a.toml"), "--url", "http://127.0.0.1:9"]
    assert main(["doctor", *options]) == 2
    said = capsys.readouterr().out
    assert f"{private}/schedd.sqlite: permission denied" in said
    assert f"{private}/a.toml: permission denied" in said


def test_accounting_logs_that_only_root_may_read_are_reported(private: Path, tmp_path: Path) -> None:
    with capture_logs() as logs:
        assert list(ended_runs(private / "accounting", 0, "main", "use")) == []
    assert logs[0]["event"] == "accounting logs cannot be read"
    config = tmp_path / "schedd.toml"
    at = f'"{private}/accounting"'
    config.write_text(
        f"[clusters.main]\npredict_from = {at}\n[clusters.main.site.fair_share]\naccounting = {at}\n"
    )
    advice = [line for line in settings_advice(read_settings_file(config)) if "permission denied" in line]
    assert len(advice) == 2


def test_a_log_that_may_not_be_read_is_not_replayed(
    private: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(private / "log")]) == 2
    assert "cannot be read: Permission denied" in capsys.readouterr().err
