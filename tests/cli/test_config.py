"""``schedd config``: checks, shown settings, explanations."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from schedd.cli.main import main
from schedd.service.settings.file import read_settings_file
from schedd.service.settings.reference import SECTIONS
from schedd.store.database import Database
from tests.store.next_version import use_next_version

FULL = """
[server]
host = "0.0.0.0"
allow_remote = true
[auth]
operators = ["ann", 'b"ob']
[[auth.tokens]]
name = "portal"
role = "reader"
sha256 = "%s"
[store]
url = "postgresql://schedd:secret@db/schedd"
[clusters."east.wing"]
slack = 900
mem_per_core = 1024
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["config", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "schedd.toml"
    found.write_text(FULL % ("ab" * 32))
    return found


def test_valid_settings_pass_with_advice(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check", "--config", str(path), "--no-database")
    assert code == 0
    lines = out.splitlines()
    assert lines[-1] == f"{path}: can be used"
    assert [line.split(":")[1].strip() for line in lines[:-1]] == ["server.allow_remote"]
    assert run(capsys, "check", "--config", str(path), "--strict", "--no-database")[0] == 2


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ('[auth]\nanonymous = "reader"', {"clusters.main.mem_per_core"}),
        (
            "[clusters.main]\nslack = 0",
            {"auth", "clusters.main.mem_per_core", "clusters.main.slack"},
        ),
        (
            "[clusters.main]\nslack = 'off'",
            {"auth", "clusters.main.mem_per_core", "clusters.main.slack"},
        ),
        (
            (
                '[server]\nsocket = "s"\n[store]\nurl = "memory"\n[clusters.main]\nslack = 1\n'
                'mem_per_core = 1\nvalidate = true\nalone = false\npolicy = "easy"'
            ),
            {"store.url", *(f"clusters.main.{name}" for name in ("validate", "alone", "policy"))},
        ),
        (
            (
                '[server]\nhost = "::"\nallow_remote = true\n[auth]\nanonymous = "reader"\nmunge = true\n'
                'admins = ["root"]\n[clusters.main]\nslack = 1\nmem_per_core = 1'
            ),
            {"server.allow_remote", "auth.anonymous", "auth.admins"},
        ),
        (
            (
                '[auth]\nanonymous = "reader"\n[clusters.main]\nslack = 1\nmem_per_core = 1\n'
                'predict_from = "/none/accounting"\n[clusters.other]\nslack = 1\nmem_per_core = 1\n'
                'predict = false\npredict_from = "/none/accounting"\n'
            ),
            {"clusters.main.predict_from"},
        ),
        (
            (
                '[auth]\nanonymous = "reader"\n[clusters.main]\nslack = 1\nmem_per_core = 1\n'
                '[clusters.main.site.fair_share]\naccounting = "/none/accounting"\n'
                '[clusters.main.site.licences.matlab]\ncommand = ["/none/count"]\n'
                '[clusters.main.site.licences.ansys]\ncommand = ["echo", "1"]\n'
            ),
            {
                f"clusters.main.site.{name}"
                for name in ("fair_share", "fair_share.accounting", "licences.matlab")
            },
        ),
    ],
)
def test_unusual_settings_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, advice: set[str]
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    code, out, _ = run(capsys, "check", "--config", str(path))
    assert code == 0
    assert {line.split(":")[1].strip() for line in out.splitlines() if line.startswith("advice")} == advice


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[clusters.main]\nslak = 1", "did you mean slack?"),
        ('[auth]\ntoken_file = "/none"', "/none: cannot read the tokens"),
        ('[server]\ntls_certificate = "/none.pem"', "/none.pem cannot be used"),
    ],
)
def test_settings_refused_at_startup_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    code, out, err = run(capsys, "check", "--config", str(path))
    assert (code, out) == (2, "")
    assert said in err
    assert all(line.startswith("schedd config: ") for line in err.splitlines())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[store]\nurl = "mysql://x:geheim@y/z"', "not supported"),
        ('[store]\nurl = "postgresql://x:geheim@y:five/z"', "its port is no number"),
        ('[[auth.tokens]]\nname = "x"\nrole = "admin"\nsha256 = "geheim"', "auth.tokens.0.sha256"),
        ('[[webhooks]]\nurl = "ftp://x:geheim@y/z"\nsecret_file = "/none"', "webhooks.0.url"),
    ],
)
def test_refused_secrets_are_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    for command in ("check", "show"):
        code, out, err = run(capsys, command, "--config", str(path))
        assert (code, said in err, "geheim" in out + err) == (2, True, False)


