"""Rules for notices: moved and near starts, lost deadlines, tighter and altered walltimes. Pure functions."""

from dataclasses import dataclass, replace
from typing import Final, Literal

from schedd.deadline_sentence import DeadlineFacts
from schedd.dialect.deadline import read_deadline, read_required_probability
from schedd.engine import JobRecord
from schedd.policy.priority import latest_start
from schedd.service.questions.tighter_walltimes import TighterWalltime
from schedd.start_sentence import StartFacts
from schedd.store.records import LastNotice, NoticeSubscription

NoticeKind = Literal["moved", "soon", "lost", "tighter", "walltime"]
_NOT_YET: Final = -1


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice about a job. Times are seconds since the epoch, -1 if unknown."""

    subscription: NoticeSubscription
    job: str
    kind: NoticeKind
    start: int
    before: int = -1  # for `moved`: the start in the last notice
    deadline: int = -1  # for `lost`: the deadline
    end: int = -1  # for `lost`: the planned end; for `walltime`: the end by the new one
    at_risk: bool = False  # for `lost`: the deadline is accepted, and can still be kept
    facts: StartFacts | None = None  # the job's start at that time, for the sentence about it
    forecast: DeadlineFacts | None = None
    """For `lost`: the forecast of a deadline with a probability, which is below that probability now."""
    gain: TighterWalltime | None = None
    """For `tighter`: the walltime that would start the job sooner."""
    walltime: int = -1
    """For `walltime`: the new walltime of the run, in seconds."""
    former_walltime: int = -1
    """For `walltime`: the former walltime of the run, in seconds."""


def lost_deadline(record: JobRecord, now: int) -> int:
    """Return the deadline that a queued job can no longer meet, even if it started ``now``; -1: none.

    A deadline with a probability is met by jobs that end before their walltime; it is lost when it passes.
    """
    deadline = read_deadline(record.facts.resources, record.facts.submitted)
    if deadline is not None and read_required_probability(record.facts.resources) is not None:
        return deadline if now > deadline else _NOT_YET
    if deadline is None or latest_start(deadline, record.understood.walltime) >= now:
        return _NOT_YET
    return deadline


def decide_notice(
    wish: NoticeSubscription,
    last: LastNotice | None,
    job: str,
    displayed: int,
    now: int,
    *,
    likely: int = -1,
    lost: int = -1,
    at_risk: bool = False,
    walltime: int = 0,
    gain: TighterWalltime | None = None,
) -> tuple[LastNotice, Notice | None]:
    """Return the new state of the job's notices, and the notice to send now, if any.

    ``displayed`` is the displayed start, ``likely`` the likely one, ``lost`` the lost deadline (-1: none), or
    the accepted one that is only ``at_risk``; ``walltime`` is in seconds. The first displayed start causes no
    notice. A lost deadline has priority, also after a notice that it was at risk. A reminder is due before
    the earlier of both starts, and also reports a moved start. A tighter walltime (``gain``) is proposed
    once.
    """
    known = last if last is not None else LastNotice(displayed)
    start, soon = known.start, known.soon
    if not wish.on_lost_deadline:
        lost = _NOT_YET
    reported = -lost if at_risk and lost > 0 else lost
    if lost >= 0 and (last is None or last.lost != reported):
        end = displayed + walltime if displayed >= 0 else _NOT_YET
        mark = replace(known, start=displayed, lost=reported)
        return mark, Notice(wish, job, "lost", displayed, deadline=lost, end=end, at_risk=at_risk)
    known = replace(known, lost=reported)
    ahead = wish.lead_s if wish.lead_s is not None else -1
    nearest = displayed if likely < 0 else min(displayed, max(now, likely))
    if now < displayed and nearest <= now + ahead and (soon < 0 or nearest > soon + ahead):
        return replace(known, start=displayed, soon=nearest), Notice(wish, job, "soon", displayed)
    if wish.min_move_s is not None and (
        (displayed < 0) != (start < 0) or abs(displayed - start) > wish.min_move_s
    ):
        return replace(known, start=displayed), Notice(wish, job, "moved", displayed, start)
    if gain is not None and known.tighter < 0 and wish.on_tighter_walltime:
        mark = replace(known, tighter=gain.enough)
        return mark, Notice(wish, job, "tighter", displayed, gain=gain)
    return known, None


def decide_run_notice(
    wish: NoticeSubscription, last: LastNotice | None, record: JobRecord, now: int
) -> tuple[LastNotice, Notice | None]:
    """Return the new state of a running job's notices, and the notice, if any, that its walltime was altered
    since the last call, as by an extension. Every subscription includes this notice.
    """
    known = last if last is not None else LastNotice(record.run.started)
    walltime, former = record.understood.requested_walltime or _NOT_YET, known.walltime
    mark = replace(known, walltime=walltime)
    if _NOT_YET in (walltime, former) or walltime == former:
        return mark, None
    end = record.run_end(now)
    found = Notice(
        wish, record.id, "walltime", record.run.started, end=end, walltime=walltime, former_walltime=former
    )
    return mark, found
