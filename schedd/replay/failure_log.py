"""Reader of node outages: files of ``--failures``.

A line is either ``BEGIN END NODE`` or, as published with the Alea simulator, between tabs ``BEGIN CLUSTER
DURATION NUMBERS``, where the numbers count the cluster's nodes from 0; without them the whole cluster fails.
Times are seconds of the log or dates in UTC.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from schedd.replay.failures import Outage
from schedd.replay.prepared import Prepared
from schedd.replay.text_lines import read_lines
from schedd.replay.workload import TIME_LIMIT, TraceError
from schedd.wire import NodeFacts

_HEADER: Final = re.compile(r"[;#]\s*UnixStartTime:\s*(\d{1,12})\s*$")
_SECONDS: Final = re.compile(r"-?\d{1,12}")


@dataclass(frozen=True, slots=True)
class _Clock:
    """Converts times of the file to seconds of the log."""

    log_start: int | None  # epoch second of the log's time 0
    file_start: int | None  # epoch second of the file's time 0; None: the file has times of the log

    def read(self, text: str) -> int:
        """Return a time in the log's seconds. Raises ValueError."""
        if _SECONDS.fullmatch(text):
            time = int(text)
            if self.file_start is not None:
                time += self.file_start - self._known_start()
        else:
            try:
                date = datetime.fromisoformat(text)
            except ValueError:
                raise ValueError(f"{text!r} is neither a number of seconds nor a date") from None
            date = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
            time = int(date.timestamp()) - self._known_start()
        if abs(time) > TIME_LIMIT:
            raise ValueError(f"{text!r} is too far from any log")
        return time

    def _known_start(self) -> int:
        if self.log_start is None:
            raise ValueError(
                "the log's header has no UnixStartTime: give seconds of the log instead of dates"
            )
        return self.log_start


def read_outages(path: Path, prepared: Prepared) -> tuple[Outage, ...]:
    """Return the outages in the file `path` of the nodes of ``prepared``, during its jobs.

    Overlapping outages of a node are one; those that end before the first submission are left out, and one
    under way then begins with it. Raises TraceError with the line.
    """
    names = {node.name: i for i, node in enumerate(prepared.site.nodes)}
    clusters = _clusters(prepared.site.nodes)
    first = prepared.jobs[0].submit
    clock = _Clock(prepared.unix_start_time, None)
    found: dict[int, list[tuple[int, int]]] = {}
    for number, line in enumerate(read_lines(path), 1):
        text = line.strip()
        if text.startswith((";", "#")) or not text:
            if header := _HEADER.match(text):
                clock = _Clock(prepared.unix_start_time, int(header[1]))
            continue
        try:
            begin, end, nodes = _read_line(line.rstrip("\r\n"), clock, names, clusters)
        except ValueError as error:
            raise TraceError(f"{path}, line {number}: {error}") from None
        if end > first:
            for node in nodes:
                found.setdefault(node, []).append((max(begin, first), end))
    return tuple(sorted(one for node, spans in found.items() for one in _merge(node, spans)))


def _read_line(
    line: str, clock: _Clock, names: Mapping[str, int], clusters: Mapping[str, Sequence[int]]
) -> tuple[int, int, Sequence[int]]:
    """Return begin, end and nodes. Raises ValueError."""
    fields = line.split("\t") if "\t" in line else line.split()
    fields = [field.strip() for field in fields if field.strip()]
    if len(fields) == 3 and fields[2] in names:
        begin, end = clock.read(fields[0]), clock.read(fields[1])
        if end <= begin:
            raise ValueError(f"an outage from {fields[0]} to {fields[1]} does not end after its begin")
        return begin, end, (names[fields[2]],)
    if len(fields) in (3, 4) and fields[1] in clusters:
        begin, duration = clock.read(fields[0]), _parse_integer(fields[2])
        if duration < 1:
            raise ValueError(f"an outage of {duration} s: must be at least 1 s")
        own = clusters[fields[1]]
        numbers = (
            [_parse_integer(word) for word in fields[3].split()] if len(fields) == 4 else range(len(own))
        )
        if wrong := [i for i in numbers if i >= len(own)]:
            raise ValueError(
                f"cluster {fields[1]} has {len(own)} nodes, numbered from 0; there is no {wrong[0]}"
            )
        return begin, begin + duration, [own[i] for i in numbers]
    if len(fields) not in (3, 4):
        raise ValueError(
            f"{len(fields)} fields: BEGIN END NODE, or between tabs BEGIN CLUSTER DURATION NUMBERS"
        )
    known = [*list(names)[:3], "…"] if len(names) > 3 else list(names)
    raise ValueError(
        f"{fields[2] if len(fields) == 3 else fields[1]!r} is not a node or cluster of the machine, which "
        f"has {', '.join(known)}"
    )


def _clusters(nodes: Sequence[NodeFacts]) -> dict[str, list[int]]:
    """Return the nodes of each cluster of a machine file, in order: its name is their first property."""
    found: dict[str, list[int]] = {}
    for i, node in enumerate(nodes):
        if node.properties:
            found.setdefault(node.properties[0], []).append(i)
    return found


def _parse_integer(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def _merge(node: int, spans: list[tuple[int, int]]) -> Iterator[Outage]:
    """Yield outages that neither overlap nor touch."""
    spans.sort()
    begin, end = spans[0]
    for after, until in spans[1:]:
        if after <= end:
            end = max(end, until)
        else:
            yield Outage(begin, end, node)
            begin, end = after, until
    yield Outage(begin, end, node)
