"""``schedd migrate``: there and back, and what it says when it cannot."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from schedd.cli.main import _typed
from schedd.store import Store
from schedd.store.migrate import head


def migrate(*args: str, **env: str) -> tuple[int, str]:
    from schedd.cli import migrate as module  # noqa: PLC0415

    done = CliRunner().invoke(_typed({"migrate": module}), ["migrate", *args], env=env)
    return done.exit_code, done.output


def test_up_and_down_and_where_it_is(url: str) -> None:
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


def test_the_environment_names_the_database(url: str) -> None:
    assert migrate(SCHEDD_STORE__URL=url)[0] == 0
    assert "as before" in migrate("--database", url)[1]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("downgrade",), "say to which version"),
        (("downgrade", "--to", "0001"), "is newer than none"),
        (("upgrade", "--to", "7777"), "no version 7777"),
        (("sideways",), "sideways"),
    ],
)
def test_what_cannot_be_done_is_said(url: str, args: tuple[str, ...], words: str) -> None:
    code, output = migrate(*args, "--database", url)
    assert code != 0
    assert words in output


def test_upgrading_does_not_go_back(url: str) -> None:
    migrate("--database", url)
    code, output = migrate("upgrade", "--to", "0001", "--database", url)
    assert code == 1
    assert "schedd migrate downgrade --to 0001" in output


def test_without_settings_the_file_is_in_the_state_directory(tmp_path: Path) -> None:
    code, output = migrate(STATE_DIRECTORY=str(tmp_path), SCHEDD_STORE__URL="")
    assert code == 0
    assert (tmp_path / "schedd.sqlite").is_file()
    assert str(tmp_path) in output
