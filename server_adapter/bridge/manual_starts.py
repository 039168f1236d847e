"""Manual starts: announced by an administrator, or found in the server's log."""

import contextlib
import logging
import re
from collections.abc import Collection
from datetime import date
from pathlib import Path
from typing import Final

from server_adapter.bridge.journal import give_to_directory_owner
from server_adapter.text import decode_text

_log = logging.getLogger(__name__)

_RUN: Final = re.compile(rb";Job;([^;\n]+);Job Run at request of ([^@\s]+)@(\S+)")
_MOST: Final = 1 << 22  # bytes of the log read at once: some milliseconds


class RecordedStarts:
    """File in the state directory with jobs that an administrator announced to start by hand."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "qrun"

    def add(self, job: str) -> None:
        """Record that an administrator starts this job by hand."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(job + "\n")
        give_to_directory_owner(self._file)

    def read(self) -> frozenset[str]:
        """Return the announced jobs, by full id or number."""
        try:
            return frozenset(self._file.read_text(encoding="utf-8").split())
        except FileNotFoundError:
            return frozenset()


class ServerLog:
    """Manual starts in pbs_server's log of the day.

    `directory` is its `server_logs`. Starts at the request of `schedulers` (users) are not manual.
    """

    def __init__(self, directory: Path, schedulers: Collection[str]) -> None:
        self._directory = directory
        self._schedulers = frozenset(name.encode() for name in schedulers)
        self._file: Path | None = None
        self._at = 0
        self.trouble = ""
        """Why the log cannot be read; empty if it can."""
        self.by_hand: dict[str, str] = {}

    def follow(self) -> None:
        """Read the text appended since the last call."""
        today = self._directory / f"{date.today():%Y%m%d}"  # noqa: DTZ011  (the server's, local)
        try:
            if self._file is not None and self._file != today:
                with contextlib.suppress(FileNotFoundError):  # it was compressed or removed
                    self._read_appended(self._file)
                self._at = 0
            self._file = today
            self._read_appended(today)
            self.trouble = ""
        except FileNotFoundError:
            self.trouble = ""  # nothing was logged today
        except OSError as error:
            words = "the server's log cannot be read, so a qrun looks like another scheduler"
            text = f"{words}: {error.filename}: {error.strerror}"
            if not self.trouble:
                _log.warning("%s", text)
            self.trouble = text

    def _read_appended(self, path: Path) -> None:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(min(self._at, size), size - _MOST))
            text = file.read(_MOST)
        text = text[: text.rfind(b"\n") + 1]
        self._at = max(min(self._at, size), size - _MOST) + len(text)
        for found in _RUN.finditer(text):
            job, user, host = found.groups()
            name = decode_text(job)
            if user in self._schedulers:
                self.by_hand.pop(name, None)
            else:
                self.by_hand[name] = f"{decode_text(user)}@{decode_text(host)}"


class ManualStarts:
    """Manual starts from both sources. `refresh` reads them; `started_by` returns the result."""

    def __init__(self, recorded: RecordedStarts, log: ServerLog | None = None) -> None:
        self._recorded = recorded
        self._log = log
        self._jobs: frozenset[str] = frozenset()

    def refresh(self) -> None:
        """Read both sources again."""
        self._jobs = self._recorded.read()
        if self._log is not None:
            self._log.follow()

    @property
    def trouble(self) -> str:
        """Why manual starts are not recognized; empty if they are."""
        return "" if self._log is None else self._log.trouble

    def started_by(self, job: str) -> str:
        """Return the user of the job's latest manual start; empty if unknown."""
        if job in self._jobs or job.partition(".")[0] in self._jobs:
            return "an admin"
        return "" if self._log is None else self._log.by_hand.get(job, "")
