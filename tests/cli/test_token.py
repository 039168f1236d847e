"""``schedd token``, as a site's admin calls it."""

import hashlib
import json
import os
import re
import time
from pathlib import Path

import pytest

from schedd.cli.main import main
from schedd.service.access.tokens import Tokens
from schedd.store import Store
from schedd.store.records import AuditRecord
from tests.cli.run_main import run_main


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "schedd.toml"
    path.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/s.sqlite"\n')
    monkeypatch.setenv("SCHEDD_CONFIG", str(path))
    monkeypatch.setenv("SUDO_USER", "ann")
    return path


def open_store(config: Path) -> Store:
    return Store.open(f"sqlite:///{config.parent}/s.sqlite")


def test_an_audit_entry_has_one_line_and_commands_no_terminal(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A refused request has the path that its user chose."""
    kept = open_store(config)
    kept.audit(AuditRecord(int(time.time()), "eve", "refused", "x\n2026-01-01  root  resume\x1b[8m"))
    assert main(["audit"]) == 0
    assert capsys.readouterr().out.endswith("  eve  refused  x 2026-01-01  root  resume?[8m\n")


def test_created_token_is_shown_once_and_revoked_by_name(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", "create", "portal", "--role", "reader", "--days", "30"]) == 0
    made = capsys.readouterr()
    token = made.out.strip()
    assert re.fullmatch(r"[\w-]{43}", token)  # 256 bits in base64
    assert re.match(r"token 1 of portal, role reader: valid within 2 seconds, until \d{4}-", made.err)
    kept = open_store(config)
    tokens = Tokens(())
    tokens.set_stored(kept.tokens())
    found = tokens.bearer(token)
    assert found is not None
    assert (found.name, found.role) == ("portal", "reader")
    (row,) = kept.tokens()
    assert row.digest == hashlib.sha256(token.encode()).digest()
    assert row.expires is not None
    assert row.expires - row.created == 30 * 86_400
    assert token.encode() not in b"".join(path.read_bytes() for path in config.parent.glob("s.sqlite*"))

    assert main(["token", "list"]) == 0
    listed = capsys.readouterr().out
    assert re.search(r"^1 +portal +reader +all +\d{4}-\d\d-\d\d", listed, re.MULTILINE)
    assert token not in listed
    assert main(["token", "revoke", "portal"]) == 0
    assert capsys.readouterr().out == "revoked token 1 of portal, role reader\n"
    tokens.set_stored(kept.tokens())
    assert tokens.bearer(token) is None
    assert main(["token", "revoke", "1"]) == 1
    assert "no valid token '1'" in capsys.readouterr().err
    assert main(["token", "list", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["revoked"] is not None
    notes = [(entry.who, entry.act, entry.detail) for entry in kept.audit_entries()]
    assert notes == [
        ("ann", "token revoke", "1: portal, role reader"),
        ("ann", "token create", "1: portal, role reader"),
    ]
    kept.close()


def test_number_selects_a_token_by_its_position(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("2", "other"):
        assert main(["token", "create", name, "--role", "reader"]) == 0
    capsys.readouterr()
    assert main(["token", "revoke", "2"]) == 0
    assert capsys.readouterr().out == "revoked token 2 of other, role reader\n"


def test_token_for_a_single_cluster_is_valid_only_there(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(config.read_text() + "[clusters.a]\n[clusters.b]\n[clusters.c]\n")
    scope = ["--cluster", "a", "--cluster", "b", "--cluster", "a"]
    assert main(["token", "create", "theo", "--role", "operator", *scope]) == 0
    made = capsys.readouterr()
    assert made.err.startswith("token 1 of theo, role operator on a, b: valid within")
    kept = open_store(config)
    tokens = Tokens(())
    tokens.set_stored(kept.tokens())
    found = tokens.bearer(made.out.strip())
    assert found is not None
    assert [found.on_cluster(cluster) is not None for cluster in "abc"] == [True, True, False]
    assert main(["token", "list"]) == 0
    assert re.search(r"^1 +theo +operator +a,b +\d{4}", capsys.readouterr().out, re.MULTILINE)
    assert main(["token", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["clusters"] == ["a", "b"]
    assert kept.audit_entries()[0].detail == "1: theo, role operator on a, b"
    kept.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["portal", "--role", "user", "--cluster", "nain"], "no cluster 'nain'; there is main"),
        (["portal", "--role", "boss"], "--role: invalid choice: 'boss'"),
        (["a b", "--role", "user"], "argument NAME: 'a b': a name has"),
        (["portal"], "--role"),
        (["portal", "--role", "user", "--days", "0"], "--days"),
    ],
)
def test_invalid_tokens_are_refused(
    config: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run_main(["token", "create", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not (config.parent / "s.sqlite").exists()


def test_unusable_settings_and_databases_are_named(
    config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["token", "list", "--config", str(tmp_path / "none.toml")]) == 2
    assert "none.toml: no such file" in capsys.readouterr().err
    config.write_text('[store]\nurl = "memory"\n[auth]\nanonymous = "reader"\n')
    assert main(["token", "list"]) == 2
    assert "keeps nothing" in capsys.readouterr().err
    config.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/no/such/s.sqlite"\n')
    assert main(["token", "list"]) == 1
    assert "schedd token: " in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_database_created_by_root_belongs_to_the_directorys_owner(config: Path) -> None:
    os.chown(config.parent, 12_345, 12_345)
    assert main(["token", "create", "portal", "--role", "reader"]) == 0
    owners = {path.stat().st_uid for path in config.parent.glob("s.sqlite*")}
    assert owners == {12_345}
