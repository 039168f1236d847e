"""Walltimes that were set for a run: a job that did not start gets its own one back."""

import logging
from collections.abc import Awaitable, Callable

from server_adapter.batch.errors import ServerRefusedError

_log = logging.getLogger(__name__)


class DecidedWalltimes:
    """Jobs whose walltime was replaced for a run that is not known to have begun, with the walltime before.

    A connection that breaks between the two requests leaves such a job queued with the walltime of the run.
    """

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def __contains__(self, job: str) -> bool:
        return job in self._before

    def note(self, job: str, before: int) -> None:
        """Record that the walltime of a job, which was `before` seconds, is about to be replaced."""
        if before > 0:
            self._before.setdefault(job, before)

    def forget(self, job: str) -> None:
        """The job has begun, or its walltime was not replaced."""
        self._before.pop(job, None)

    async def restore(self, job: str, set_walltime: Callable[[int], Awaitable[object]]) -> None:
        """Give a job that did not start its walltime back. Raises `ServerUnreachableError`."""
        before = self._before.get(job)
        if before is None:
            return
        try:
            await set_walltime(before)
        except ServerRefusedError as error:
            _log.warning("job %s did not start and keeps another walltime: %s", job, error)
        self.forget(job)
