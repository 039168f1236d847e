"""The lines of a maui.cfg."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from schedd.cli.importing.result import Imported, Verdict

__all__ = ["OWNERS", "Entry", "entries_of"]

_LINE = re.compile(r"([A-Za-z]\w*)(?:\[([^\]]*)\])?\s*(.*)")
_ATTRIBUTE = re.compile(r"([A-Za-z][\w.]*)(?:\[([^\]]*)\])?[=:](\"[^\"]*\"|\S+)")
OWNERS = {"USERCFG": "user", "GROUPCFG": "group", "ACCOUNTCFG": "account"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One parameter: ``NAME[INDEX] VALUE``."""

    line: int
    name: str
    index: str
    value: str

    @property
    def setting(self) -> str:
        """Its name with the index."""
        return f"{self.name}[{self.index}]" if self.index else self.name

    def attributes(self) -> Iterator[tuple[str, str, str]]:
        """Name, index and value of each ``ATTR[INDEX]=VALUE``."""
        for found in _ATTRIBUTE.finditer(self.value):
            yield found[1].upper(), (found[2] or "").upper(), found[3].strip('"')


def entries_of(text: str, done: Imported) -> Iterator[Entry]:
    """The parameters of a maui.cfg."""
    for number, line in enumerate(text.splitlines(), 1):
        said = line.partition("#")[0].strip()
        if not said:
            continue
        found = _LINE.fullmatch(said)
        if found is None:
            done.note(Verdict.DIFFERS, number, said[:40], "not understood, passed over")
        else:
            yield Entry(number, found[1].upper(), (found[2] or "").strip(), found[3].strip())
