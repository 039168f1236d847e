"""Settings of daemon, adapter and federation are read by one loader, with one wording of errors."""

from collections.abc import Callable
from pathlib import Path

import pytest

from schedd.federation.settings import load_federation_settings
from schedd.service.settings.file import read_settings_file
from schedd.wire.settings_file import SettingsFiles, read_token
from schedd.wire.toml_files import SettingsError
from server_adapter.settings import load_settings

LOADERS: dict[str, Callable[[Path], object]] = {
    "daemon": read_settings_file,
    "adapter": lambda path: load_settings(path, {}),
    "federation": load_federation_settings,
}
MEMBER = '[clusters.a]\nurl = "http://x"\ntoken_file = "t"\n'


@pytest.mark.parametrize("program", LOADERS)
def test_all_programs_name_place_fault_and_remedy_alike(tmp_path: Path, program: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(
        '# comment\n[server]\nhosd = "x"\nport = -1\n' + (MEMBER if program == "federation" else "")
    )
    with pytest.raises(SettingsError) as refused:
        LOADERS[program](path)
    assert sorted(str(refused.value).splitlines()) == [
        f"{path}, line 3: server.hosd: no such setting; did you mean host?",
        f"{path}, line 4: server.port: it must be at least {1 if program == 'adapter' else 0} (it is -1)",
    ]
    path.write_text("[server\n")
    with pytest.raises(SettingsError, match=r"settings\.toml: .*line 1"):
        LOADERS[program](path)
    with pytest.raises(SettingsError, match=r"none\.toml: no such file"):
        LOADERS[program](tmp_path / "none.toml")


def test_errors_name_the_command_line_or_the_environment_as_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[server]\nport = 1\n")
    with pytest.raises(SettingsError, match=r"^the command line: server\.port: a whole number is expected"):
        load_settings(path, {"server.port": "x"})
    with pytest.raises(SettingsError, match=r"^the command line: server\.port: it must be at most 65535"):
        read_settings_file(path, server={"port": 70_000})
    monkeypatch.setenv("SCHEDD_SERVER__PORT", "x")
    with pytest.raises(
        SettingsError, match=r"^SCHEDD_SERVER__PORT: server\.port: a whole number is expected"
    ):
        read_settings_file(path)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('family = "lsf"', "line 2: server.family: it must be 'torque' or 'openpbs'"),
        ('family = "openpbs"\nauth = "trqauthd"', "line 3: server.auth: trqauthd is no way of OpenPBS's"),
        ('owner = "no-such-user"', "line 2: server.owner: there is no user no-such-user"),
    ],
)
def test_adapter_refuses_an_impossible_server_with_its_line(tmp_path: Path, table: str, said: str) -> None:
    path = tmp_path / "pbs-adapter.toml"
    path.write_text(f"[server]\n{table}\n")
    with pytest.raises(SettingsError, match=said):
        load_settings(path, {})


@pytest.mark.parametrize("text", ["", "two words", None])
def test_a_token_file_holds_one_token(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SettingsError, match=rf"^daemon\.token_file: {path} (must hold|cannot be read)"):
        read_token(path, "daemon.token_file")


def test_files_that_a_restart_could_not_read_are_named(tmp_path: Path) -> None:
    path, token = tmp_path / "pbs-adapter.toml", tmp_path / "token"
    token.write_text("secret")
    path.write_text(f'state_dir = "{tmp_path}/none"\n[daemon]\ntoken_file = "{token}"\n')
    files = SettingsFiles(path, load_settings(path, {}))
    assert files.problem == ""
    for one in (path, token):
        one.rename(tmp_path / "away")
        assert files.problem == f"its next start would fail: {one}: No such file or directory"
        (tmp_path / "away").rename(one)
    assert files.problem == ""
