"""Arguments that are not understood: one line that says what, where, and where to read more."""

import argparse
from typing import NoReturn


class OneLineErrorParser(argparse.ArgumentParser):
    """Ends with that line and 2; the usage is what ``--help`` is for. Its sub-commands do the same."""

    def error(self, message: str) -> NoReturn:
        """As argparse calls it."""
        self.exit(2, usage_error(self.prog, message) + "\n")


def usage_error(command: str, message: str) -> str:
    return f"{command}: {' '.join(message.split())}; `{command} --help` says what there is"
