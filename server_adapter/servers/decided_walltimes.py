"""Walltimes that were set for a run: a job that did not start gets its own one back."""

import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from server_adapter.batch.errors import ServerRefusedError
from server_adapter.bridge.facts import ACTIVE
from server_adapter.bridge.journal import give_to_directory_owner
from server_adapter.bridge.state import ServerState

_log = logging.getLogger(__name__)

WALLTIMES_FILE: Final = "walltimes"  # in the adapter's state directory

SetWalltime = Callable[[str, int], Awaitable[object]]  # job, seconds


class DecidedWalltimes:
    """Jobs with a walltime replaced for a run that is not known to have begun: the walltimes before and
    since.

    A connection that breaks between the two requests leaves such a job queued with the walltime of the run.
    With a `file` they survive a restart of the adapter.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._replaced: dict[str, tuple[int, int]] = {} if file is None else _read(file)
        self._interrupted = set(self._replaced)  # by the end of the former adapter
        self.trouble = ""
        """Why the file was not written at the last change; empty if it was."""

    def __contains__(self, job: str) -> bool:
        return job in self._replaced

    def note(self, job: str, before: int, since: int) -> None:
        """Record that the walltime of a job, which was `before` seconds, is about to become `since`."""
        if before > 0:
            first, _ = self._replaced.get(job, (before, since))
            self._replaced[job] = (first, since)
            self._save()

    def forget(self, job: str) -> None:
        """The job has begun, or its walltime was not replaced."""
        self._interrupted.discard(job)
        if self._replaced.pop(job, None) is not None:
            self._save()

    async def restore(self, job: str, set_walltime: SetWalltime) -> None:
        """Give a job that did not start its walltime back. Raises `ServerUnreachableError`."""
        found = self._replaced.get(job)
        if found is None:
            return
        try:
            await set_walltime(job, found[0])
        except ServerRefusedError as error:
            _log.warning("job %s did not start and keeps another walltime: %s", job, error)
        self.forget(job)

    def to_restore(self, state: ServerState, seconds: Callable[[str], int]) -> list[str]:
        """Return the jobs that the former adapter left waiting with the walltime of a run. Others are
        forgotten: they began or ended, or a user has altered their walltime.
        """
        found = []
        for job in sorted(self._interrupted):
            facts = state.jobs.get(job)
            since = self._replaced[job][1]
            waits = facts is not None and facts.state not in ACTIVE
            if facts is not None and waits and seconds(facts.resources.get("walltime", "")) == since:
                found.append(job)
            else:
                self.forget(job)
        return found

    def _save(self) -> None:
        if self._file is None:
            return
        fresh = self._file.with_name(self._file.name + ".new")
        try:
            fresh.write_text(json.dumps(self._replaced), encoding="utf-8")
            give_to_directory_owner(fresh)
            fresh.replace(self._file)
            self.trouble = ""
        except OSError as error:
            self.trouble = f"walltimes that were set for runs are not kept: {error}"
            _log.warning("%s", self.trouble)


def _read(file: Path) -> dict[str, tuple[int, int]]:
    with suppress(OSError, ValueError, AttributeError, TypeError):
        found = json.loads(file.read_text(encoding="utf-8"))
        return {str(job): (int(before), int(since)) for job, (before, since) in found.items()}
    return {}
