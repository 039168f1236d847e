"""Result of importing another scheduler's configuration: settings, and a finding for each line."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from math import isfinite
from textwrap import wrap
from typing import Any, Final

NO_TRIGGER = "schedd runs no program: see webhooks in docs/reference/api.md"
LOAD_NOTE = "the requests of jobs count, not the load of nodes"
NODE_CHOICE_NOTE = (
    "among the nodes that allow the earliest start, node_choice decides (docs/administrators/partitions.md)"
)


NOT_UNDERSTOOD: Final = (
    "this line is not understood, and is ignored: correct it, or set in schedd.toml what it is for"
)


class Verdict(StrEnum):
    """The result for a setting, in the order of the report."""

    BLOCKER = "blocker"
    """Not supported: some jobs would run that should not, or wait that should not."""
    DIFFERS = "different"
    """Approximate, or omitted with little effect; the message names the change and the affected jobs."""
    TRANSLATED = "translated"
    NOT_NEEDED = "not needed"  # the planner does it anyway, or does not need it


@dataclass(frozen=True, slots=True)
class ImportFinding:
    """One setting: its location, and the result.

    ``file`` is empty for the imported file, else the name of a companion file; ``line`` is 0 for something
    not in a file.
    """

    verdict: Verdict
    line: int
    setting: str
    message: str
    file: str = ""
    example: str = ""  # the name or pattern in the line, where equal findings differ only in it


@dataclass(slots=True)
class ImportResult:
    """Settings of a cluster as in schedd.toml, and findings in the order of the file."""

    cluster: dict[str, Any] = field(default_factory=dict)
    site: dict[str, Any] = field(default_factory=dict)
    findings: list[ImportFinding] = field(default_factory=list)
    unknown: Verdict = Verdict.DIFFERS
    """Verdict for an undocumented setting: the old scheduler may obey it (a blocker), or ignores it, too."""
    ends: dict[int, int] = field(default_factory=dict)
    """Last line of each setting that continues over several lines, by its first line."""
    preempts: bool | None = None  # preemptive_sched of a sched_config; None: no such file was read
    express_priority: int | None = None  # preempt_queue_prio of the same file

    def note(
        self, verdict: Verdict, line: int, setting: str, message: str, file: str = "", example: str = ""
    ) -> None:
        """Add a finding about a setting."""
        self.findings.append(ImportFinding(verdict, line, setting, message, file, example))

    def note_undocumented(self, line: int, setting: str, scheduler: str) -> None:
        """Add a finding about a setting that the documentation of ``scheduler`` does not have."""
        if self.unknown is Verdict.BLOCKER:
            message = "not known to this import: look up what Moab does with it"
        else:
            message = f"the documentation of {scheduler} has no such setting, and {scheduler} ignores it, too"
        self.note(self.unknown, line, setting, message)

    def table(self, name: str) -> dict[str, Any]:
        """Return a table of the site's policy; create it if it is missing."""
        found: dict[str, Any] = self.site.setdefault(name, {})
        return found

    def limit(self, **what: Any) -> None:
        """Add a limit of the site."""
        self.site.setdefault("limits", []).append(what)

    def with_verdict(self, verdict: Verdict) -> list[ImportFinding]:
        """Return the findings with a verdict."""
        return [finding for finding in self.findings if finding.verdict is verdict]

    def lines(self, verdict: Verdict) -> Iterator[tuple[str, str, str]]:
        """Yield location, setting and message of the findings with a verdict; equal findings are combined."""
        groups: dict[tuple[str, str, str], list[ImportFinding]] = {}
        for finding in self.with_verdict(verdict):
            kind = _without_index(finding.setting)
            groups.setdefault((finding.file, kind, finding.message), []).append(finding)
        for (file, kind, message), found in groups.items():
            examples = list(dict.fromkeys(one.example for one in found if one.example))
            if examples:
                more = f" and {len(examples) - _EXAMPLES} more" if len(examples) > _EXAMPLES else ""
                message = f"{message} ({', '.join(examples[:_EXAMPLES])}{more})"
            lines = sorted({finding.line for finding in found})
            names = {finding.setting for finding in found}
            if len(names) == 1:
                yield self._format_location(file, lines), found[0].setting, message
            else:
                yield self._format_location(file, lines), f"{kind} ({len(names)} times)", message

    def report(self, width: int = 120) -> Iterator[str]:
        """Yield the findings as lines of at most ``width`` characters, blockers first; equal findings are
        combined.
        """
        for verdict in Verdict:
            rows = list(self.lines(verdict))
            if not rows:
                continue
            yield f"{_HEADS[verdict]} ({len(rows)}):"
            wide = [min(max(len(row[column]) for row in rows), most) for column, most in ((0, 30), (1, 34))]
            for where, setting, message in rows:
                head = f"  {where:>{wide[0]}}  {setting:{wide[1]}}  "
                rest = " " * (sum(wide) + 6)
                if len(head) > len(rest):
                    yield head.rstrip()
                    head = rest = " " * 6
                yield from wrap(
                    message or "-",
                    max(width, len(rest) + 40),
                    initial_indent=head,
                    subsequent_indent=rest,
                    break_on_hyphens=False,
                )

    def toml(self, cluster: str) -> str:
        """Return the settings as a section of schedd.toml."""
        lines = list(to_toml(("clusters", cluster), {**self.cluster, "site": self.site}))
        return "\n".join(lines).strip() + "\n" if lines else ""

    def _format_location(self, file: str, lines: list[int]) -> str:
        """``line 4``, ``lines 4, 9-12``, ``holidays 3``; ``no line`` without a location."""
        ranges: list[list[int]] = []
        for line in lines:
            end = line if file else self.ends.get(line, line)
            if ranges and ranges[-1][1] + 1 == line:
                ranges[-1][1] = end
            else:
                ranges.append([line, end])
        said = ", ".join(
            f"{first}-{last}" if last > first else f"{first}" for first, last in ranges[:_RANGES]
        )
        if len(ranges) > _RANGES:
            said += f", … {ranges[-1][1]}"
        if lines == [0]:
            return file or "no line"
        return f"{file} {said}" if file else f"line{'s' if '-' in said or ',' in said else ''} {said}"


