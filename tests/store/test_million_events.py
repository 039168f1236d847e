"""A million events over more than an hour: neither memory nor disk use grows."""

import json
from pathlib import Path

import pytest

from research.benchmarks.command import run


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_million_events_do_not_grow_memory_database_or_wal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long.json"
    arguments = ["--events", "1000000", "--rate", "270", "--seconds", "20000", "--keep", "0.005"]
    with capsys.disabled():
        assert run(["events", *arguments, "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    storm, slopes = found["storm"], found["slopes"]
    assert storm["events"] >= 1_000_000
    assert storm["seconds"] >= 3_600
    last = storm["samples"][-1]
    for name, slope in slopes.items():
        assert slope < 0.1 * last[name], f"{name} grows by {slope} MiB over a million events"
