"""``schedd migrate``: upgrade, downgrade, and error messages."""

import os
import pwd
from contextlib import closing, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from schedd.store import Leadership, Store
from schedd.store.schema_version import head
from tests.cli.run_main import run_main
from tests.store.next_version import FIRST, NEXT, use_next_version


def migrate(*args: str, **env: str | None) -> tuple[object, str]:
    """Return the exit code and the output of the command with these variables of the environment."""
    output = StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(output):
        for name, value in env.items():
            if value is None:
                patch.delenv(name, raising=False)
            else:
                patch.setenv(name, value)
        code = run_main(["migrate", *args])
    return code, output.getvalue()


def test_migrate_up_down_and_status(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_next_version(monkeypatch, tmp_path)
    assert head() == NEXT
    assert "version none" in migrate("current", "--database", url)[1]
    assert f"from version none to {head()}" in migrate("--database", url)[1]
    assert f"version {head()} as before" in migrate("upgrade", "--database", url)[1]
    Store.open(url).close()
    assert "to 0001" in migrate("downgrade", "--to", "0001", "--database", url)[1]
    assert f"version 0001; this program needs {head()}" in migrate("current", "--database", url)[1]
    assert migrate("downgrade", "--to", "base", "--database", url) == (
        0,
        migrate("current", "--database", url)[1].replace(
            f"version none; this program needs {head()}", "from version 0001 to none"
        ),
    )


def test_environment_can_name_the_database(url: str) -> None:
    assert migrate(SCHEDD_STORE__URL=url)[0] == 0
    assert "as before" in migrate("--database", url)[1]


@pytest.mark.covering
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("downgrade",), "give the version"),
        (("downgrade", "--to", "0001"), "is newer than none"),
        (("upgrade", "--to", "7777"), "no version 7777"),
        (("sideways",), "sideways"),
    ],
)
def test_impossible_migrations_are_explained(url: str, args: tuple[str, ...], words: str) -> None:
    code, output = migrate(*args, "--database", url)
    assert code != 0
    assert words in output


def test_upgrade_refuses_an_older_version(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_next_version(monkeypatch, tmp_path)
    migrate("--database", url)
    code, output = migrate("upgrade", "--to", "0001", "--database", url)
    assert code == 1
    assert "schedd migrate downgrade --to 0001" in output


def test_database_is_named_by_the_settings_file(url: str, tmp_path: Path) -> None:
    file = tmp_path / "schedd.toml"
    file.write_text(f'[store]\nurl = "{url}"\n')
    assert "version none to" in migrate(SCHEDD_CONFIG=str(file), SCHEDD_STORE__URL=None)[1]
    assert "as before" in migrate("--database", url)[1]
    file.write_text('[store]\nurl = "memory"\n[auth]\nanonymous = "reader"\n')
    code, output = migrate(SCHEDD_CONFIG=str(file), SCHEDD_STORE__URL=None)
    assert (code, "keeps nothing" in output) == (2, True)


@pytest.mark.covering
@pytest.mark.parametrize("args", [(), ("downgrade", "--to", "0001")])
def test_migration_refuses_a_database_in_use(
    url: str, args: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_next_version(monkeypatch, tmp_path)
    with closing(Store.open(url)) as store:
        lead = Leadership(store.database, "head1")
        assert lead.try_acquire()
        code, output = migrate(*args, "--database", url)
        assert (code, "a daemon uses it" in output) == (1, True)
        assert store.tokens() == []
        lead.release()
    assert migrate(*args, "--database", url)[0] == 0


def test_migration_is_audited(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_next_version(monkeypatch, tmp_path)
    migrate("--to", FIRST, "--database", url)
    migrate("--database", url)
    with closing(Store.open(url)) as store:
        acts = [(one.act, one.detail) for one in store.audit_entries()]
    assert acts == [("migrate", f"from version {FIRST} to {NEXT}")]


def test_files_created_by_root_belong_to_the_daemon(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    other = pwd.getpwnam("nobody").pw_uid
    os.chown(tmp_path, other, -1)
    for _ in range(2):  # a new one, and an existing one
        migrate(STATE_DIRECTORY=str(tmp_path), SCHEDD_STORE__URL="")
        assert {path.stat().st_uid for path in tmp_path.iterdir()} == {other}


def test_default_database_file_is_in_the_state_directory(tmp_path: Path) -> None:
    code, output = migrate(STATE_DIRECTORY=str(tmp_path), SCHEDD_STORE__URL="")
    assert code == 0
    assert (tmp_path / "schedd.sqlite").is_file()
    assert str(tmp_path) in output
