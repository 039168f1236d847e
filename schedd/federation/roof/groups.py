"""Groups of a federation at work: taken, looked at, taken back."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from schedd.federation.events import Event
from schedd.federation.groups.events import CopyRefused, GroupCancelled, GroupEvent, GroupSubmitted
from schedd.federation.groups.group import Group, Groups
from schedd.federation.groups.steps import GroupRules, Looks, copies_seen, decide
from schedd.federation.roof.record import Record
from schedd.federation.roof.turns import Turns
from schedd.federation.routing.jobs import ImpossibleError

__all__ = ["RoofOfGroups"]

_log = structlog.get_logger(__name__)
_STEPS: Final = 4
"""So often it is looked at once what follows from what was decided."""


class RoofOfGroups:
    """All groups. Thread-safe. ``take`` keeps events with a turn held, and does what follows."""

    def __init__(
        self,
        rules: GroupRules,
        record: Record,
        turns: Turns,
        take: Callable[[Sequence[Event]], Sequence[Event]],
        now: Callable[[], int],
    ) -> None:
        self.rules = rules
        self._record = record
        self._turns = turns
        self._take = take
        self._now = now
        self.notes: dict[str, str] = {}
        """Why no start was found for groups that have none."""
        self.holes = {"asked": 0, "found": 0}
        """Since this daemon leads: how often plans were asked whether a waiting group could end earlier, and
        how often it could. Local jobs have their choice of each hole first."""

    @property
    def bell(self) -> threading.Event:
        """Rung when a group, or what is seen of a cluster, has changed."""
        return self._record.group_bell

    @property
    def _groups(self) -> Groups:
        return self._record.groups

    def submit(
        self, owner: str, parts: tuple[Mapping[str, Any], ...], options: Mapping[str, Any], key: str = ""
    ) -> Group:
        """Takes a group; with a ``key`` that was used before, it is that group. Raises StoreError."""
        with self._turns.request():
            known = self._groups.by_key.get((owner, key)) if key else None
            if known is not None:
                return self._groups[known]
            event = GroupSubmitted(
                job=str(self._record.number + 1),
                time=self._now(),
                owner=owner,
                parts=parts,
                options=options,
                key=key,
            )
            self._take([event])
            return self._groups[event.job]

    def cancel(self, group: str, by: str) -> Group:
        """Its owner does not want it any more. Raises StoreError and KeyError."""
        with self._turns.request():
            if not self._groups[group].over and not self._groups[group].cancelled:
                self._take([GroupCancelled(job=group, time=self._now(), by=by)])
            return self._groups[group]

    def tend(self, name: str, looks: Mapping[str, Looks]) -> Group:
        """What is seen becomes events, and what follows is decided; the group then. Raises StoreError."""
        with self._turns.request():
            now = self._now()
            self._take(copies_seen(self._groups[name], self.rules, looks, now))
            for _ in range(_STEPS):
                events = decide(self._groups[name], self.rules, looks, now)
                if not self._take(events):
                    break
            return self._groups[name]

    def take(self, events: Sequence[GroupEvent]) -> None:
        """What came of a request; what does not fit any more is dropped. Raises StoreError."""
        with self._turns.request():
            for event in events:
                try:
                    self._groups.check(event)
                except ImpossibleError as error:
                    _log.info("too late", group=event.job, what=event.type, why=str(error))
                else:
                    self._take([event])

    def refuse_copy(self, group: str, copy: int, text: str) -> None:
        """A cluster's schedd refuses a part's job as it is. Raises StoreError."""
        self.take([CopyRefused(job=group, time=self._now(), copy=copy, text=text)])
