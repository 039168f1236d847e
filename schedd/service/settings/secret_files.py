"""Files with secrets: passwords, tokens, keys. Only their owner may have access."""

import os
import stat
from pathlib import Path

from schedd.wire.toml_files import SettingsError


def read_secret_file(path: Path, what: str) -> bytes:
    """Return the contents of a file with secrets; ``what`` names them in messages.

    Raises SettingsError if it cannot be read, or if other users have access to it.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise SettingsError(
                    f"{path}: others may have access to it (mode {mode:04o}); chmod 0600 {path}"
                )
            return file.read()
    except OSError as error:
        raise SettingsError(f"{path}: cannot read {what}: {error.strerror or error}") from None


def read_secret_text(path: Path, what: str) -> str:
    """Return the contents as text. Raises SettingsError, also for bytes that are not UTF-8."""
    try:
        return read_secret_file(path, what).decode()
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: cannot read {what}: {error}") from None
