"""Every test below this folder is marked ``research``: ``make research`` runs it, ``make test`` does not."""

from pathlib import Path

import pytest

from tests.research.experiments.experiment import swf

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.research)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A directory with one small log."""
    path = tmp_path / "logs"
    path.mkdir()
    swf(path / "small.swf")
    return path
