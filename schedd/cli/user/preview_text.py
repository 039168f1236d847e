"""What would follow, in words: of a policy, or of holding a node or queue."""

from schedd.cli.user.formatting import format_table, format_time
from schedd.client.answers import PreviewView
from schedd.name_list import shorten_list

_MAX_JOBS_SHOWN = 10
_MAX_OWNERS_SHOWN = 20
_PREEMPTED = {"requeue": "preempted", "suspend": "suspended", "checkpoint": "checkpointed"}


def format_preview(found: PreviewView, now: int) -> str:
    """A sentence, alerts, and the first jobs that would move."""
    jobs, broken = _count(found.moves, "waiting job"), _count(found.broken, "promise")
    parts = [f"{jobs} would move, {broken} would be put at risk"]
    if found.owners_at_risk:
        owners = [f"{one.owner.partition('@')[0]} ({one.promises})" for one in found.owners_at_risk]
        parts.append(f"promises at risk of: {shorten_list(owners, _MAX_OWNERS_SHOWN)}")
    if found.running:
        parts.append(f"jobs that keep running there: {shorten_list([one.job for one in found.running], 5)}")
    for one in found.preempted[:_MAX_JOBS_SHOWN]:
        lost = f"{one.lost:,} core-seconds of work lost"
        verb = _PREEMPTED[one.method]
        parts.append(f"running job {one.job} would be {verb} for job {one.preemptor}: {lost}")
    if len(found.preempted) > _MAX_JOBS_SHOWN:
        parts.append(f"and {len(found.preempted) - _MAX_JOBS_SHOWN} more would be preempted")
    parts += found.alerts
    if found.moved:
        lines = [
            (
                one.job,
                one.owner.partition("@")[0],
                _format_start(one.before, now),
                _format_start(one.after, now),
                "at risk" if one.broken else "",
            )
            for one in found.moved[:_MAX_JOBS_SHOWN]
        ]
        parts.append("\n" + format_table(("JOB", "USER", "FROM", "TO", "PROMISE"), lines))
        if found.moves > _MAX_JOBS_SHOWN:
            parts.append(f"and {found.moves - _MAX_JOBS_SHOWN} more")
    return "\n".join(parts)


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def _format_start(start: int | None, now: int) -> str:
    return format_time(start, now) if start is not None else "not known"
