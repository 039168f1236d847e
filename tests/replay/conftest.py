"""Logs for experiments."""

from pathlib import Path

import pytest

from tests.research.experiments.experiment import swf


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    path.mkdir()
    swf(path / "small.swf")
    return path
