"""Default location of the daemon's state."""

import os
from pathlib import Path

from schedd.store.errors import DatabaseUnavailable


def state_folder() -> Path:
    """Return systemd's StateDirectory, else the user's state directory; it need not exist."""
    # systemd lists all state directories of a unit, separated by colons.
    given = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(given) if given else Path(home) / "schedd"


def default_url(*, create: bool = True) -> str:
    """Return the URL of a SQLite file in the state folder, which is created unless the caller only looks.
    Raises DatabaseUnavailable.
    """
    folder = state_folder()
    if not create:
        return f"sqlite:///{folder}/schedd.sqlite"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnavailable(f"{folder}: {error.strerror}; name a database by store.url") from None
    return f"sqlite:///{folder}/schedd.sqlite"
