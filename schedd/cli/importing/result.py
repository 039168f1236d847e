"""What an import of another scheduler's configuration comes to: settings, and what could not be kept."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from math import isfinite
from textwrap import wrap
from typing import Any

NO_TRIGGER = "no program is run: see webhooks and alerts in docs/administrators/operate.md"
LOAD_NOTE = "what jobs asked for counts, not the load of nodes"
NODE_CHOICE_NOTE = (
    "of the nodes that allow the earliest start those are taken that node_choice prefers "
    "(docs/administrators/partitions.md)"
)


class Verdict(StrEnum):
    """The result for a setting, in the order of the report."""

    BLOCKER = "blocker"
    """Not supported, and jobs would run that should not, or others would wait that should not."""
    DIFFERS = "different"
    """Approximate, or left out with little effect; the text names the change and its users."""
    TRANSLATED = "translated"
    NO_MATTER = "no matter"  # the planner does this anyway, or has no use for it


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
    example: str = ""  # what the line says, where equal findings say different things: a name or a pattern


@dataclass(slots=True)
class ImportResult:
    """Settings of a cluster as in schedd.toml, and the findings in the order of the file."""

    cluster: dict[str, Any] = field(default_factory=dict)
    site: dict[str, Any] = field(default_factory=dict)
    findings: list[ImportFinding] = field(default_factory=list)
    unknown: Verdict = Verdict.DIFFERS
    """What a setting is that no documentation has: the old scheduler passes over it, too, or it may not."""
    ends: dict[int, int] = field(default_factory=dict)
    """Of lines of the file that are continued, by the first: the last."""
    preempts: bool | None = None  # preemptive_sched of a sched_config; None: no file has been read
    express_priority: int | None = None  # its preempt_queue_prio

    def note(
        self, verdict: Verdict, line: int, setting: str, message: str, file: str = "", example: str = ""
    ) -> None:
        """Add a finding about a setting."""
        self.findings.append(ImportFinding(verdict, line, setting, message, file, example))

    def strange(self, line: int, setting: str, whose: str) -> None:
        """Add a finding about an undocumented setting."""
        if self.unknown is Verdict.BLOCKER:
            message = f"not known to this import: look up what {whose} does with it"
        else:
            message = f"{whose} has no such setting in its documentation, and passes over it, too"
        self.note(self.unknown, line, setting, message)

    def table(self, name: str) -> dict[str, Any]:
        """A table of the site's policy, made when it is first asked for."""
        found: dict[str, Any] = self.site.setdefault(name, {})
        return found

    def limit(self, **what: Any) -> None:
        """Add a limit of the site."""
        self.site.setdefault("limits", []).append(what)

    def with_verdict(self, verdict: Verdict) -> list[ImportFinding]:
        """The findings of one kind."""
        return [finding for finding in self.findings if finding.verdict is verdict]

    def lines(self, verdict: Verdict) -> Iterator[tuple[str, str, str]]:
        """Location, setting and text of the findings with a verdict; equal findings are combined."""
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
        """The findings as lines of at most ``width`` characters, blockers first; equal ones count once."""
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
        """The settings as a part of schedd.toml."""
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
_RANGES = 4  # ranges of lines of one finding that are listed; of more only the last line
_NAMED_AT = 5  # parts of the path of an entry with a name: clusters.main.site.TABLE.NAME
_INLINE = frozenset({"queues", "shares", "speeds"})

_HEADS = {
    Verdict.BLOCKER: "Blockers: unsupported, and significant for users",
    Verdict.DIFFERS: "Different",
    Verdict.TRANSLATED: "Translated",
    Verdict.NO_MATTER: "No matter",
}


def logical_lines(text: str, comments: str = "#") -> Iterator[tuple[int, int, str]]:
    """First and last number, and text, of each line that is neither empty nor a comment.

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
    """A finite number. Raises ValueError."""
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is no number")
    return value


def duration(text: str) -> int:
    """Seconds of ``[[[DD:]HH:]MM:]SS``. Raises ValueError."""
    parts = [int(part) for part in text.strip().split(":")]
    if not 1 <= len(parts) <= 4 or min(parts) < 0:
        raise ValueError(f"{text} is no duration such as 24:00:00")
    return sum(part * unit for part, unit in zip(reversed(parts), (1, 60, 3600, 86_400), strict=False))


def to_toml(path: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[str]:
    """Lines of TOML for a table below ``path``: its values, then its tables. Empty ones are left out, but not
    entries with a name, such as a QOS without a priority.
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
    """``NODECFG[n1] MAXJOB`` as ``NODECFG[…] MAXJOB``."""
    before, bracket, after = setting.partition("[")
    return f"{before}[…]{after.partition(']')[2]}" if bracket else setting


def _is_table(key: str, value: Any) -> bool:
    """Whether it has a heading of its own; tables from names to numbers are written in one line."""
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
