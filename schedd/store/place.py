"""Where the database is when nobody says."""

import os
from pathlib import Path

from schedd.store.errors import DatabaseGone

__all__ = ["default_url"]


def default_url() -> str:
    """A SQLite file in systemd's StateDirectory, else in the user's directory for state, which is made.

    Raises DatabaseGone when it cannot be made.
    """
    # systemd lists all state directories of a unit, separated by colons.
    given = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    folder = Path(given) if given else Path(home) / "schedd"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseGone(f"{folder}: {error.strerror}; name a database by store.url") from None
    return f"sqlite:///{folder}/schedd.sqlite"
