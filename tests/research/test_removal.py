"""Features are deleted in a copy of the repository, and what the core then cannot import is reported."""

from pathlib import Path

import pytest

from research.removal import features_removed_with, import_failures, remove_features

LIST = """FEATURES = (
    Feature("power", {}),
    Feature("transfers", {}),
    Feature("bookings", {}, ("transfers",)),
)
"""


def test_features_that_need_a_removed_one_are_removed_too() -> None:
    assert features_removed_with("transfers") == ("transfers", "bookings")
    assert features_removed_with("bookings") == ("bookings",)


def test_a_removed_feature_has_no_folder_and_no_line(tmp_path: Path) -> None:
    for folder in ("schedd/features/power", "schedd/features/transfers", "tests/features/power"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "schedd" / "feature_list.py").write_text(LIST, "utf-8")
    remove_features(tmp_path, ["power"])
    assert '"power"' not in (tmp_path / "schedd" / "feature_list.py").read_text("utf-8")
    left = [path.name for path in (tmp_path / "schedd" / "features").iterdir()]
    assert left == ["transfers"]
    assert not (tmp_path / "tests" / "features" / "power").exists()
    with pytest.raises(ValueError, match="power has 0 lines of its own"):
        remove_features(tmp_path, ["power"])


def test_imports_of_a_removed_feature_are_reported(tmp_path: Path) -> None:
    for package in ("schedd", "schedd/features", "server_adapter"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "schedd" / "core.py").write_text("import schedd.features.power\n", "utf-8")
    fault = "schedd.core: ModuleNotFoundError: No module named 'schedd.features.power'"
    assert import_failures(tmp_path) == [fault]
