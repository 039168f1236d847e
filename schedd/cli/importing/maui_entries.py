"""The lines of a maui.cfg or moab.cfg."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from schedd.cli.importing.result import NOT_UNDERSTOOD, ImportResult, Verdict, logical_lines

_LINE = re.compile(r"([A-Za-z][\w.]*)(?:\[([^\]]*)\])?(?:\s+(.*))?")
_ATTRIBUTE = re.compile(r"([A-Za-z][\w.]*)(?:\[([^\]]*)\])?(?:\+?=|:)(\"[^\"]*\"|'[^']*'|\S*)")
OWNERS = {"USERCFG": "user", "GROUPCFG": "group", "ACCOUNTCFG": "account"}
FOR_ALL = frozenset({"", "DEFAULT", "ALL", "BASE"})  # indices of entries about all partitions, users or QOS


@dataclass(frozen=True, slots=True)
class MauiEntry:
    """One parameter: ``NAME[INDEX] VALUE``."""

    line: int
    name: str
    index: str
    value: str

    @property
    def setting(self) -> str:
        """The name with the index, as in the file."""
        return f"{self.name}[{self.index}]" if self.index else self.name

    @property
    def value_parts(self) -> list[str]:
        return self.value.replace(",", " ").split()

    def attributes(self) -> Iterator[tuple[str, str, str]]:
        """Return name, index and value of each ``ATTR[INDEX]=VALUE``; the value may be empty. Attributes and
        indices are in upper case, except the name in an index such as ``USER:ann``.
        """
        for found in _ATTRIBUTE.finditer(self.value):
            kind, colon, name = (found[2] or "").partition(":")
            yield found[1].upper(), f"{kind.upper()}{colon}{name}", found[3].strip("\"'")

    @property
    def rest(self) -> str:
        """The parts of the value that are not attributes."""
        return _ATTRIBUTE.sub("", self.value).strip()


def parse_entries(text: str, done: ImportResult) -> Iterator[MauiEntry]:
    """Yield the parameters of the file."""
    for number, last, line in logical_lines(text):
        if last > number:
            done.ends[number] = last
        said = line.partition("#")[0].strip()
        found = _LINE.fullmatch(said)
        if found is None:
            done.note(
                Verdict.BLOCKER,
                number,
                said[:40],
                NOT_UNDERSTOOD,
            )
        else:
            yield MauiEntry(number, found[1].upper(), (found[2] or "").strip(), (found[3] or "").strip())
