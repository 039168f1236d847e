"""JSON of large messages in small pieces, since a coder holds the interpreter lock."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from pydantic import TypeAdapter

from schedd.wire.adapter_events import Snapshot
from schedd.wire.facts import JobFacts

_PIECE: Final = 100  # jobs in one piece: about a millisecond of work
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_VALUE: Final = json.JSONDecoder()
_SNAPSHOT: Final = TypeAdapter(Snapshot)
_JOBS: Final = TypeAdapter(list[JobFacts])


class JsonReader:
    """Single pass over a JSON text.

    ``members`` and ``elements`` stop at each value, which must be read before the next step, by ``value`` or
    by a nested iteration. All methods raise ValueError for invalid JSON or a value of another kind.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def next(self) -> str:
        """Return the next character after white space; empty at the end."""
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()
        return self._text[self._at : self._at + 1]

    def value(self) -> Any:
        self.next()
        value, self._at = _VALUE.raw_decode(self._text, self._at)
        return value

    def members(self) -> Iterator[str]:
        """Yield the member names of the next object."""
        for _ in self._parts("{", "}"):
            name = self.value()
            if not isinstance(name, str):
                raise ValueError(f"a name is missing before character {self._at}")
            self._expect(":")
            yield name

    def elements(self) -> Iterator[None]:
        """Yield once for each element of the next array."""
        return self._parts("[", "]")

    def end(self) -> None:
        """Check that the text ends here."""
        if self.next():
            raise ValueError(f"nothing should follow at character {self._at}")

    def _parts(self, opening: str, closing: str) -> Iterator[None]:
        self._expect(opening)
        if self.next() == closing:
            self._expect(closing)
            return
        more = ","
        while more == ",":
            yield
            more = self._expect("," + closing)

    def _expect(self, those: str) -> str:
        found = self.next()
        if not found or found not in those:
            raise ValueError(f"one of {those!r} is missing at character {self._at}")
        self._at += 1
        return found


def read_jobs(reader: JsonReader) -> Iterator[JobFacts]:
    """Yield the jobs of the next array. Raises ValueError."""
    values = (reader.value() for _ in reader.elements())
    while some := list(islice(values, _PIECE)):
        yield from _JOBS.validate_python(some)


def read_snapshot(text: str) -> Snapshot:
    """Return the snapshot in ``text``. Raises ValueError."""
    reader = JsonReader(text)
    jobs: tuple[JobFacts, ...] = ()
    rest: dict[str, Any] = {"jobs": ()}
    for name in reader.members():
        if name == "jobs":
            jobs = tuple(read_jobs(reader))
        else:
            rest[name] = reader.value()
    reader.end()
    return replace(_SNAPSHOT.validate_python(rest), jobs=jobs)


def dump_snapshot(snapshot: Snapshot) -> Iterator[bytes]:
    """Yield the snapshot as JSON in pieces."""
    head = _SNAPSHOT.dump_json(replace(snapshot, jobs=()))
    before, middle, after = head.partition(b'"jobs":[]')
    assert middle, "an empty tuple is []"
    yield before + b'"jobs":['
    for first in range(0, len(snapshot.jobs), _PIECE):
        some = _JOBS.dump_json(list(snapshot.jobs[first : first + _PIECE]))[1:-1]
        yield b"," + some if first else some
    yield b"]" + after
