"""Check that a settings file is valid TOML, without slow imports."""

import tomllib
from pathlib import Path

__all__ = ["toml_error"]


def toml_error(path: Path) -> str:
    """Return why the file cannot be read; empty if it can."""
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
