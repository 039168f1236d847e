"""What would follow, in words: of a policy, or of holding a node or queue."""

from schedd.cli.user.text import few, moment, table
from schedd.client.answers import PreviewView

__all__ = ["foreseen"]

_NAMED = 10


def foreseen(found: PreviewView, now: int) -> str:
    """A sentence, alerts, and the first jobs that would move."""
    jobs, broken = _count(found["moves"], "waiting job"), _count(found["broken"], "promise")
    parts = [f"{jobs} would move, {broken} would be put at risk"]
    if found["running"]:
        parts.append(f"running jobs go on there: {few([one['job'] for one in found['running']], 5)}")
    parts += found["alerts"]
    if found["moved"]:
        lines = [
            (
                one["job"],
                one["owner"].partition("@")[0],
                _at(one["before"], now),
                _at(one["after"], now),
                "at risk" if one["broken"] else "",
            )
            for one in found["moved"][:_NAMED]
        ]
        parts.append("\n" + table(("JOB", "USER", "FROM", "TO", "PROMISE"), lines))
        if found["moves"] > _NAMED:
            parts.append(f"and {found['moves'] - _NAMED} more")
    return "\n".join(parts)


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def _at(start: int | None, now: int) -> str:
    return moment(start, now) if start is not None else "not known"
