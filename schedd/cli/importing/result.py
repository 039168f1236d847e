"""What an import of another scheduler's configuration comes to: settings, and what could not be kept."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

__all__ = ["Finding", "Imported", "Verdict", "duration", "to_toml"]


class Verdict(StrEnum):
    """What became of a setting; in the order in which a reader should see them."""

    BLOCKER = "blocker"
    """Not supported, and jobs would run that should not, or others would wait that should not."""
    DIFFERS = "differs"
    """Translated to something near, or left out with little effect; the words say what is other."""
    TRANSLATED = "translated"
    NOT_NEEDED = "not needed"
    """The planner does this anyway, or has no use for it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One setting of the file: where it stands, and what became of it."""

    verdict: Verdict
    line: int
    setting: str
    words: str


@dataclass(slots=True)
class Imported:
    """Settings of a cluster as they stand in schedd.toml, and the findings in the order of the file."""

    cluster: dict[str, Any] = field(default_factory=dict)
    site: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def note(self, verdict: Verdict, line: int, setting: str, words: str) -> None:
        """Remember what became of a setting."""
        self.findings.append(Finding(verdict, line, setting, words))

    def table(self, name: str) -> dict[str, Any]:
        """A table of the site's policy, made when it is first asked for."""
        found: dict[str, Any] = self.site.setdefault(name, {})
        return found

    def limit(self, **what: Any) -> None:
        """Add a limit of the site."""
        self.site.setdefault("limits", []).append(what)

    def of(self, verdict: Verdict) -> list[Finding]:
        """The findings of one kind."""
        return [finding for finding in self.findings if finding.verdict is verdict]

    def report(self) -> Iterator[str]:
        """The findings as lines, blockers first."""
        width = max((len(finding.setting) for finding in self.findings), default=0)
        for verdict in Verdict:
            found = self.of(verdict)
            if found:
                yield f"{_HEADS[verdict]} ({len(found)}):"
            for finding in found:
                where = f"line {finding.line}" if finding.line else "file"
                yield f"  {where:>9}  {finding.setting:{min(width, 40)}}  {finding.words}".rstrip()

    def toml(self, cluster: str) -> str:
        """The settings as a part of schedd.toml."""
        lines = list(to_toml(("clusters", cluster), {**self.cluster, "site": self.site}))
        return "\n".join(lines).strip() + "\n" if lines else ""


_INLINE = frozenset({"queues", "shares"})

_HEADS = {
    Verdict.BLOCKER: "Blockers: not supported, and it matters who runs",
    Verdict.DIFFERS: "Different",
    Verdict.TRANSLATED: "Translated",
    Verdict.NOT_NEEDED: "Not needed",
}


def duration(text: str) -> int:
    """Seconds of ``[[[DD:]HH:]MM:]SS``. Raises ValueError."""
    parts = [int(part) for part in text.strip().split(":")]
    if not 1 <= len(parts) <= 4 or min(parts) < 0:
        raise ValueError(f"{text} is no duration such as 24:00:00")
    return sum(part * unit for part, unit in zip(reversed(parts), (1, 60, 3600, 86_400), strict=False))


def to_toml(path: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[str]:
    """Lines of TOML for a table below ``path``: its values, then its tables. Empty ones are left out."""
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
