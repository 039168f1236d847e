"""Where the daemon keeps its state when nobody says."""

import os
from pathlib import Path

from schedd.store.errors import DatabaseUnavailable

__all__ = ["default_url", "state_folder"]


def state_folder() -> Path:
    """Systemd's StateDirectory, else the user's directory for state; it need not be there yet."""
    # systemd lists all state directories of a unit, separated by colons.
    given = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(given) if given else Path(home) / "schedd"


def default_url() -> str:
    """A SQLite file in the state folder, which is made. Raises DatabaseUnavailable when it cannot be made."""
    folder = state_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnavailable(f"{folder}: {error.strerror}; name a database by store.url") from None
    return f"sqlite:///{folder}/schedd.sqlite"
