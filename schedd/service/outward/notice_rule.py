"""Of what somebody is to be told: a start that moved, or one that comes soon. Pure; nothing is kept here."""

from dataclasses import dataclass
from typing import Final, Literal

from schedd.store.records import Noticed, Wish

__all__ = ["Kind", "Notice", "due"]

Kind = Literal["moved", "soon"]
_NOT_YET: Final = -1


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that somebody is told of a job. Times are seconds since the epoch, -1 where none is known."""

    wish: Wish
    job: str
    kind: Kind
    start: int
    before: int = -1
    """Of one that moved: what was told before."""


def due(wish: Wish, last: Noticed | None, job: str, told: int, now: int) -> tuple[Noticed, Notice | None]:
    """What is told of a job by then, and what is to be told now, if anything.

    ``told`` is the start that people are shown, -1 where none is. At first sight only a start that comes soon
    is news. Where both are due, that it comes soon says it all.
    """
    start, soon = (last.start, last.soon) if last is not None else (told, _NOT_YET)
    ahead = wish.ahead
    if ahead is not None and now < told <= now + ahead and (soon < 0 or told > soon + ahead):
        return Noticed(told, told), Notice(wish, job, "soon", told)
    if wish.moved is not None and ((told < 0) != (start < 0) or abs(told - start) > wish.moved):
        return Noticed(told, soon), Notice(wish, job, "moved", told, start)
    return Noticed(start, soon), None
