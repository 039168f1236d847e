"""The line of a setting in its file."""

from pathlib import Path

import pytest

from schedd.service.settings.file import read_settings_file
from schedd.wire.toml_files import SettingsError, setting_line

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


SITE = """\
[clusters.main.site.qos.levels.high]
[clusters.main.site.partitions.sets.gpu]
nodes = ["n1"]
"""
BACKWARDS = "everywhere = true\nfirst = 2026-01-02T00:00:00\nlast = 2026-01-01T00:00:00"


@pytest.mark.parametrize(
    ("table", "more", "line", "said"),
    [
        ("[limits]", 'amount = 1\nqos = "low"', 6, "limits.0.qos: there is no QOS 'low'"),
        ("[limits]", 'amount = 1\npartition = "x"', 6, "limits.0.partition: there is no partition 'x'"),
        ("[partitions.defaults]", 'who = "user"\nallowed = ["x"]', 6, "there is no partition x"),
        ("preemption", 'targets = {qos = ["low"]}', 5, "targets.qos.0: there is no QOS 'low'"),
        ("preemption", 'grace = "2m"', 5, "preemption.grace: it is the time after the signal"),
        ("preemption", 'methods = ["kill"]', 5, "methods.0: it must be 'suspend'"),
        ("preemption", "methods = []", 5, "methods: it needs at least 1 entry"),
        ("preemption", 'methods = "kill"', 5, "methods: a list is expected"),
        ("preemption", 'targets = "kill"', 5, "targets: a table is expected"),
        ("preemption", 'windows = ["soon"]', 5, "windows.0: soon: a part is missing; write the begin"),
        ("fair_share", "charge_qos = {low = 2}", 5, "charge_qos.low: there is no QOS 'low'"),
        ("node_choice.partitions.x", "", 4, "partitions.x: there is no partition 'x'"),
        ("reservations.r", BACKWARDS, 4, "reservations.r: it ends at 2026-01-01"),
    ],
)
def test_settings_that_contradict_others_name_the_line_and_the_reason(
    tmp_path: Path, table: str, more: str, line: int, said: str
) -> None:
    file = tmp_path / "schedd.toml"
    head = f"clusters.main.site.{table.strip('[]')}"
    head = f"[[{head}]]" if table.startswith("[") else f"[{head}]"
    file.write_text(f"{SITE}{head}\n{more}\n", encoding="utf-8")
    with pytest.raises(SettingsError) as error:
        read_settings_file(file)
    (found,) = str(error.value).splitlines()
    assert found.startswith(f"{file}, line {line}: clusters.main.site.")
    assert said in found
