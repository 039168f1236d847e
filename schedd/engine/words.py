"""What the engine says of a job, in one line."""

from collections.abc import Sequence
from datetime import UTC, datetime

from schedd.engine.records import JobRecord, Phase
from schedd.model import Never, WaitingFor

__all__ = ["remarks", "why"]


def remarks(record: JobRecord) -> list[str]:
    """What the plan makes of the job's request that its owner should know, and on what its start depends."""
    understood = record.understood
    found: list[str] = []
    if record.behind and record.phase is Phase.WAITING and record.answer is None:
        found.append("if " + " and ".join(f"{link.kind}:{link.job}" for link in record.behind))
    if understood.request is not None:
        found += understood.request.notes
    if understood.assumed and understood.request is not None:
        found.append(f"walltime assumed to be {understood.walltime} s")
    return found


def why(record: JobRecord, start: int, limits: Sequence[str] = (), sets: Sequence[str] = ()) -> str:
    """When the job starts, or what it waits for, or why it never can.

    ``limits`` are those that leave it no room before its planned ``start``, ``sets`` the sets of nodes that
    it is on.
    """
    tail = "".join(f"; {remark}" for remark in remarks(record))
    if len(sets) > 1:
        tail += f"; on {len(sets)} sets of nodes ({', '.join(sets)}), since one alone has no room in time"
    if record.phase is Phase.RUNNING:
        return "it runs" + tail
    if record.phase is Phase.DISPATCHED:
        return "it is being started" + tail
    if isinstance(record.answer, Never):
        return f"never on this cluster: {record.answer.requirement}" + tail
    if isinstance(record.answer, WaitingFor):
        return f"waiting for {record.answer.what}" + tail
    if record.refusal and record.until > 0:
        tail = f"; its last start was refused by {record.refusal}" + tail
    if start >= 0:
        tail = "".join(f"; not sooner, since {limit}" for limit in limits) + tail
        return f"planned start {datetime.fromtimestamp(start, UTC):%Y-%m-%d %H:%M:%S} UTC" + tail
    return "in the queue" + tail
