"""The lines of a sched_config."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from schedd.cli.importing.result import Imported, Verdict

__all__ = ["Option", "options_of"]

_LINE = re.compile(r"(\w+)\s*:?\s*(.*)")
_PRIMES = {"ALL": "all", "PRIME": "prime", "NON_PRIME": "non_prime"}


@dataclass(frozen=True, slots=True)
class Option:
    """One option; ``prime`` is the half of the day for which it holds: ``prime``, ``non_prime``, ``all``."""

    line: int
    name: str
    value: str
    prime: str

    @property
    def on(self) -> bool:
        """Whether it says yes."""
        return self.value.lower() in ("true", "yes", "1", "t", "y")


def options_of(text: str, done: Imported) -> Iterator[Option]:
    """The options of a sched_config, as ``name: value prime`` or without the colon."""
    for number, line in enumerate(text.splitlines(), 1):
        said = line.strip()
        if not said or said.startswith("#"):
            continue
        found = _LINE.fullmatch(said)
        words = _words(found[2]) if found is not None else None
        if found is None or words is None:
            done.note(Verdict.DIFFERS, number, said[:40], "not understood, passed over")
            continue
        prime = _PRIMES.get(words[-1].upper(), "") if len(words) > 1 else ""
        yield Option(number, found[1].lower(), " ".join(words[:-1] if prime else words), prime or "all")


def _words(text: str) -> list[str] | None:
    try:
        return shlex.split(text, comments=True) or None
    except ValueError:
        return None
