"""Vnodes that the server holds for an ended job: `job-exclusive` without a running job.

Seen on a real 23.06.06: such a vnode still lists the job, and pbs_sched skips it. If it were planned as free,
every start on it would be refused.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from server_adapter.batch.status_objects import DescribedObject
from server_adapter.servers.openpbs.facts import is_exclusive, shares

_log = logging.getLogger(__name__)

_HOLDING: Final = frozenset({"R", "E"})
_NAMED: Final = 5
_LONG: Final = 60.0  # seconds; it occurs for a moment at each end of a job


class StuckVnodes:
    """Detects stuck vnodes over several readings, by `clock`, and logs new ones."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._said: frozenset[str] = frozenset()

    @property
    def trouble(self) -> str:
        """The stuck vnodes of the last reading, in words; empty without any."""
        return _describe(self._said) if self._said else ""

    def without(
        self, vnodes: list[DescribedObject], jobs: Iterable[DescribedObject]
    ) -> list[DescribedObject]:
        """Return the vnodes, with stuck ones marked as offline."""
        exclusive = {vnode.name for vnode in vnodes if is_exclusive(vnode.values)}
        alone = exclusive - _held(jobs) if exclusive else exclusive
        now = self._clock()
        self._since = {name: self._since.get(name, now) for name in alone}
        stuck = frozenset(name for name, since in self._since.items() if now - since >= _LONG)
        if stuck - self._said:
            _log.warning("%s", _describe(stuck))
        self._said = stuck
        return [_offline(vnode) if vnode.name in stuck else vnode for vnode in vnodes] if stuck else vnodes


def _describe(stuck: Iterable[str]) -> str:
    names = sorted(stuck)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"{', '.join(names[:_NAMED])}{more}: job-exclusive, though no job that runs has it, so nothing is "
        "planned there; `pbsnodes -v` shows the job that the server still counts; a restart of pbs_server "
        "frees it"
    )


def _held(jobs: Iterable[DescribedObject]) -> set[str]:
    return {
        share.node
        for job in jobs
        if job.values.get("job_state") in _HOLDING
        for share in shares(job.values.get("exec_vnode", ""))
    }


def _offline(vnode: DescribedObject) -> DescribedObject:
    return DescribedObject(vnode.object_type, vnode.name, {**vnode.values, "state": "offline"})
