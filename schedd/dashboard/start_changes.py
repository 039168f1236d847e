"""The moves of a job's planned start; consecutive moves with one cause share a row."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from schedd.engine import IMPROVED_BY_SEARCH, Change

_CAUSES: Final[Mapping[str, str]] = {
    "altered": "it was altered",
    "arrived": "it arrived",
    "freed": "capacity was freed",
    "released": "it was released",
    "the plan was improved": IMPROVED_BY_SEARCH,
}
"""Causes with one common text, for moves with different texts of their own."""


@dataclass(frozen=True, slots=True)
class StartChangeGroup:
    """Moves by one cause, one after the other."""

    newest: Change
    oldest: Change
    count: int
    words: str


def group_changes(changes: Iterable[Change]) -> list[StartChangeGroup]:
    """The rows; ``changes`` as in the history, newest first. Moves within the same minute are left out."""
    found = []
    for cause, group in groupby(changes, key=lambda change: change.cause):
        moves = list(group)
        texts = {move.words or cause for move in moves}
        words = texts.pop() if len(texts) == 1 else _CAUSES.get(cause, cause)
        found.append(StartChangeGroup(moves[0], moves[-1], len(moves), words))
    return [one for one in found if _to_minute(one.oldest.before) != _to_minute(one.newest.after)]


def _to_minute(moment: int | None) -> int | None:
    return moment // 60 if moment is not None else None