def test_shown_settings_are_valid_and_name_their_source(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SCHEDD_SERVER__PORT", "8123")
    code, out, _ = run(capsys, "show", "--config", str(path))
    assert code == 0
    assert "port = 8123  # from SCHEDD_SERVER__PORT" in out
    assert 'slack = "15m"\n' in out
    assert 'end_allowance = "2m"  # default' in out
    assert "secret" not in out
    assert "abab" not in out
    shown: dict[str, Any] = tomllib.loads(out)
    assert shown["auth"]["tokens"][0]["name"] == "portal"
    again = tmp_path / "again.toml"
    again.write_text(out.replace('"***"', f'"{"ab" * 32}"').replace(":***@", ":secret@"))
    assert read_settings_file(again).model_dump() == read_settings_file(path).model_dump()


def test_passwords_in_urls_are_hidden(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.toml"
    path.write_text('[store]\nurl = "postgresql://u:erstes@h/db?password=geheim&sslmode=require"\n')
    code, said, _ = run(capsys, "show", "--config", str(path))
    assert code == 0
    assert "sslmode=require" in said
    assert "erstes" not in said
    assert "geheim" not in said
    named = Database("postgresql://u:erstes@h/db?password=geheim").name
    assert named == "postgresql://u:***@h/db?password=***"


def test_webhooks_are_shown_and_their_secrets_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.toml"
    hook = f'[[webhooks]]\nurl = "https://x/hook"\nsecret_file = "{tmp_path}/none"\nusers = ["ann"]\n'
    path.write_text('[auth]\nanonymous = "reader"\n[clusters.main]\n' + hook)
    code, out, _ = run(capsys, "show", "--config", str(path))
    assert code == 0
    assert tomllib.loads(out)["webhooks"][0]["users"] == ["ann"]
    path.write_text(path.read_text().replace("https://x/hook", "https://ann:geheim@x/hook?token=secret"))
    assert "https://***@x/hook?***" in run(capsys, "show", "--config", str(path))[1]
    code, _, err = run(capsys, "check", "--config", str(path))
    assert (code, "cannot read the webhook's secret" in err) == (2, True)
    path.write_text(hook.replace("url", "uri"))
    assert "did you mean url?" in run(capsys, "check", "--config", str(path))[2]


def test_database_is_checked_but_not_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, file = tmp_path / "c.toml", tmp_path / "d.sqlite"

    def check(url: str, *more: str) -> tuple[int, str]:
        path.write_text(f'[store]\nurl = "{url}"')
        code, _, err = run(capsys, "check", "--config", str(path), *more)
        return code, err

    assert check(f"sqlite:///{file}") == (0, "")  # the daemon makes it
    assert not file.exists()
    code, err = check(f"sqlite:///{tmp_path}/none/d.sqlite")
    assert (code, f"store.url: {tmp_path}/none: no such directory" in err) == (1, True)
    code, err = check("postgresql://x:geheim@127.0.0.1:1/y")
    assert (code, "store.url: " in err, "geheim" in err) == (1, True, False)
    assert check("postgresql://x:geheim@127.0.0.1:1/y", "--no-database") == (0, "")
    file.write_bytes(b"no database at all, but a text" * 100)
    assert check(f"sqlite:///{file}")[0] == 1
    assert file.read_bytes() == b"no database at all, but a text" * 100
    file.unlink()
    Database.open(f"sqlite:///{file}").close()
    assert check(f"sqlite:///{file}") == (0, "")
    use_next_version(monkeypatch, tmp_path)
    code, err = check(f"sqlite:///{file}")
    assert (code, "are of version 0001" in err, "schedd migrate" in err) == (1, True, True)


def test_all_settings_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "reference")
    assert code == 0
    for name in SECTIONS:
        assert f"## `{name}`" in out
