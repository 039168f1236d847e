"""The adapter's settings: accepted values, and messages about settings of the daemon."""

from pathlib import Path

import pytest

from schedd.wire.toml_files import SettingsError
from server_adapter.settings import load_settings


def test_times_use_the_notation_of_the_daemons_settings(tmp_path: Path) -> None:
    path = tmp_path / "pbs-adapter.toml"
    path.write_text('[poll]\ninterval = "10s"\nsnapshot = "1h"\ngap = 0.2\n')
    poll = load_settings(path, {}).poll
    assert (poll.interval, poll.snapshot, poll.gap) == (10, 3600, 0.2)
    path.write_text('[poll]\ninterval = "soon"\n')
    with pytest.raises(SettingsError, match=r"poll.interval: a time such as 30s"):
        load_settings(path, {})
