"""The line of a setting in its file."""

from pathlib import Path

import pytest

from schedd.service.settings.file import SettingsError, read_settings_file
from schedd.service.settings.readable import setting_line

TEXT = """\
[server]
port = 1

[clusters.main.site.accounts]
by = "user"
[[clusters.main.site.limits]]
amount = 1
[[clusters.main.site.limits]]
amount = 2 # twice
[clusters."a b".site]
priority.size = 3
classes = { gold = { points = 1 } }
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("server", "port"), 2),
        (("clusters", "main", "site", "accounts", "by"), 5),
        (("clusters", "main", "site", "limits", 0, "amount"), 7),
        (("clusters", "main", "site", "limits", 1, "amount"), 9),
        (("clusters", "main", "site", "limits", 1, "what"), 8),  # missing: the nearest table
        (("clusters", "a b", "site", "priority", "size"), 11),
        (("clusters", "a b", "site", "classes", "gold", "points"), 12),  # in an inline table
        (("nothing",), None),
        ((), None),
    ],
)
def test_setting_errors_name_their_line(path: tuple[str | int, ...], line: int | None) -> None:
    assert setting_line(TEXT, path) == line


def test_errors_in_feature_settings_name_the_line_and_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "schedd.toml"
    file.write_text('[clusters.main.site.accounts]\n# which\nbye = "user"\ngpu = -1\n', encoding="utf-8")
    with pytest.raises(SettingsError) as error:
        read_settings_file(file)
    lines = str(error.value).splitlines()
    assert any(line.startswith(f"{file}, line 3: clusters.main.site.accounts.bye: no such") for line in lines)
    assert any(line.startswith(f"{file}, line 4: clusters.main.site.accounts.gpu: ") for line in lines)