_EXAMPLES = 3
_RANGES = 4  # ranges of lines listed for a finding; if there are more, only the last line follows
_NAMED_AT = 5  # length of the path of a named entry: clusters.main.site.TABLE.NAME
_INLINE = frozenset({"queues", "shares", "speeds"})

_HEADS = {
    Verdict.BLOCKER: "Blockers: not supported, and jobs would run or wait against these rules",
    Verdict.DIFFERS: "Different",
    Verdict.TRANSLATED: "Translated",
    Verdict.NOT_NEEDED: "Not needed",
}


def logical_lines(text: str, comments: str = "#") -> Iterator[tuple[int, int, str]]:
    """Yield first and last number, and text, of each line that is neither empty nor a comment.

    A line that ends in a backslash continues on the next one. Comments begin with one of ``comments``.
    """
    first, parts = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        said = line.strip()
        if not parts and (not said or said[0] in comments):
            continue
        first = first if parts else number
        if said.endswith("\\"):
            parts += said[:-1] + " "
            continue
        yield first, number, (parts + said).strip()
        parts = ""
    if parts.strip():
        yield first, len(text.splitlines()), parts.strip()


def number(text: str) -> float:
    """Return a finite number. Raises ValueError."""
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is not a number")
    return value


def duration(text: str) -> int:
    """Return the seconds of ``[[[DD:]HH:]MM:]SS``. Raises ValueError."""
    parts = [int(part) for part in text.strip().split(":")]
    if not 1 <= len(parts) <= 4 or min(parts) < 0:
        raise ValueError(f"{text} is not a duration such as 24:00:00")
    return sum(part * unit for part, unit in zip(reversed(parts), (1, 60, 3600, 86_400), strict=False))


def to_toml(path: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of TOML for a table below ``path``: its values, then its tables. Empty tables are left
    out, except named entries such as a QOS without a priority.
    """
    if not table and len(path) >= _NAMED_AT:
        yield ""
        yield f"[{_name(path)}]"
    tables = {key: value for key, value in table.items() if _is_table(key, value)}
    plain = {key: value for key, value in table.items() if key not in tables}
    if plain:
        yield ""
        yield f"[{_name(path)}]"
        yield from (f"{_key(key)} = {_value(value)}" for key, value in plain.items())
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from to_toml((*path, key), value)
            continue
        for one in value:
            yield ""
            yield f"[[{_name((*path, key))}]]"
            yield from (f"{_key(name)} = {_value(said)}" for name, said in one.items())


def _without_index(setting: str) -> str:
    """Return ``NODECFG[…] MAXJOB`` for ``NODECFG[n1] MAXJOB``."""
    before, bracket, after = setting.partition("[")
    return f"{before}[…]{after.partition(']')[2]}" if bracket else setting


def _is_table(key: str, value: Any) -> bool:
    """Return whether a value is written below its own heading; tables from names to numbers are written in
    one line.
    """
    if isinstance(value, Mapping):
        return key not in _INLINE
    return isinstance(value, list) and any(isinstance(one, Mapping) for one in value)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(int(value) if float(value).is_integer() else float(value))
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, datetime):
        return value.isoformat()
    return json.dumps(str(value), ensure_ascii=False)


def _name(path: Iterable[str]) -> str:
    return ".".join(map(_key, path))


def _key(name: str) -> str:
    bare = name and all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
    return name if bare else json.dumps(name, ensure_ascii=False)
