"""Arguments that are not understood: one line that says what, where, and where to read more."""

import argparse
from typing import NoReturn

__all__ = ["Parser", "not_understood"]


class Parser(argparse.ArgumentParser):
    """Ends with that line and 2; the usage is what ``--help`` is for. Its sub-commands do the same."""

    def error(self, message: str) -> NoReturn:
        """As argparse calls it."""
        self.exit(2, not_understood(self.prog, message) + "\n")


def not_understood(command: str, words: str) -> str:
    """The line."""
    return f"{command}: {' '.join(words.split())}; `{command} --help` says what there is"
