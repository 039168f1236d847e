"""Whether a settings file can be read as TOML at all, found before anything large is imported."""

import tomllib
from pathlib import Path

__all__ = ["toml_error"]


def toml_error(path: Path) -> str:
    """What keeps the file from being read, in words; empty where nothing does."""
    try:
        if path.is_dir():
            return "is a directory, not a file"
        if path.exists() and not path.is_file():
            return "is no regular file"
        with path.open("rb") as file:
            tomllib.load(file)
    except FileNotFoundError:
        return "no such file"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    except ValueError as error:  # no TOML, or no UTF-8
        return str(error)
    return ""
