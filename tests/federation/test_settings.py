"""Settings of a federation: mapping of users, and messages about invalid settings."""

from pathlib import Path

import pytest

from schedd.cli.main import main
from schedd.federation.settings import MemberClusterSettings, load_federation_settings
from schedd.wire.toml_files import SettingsError

GOOD = """
[clusters.north]
url = "http://127.0.0.1:8080"
token_file = "/etc/schedd/north.token"
realms = ["org"]
users = {"bob@else" = "bob1", "root@org" = "", "eve@org" = "root"}
"""


def write(path: Path, text: str) -> Path:
    file = path / "federation.toml"
    file.write_text(text)
    return file


def test_minimal_settings_map_users(tmp_path: Path) -> None:
    settings = load_federation_settings(write(tmp_path, GOOD))
    assert settings.routing.threshold == 600
    assert settings.users("ann@org") == {"north": "ann"}
    assert settings.users("bob@else") == {"north": "bob1"}
    for nobody in ("ann@else", "ann", "@org", "root@org", "eve@org"):
        assert settings.users(nobody) == {}, nobody


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "clusters: it is missing"),
        ("[clusters]\n", "at least one is required"),
        (GOOD + "colour = 1\n", "clusters.north.colour: no such setting"),
        (GOOD.replace("http:", "ftp:"), "clusters.north.url"),
        (GOOD + GOOD.replace("north]", "south]"), "two entries have the same url and cluster"),
        (GOOD + "[routing]\npolicy = 'best'\n", "routing.policy"),
        (GOOD + "[routing]\nmoves = -1\n", "routing.moves"),
        ("[clusters.north", "federation.toml"),
    ],
)
def test_invalid_settings_are_explained(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=r"federation\.toml") as error:
        load_federation_settings(write(tmp_path, text))
    assert words in str(error.value)


def test_check_option_reads_settings_and_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "north.token"
    file = write(tmp_path, GOOD.replace("/etc/schedd/north.token", str(token)))
    assert main(["federate", "--config", str(file), "--check"]) == 2
    assert "clusters.north.token_file" in capsys.readouterr().err
    token.write_text("a-token\n")
    assert main(["federate", "--config", str(file), "--check"]) == 0
    assert "1 clusters: north" in capsys.readouterr().out


def test_disclosure_levels_are_cumulative(tmp_path: Path) -> None:
    def level(name: str) -> list[bool]:
        chosen = MemberClusterSettings.model_validate(
            {"url": "http://x", "token_file": str(tmp_path), "disclosure": name}
        )
        return [chosen.discloses("power"), chosen.discloses("load"), chosen.discloses("plan")]

    assert [level(one) for one in ("offers", "power", "load", "plan")] == [
        [False, False, False],
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
