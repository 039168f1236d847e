"""Texts of exceptions in messages for people. Standard library only."""

import builtins
from typing import Final

_WITH_OWN_TEXT: Final = (OSError, RuntimeError, ValueError)
"""Builtin exceptions with texts for people. The others come from defects: their names are shown, too."""


def describe_error(error: BaseException) -> str:
    """Return the reason of an exception in words: never its Python notation, and never empty."""
    name, text = type(error).__name__, str(error).strip()
    if isinstance(error, MemoryError):
        return "no memory is left"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if type(error).__module__ == builtins.__name__ and not isinstance(error, _WITH_OWN_TEXT):
        return f"internal error {name}: {text}" if text else f"internal error {name}"
    if text:
        return text
    return "no answer in time" if "Timeout" in name else name
