"""Of what somebody is to be told: a start that moved or comes soon, a deadline that is lost. Pure; nothing is
kept here.
"""

from dataclasses import dataclass
from typing import Final, Literal

from schedd.dialect.deadline import read_deadline
from schedd.engine.facts.records import JobRecord
from schedd.policy.priority import latest_start
from schedd.store.records import LastNotice, NoticeSubscription

__all__ = ["Notice", "NoticeKind", "decide_notice", "lost_deadline"]

NoticeKind = Literal["moved", "soon", "lost"]
_NOT_YET: Final = -1


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that somebody is told of a job. Times are seconds since the epoch, -1 where none is known."""

    subscription: NoticeSubscription
    job: str
    kind: NoticeKind
    start: int
    before: int = -1
    """Of one that moved: what was told before."""
    deadline: int = -1
    """Of one that is lost: which it is."""
    end: int = -1
    """Of one that is lost: the planned end."""


def lost_deadline(record: JobRecord, now: int) -> int:
    """The deadline that a waiting job cannot meet any more though it started ``now``; -1: there is none."""
    deadline = read_deadline(record.facts.resources, record.facts.submitted)
    if deadline is None or latest_start(deadline, record.understood.walltime) >= now:
        return _NOT_YET
    return deadline


def decide_notice(
    wish: NoticeSubscription,
    last: LastNotice | None,
    job: str,
    told: int,
    now: int,
    *,
    lost: int = -1,
    walltime: int = 0,
) -> tuple[LastNotice, Notice | None]:
    """What is told of a job by then, and what is to be told now, if anything.

    ``told`` is the start that people are shown, -1 where none is; ``lost`` the deadline that is lost, -1
    where none is; ``walltime`` is in seconds. At first sight a start that moved is no news. That a deadline
    is lost is told first, with the start as it is then; that a start comes soon says also that it moved.
    """
    start, soon = (last.start, last.soon) if last is not None else (told, _NOT_YET)
    if not wish.on_lost_deadline:
        lost = _NOT_YET
    elif lost >= 0 and (last is None or last.lost != lost):
        end = told + walltime if told >= 0 else _NOT_YET
        return LastNotice(told, soon, lost), Notice(wish, job, "lost", told, deadline=lost, end=end)
    ahead = wish.lead_s
    if ahead is not None and now < told <= now + ahead and (soon < 0 or told > soon + ahead):
        return LastNotice(told, told, lost), Notice(wish, job, "soon", told)
    if wish.min_move_s is not None and ((told < 0) != (start < 0) or abs(told - start) > wish.min_move_s):
        return LastNotice(told, soon, lost), Notice(wish, job, "moved", told, start)
    return LastNotice(start, soon, lost), None
