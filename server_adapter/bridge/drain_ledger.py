"""Ledger of jobs offered to the federation, until it is known whether the transfer took place.

Between the federation's answer and the job's removal from the server there may be a crash, a broken
connection, or a change by the owner. The ledger then maps the job here to the job there.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from server_adapter.bridge.journal import give_to_directory_owner

_SUFFIX: Final = ".json"


class DrainLedgerError(Exception):
    """The directory cannot be read or written; the message has the file and the reason."""


@dataclass(frozen=True, slots=True)
class OfferedJob:
    """A job held for the federation.

    ``body`` is the offer to the federation, None before it; ``seen`` is the job's fingerprint at the offer.
    """

    job: str
    body: Mapping[str, Any] | None = None
    seen: str = ""


class DrainLedger:
    """One file for each job, in ``directory`` (created on first use). Raises `DrainLedgerError`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, OfferedJob] | None = None

    def __iter__(self) -> Iterator[OfferedJob]:
        return iter(list(self._all().values()))

    def __contains__(self, job: str) -> bool:
        return job in self._all()

    def get(self, job: str) -> OfferedJob:
        """Return the entry of the job, or an empty entry."""
        return self._all().get(job, OfferedJob(job))

    def record(self, job: str, **changes: Any) -> OfferedJob:
        """Write the changed entry of the job durably."""
        entry = replace(self.get(job), **changes)
        path = self._path(job)
        fresh = path.with_suffix(".new")
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            give_to_directory_owner(self._directory)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(asdict(entry), file)
                file.flush()
                os.fsync(file.fileno())
            give_to_directory_owner(fresh)
            fresh.replace(path)
        except OSError as error:
            raise DrainLedgerError(f"{path} cannot be written: {error.strerror}") from error
        self._all()[job] = entry
        return entry

    def forget(self, job: str) -> None:
        """Remove the entry of a settled job."""
        with contextlib.suppress(FileNotFoundError):
            self._path(job).unlink()
        self._all().pop(job, None)

    def _path(self, job: str) -> Path:
        if not job or Path(job).name != job:
            raise DrainLedgerError(f"{job!r} is no name of a job")
        return self._directory / f"{job}{_SUFFIX}"

    def _all(self) -> dict[str, OfferedJob]:
        if self._known is None:
            found = {}
            for path in sorted(self._directory.glob(f"*{_SUFFIX}")):
                try:
                    entry = OfferedJob(**json.loads(path.read_text(encoding="utf-8")))
                except OSError as error:
                    raise DrainLedgerError(f"{path} cannot be read: {error.strerror}") from error
                except (ValueError, TypeError) as error:
                    raise DrainLedgerError(f"{path} is damaged ({error}); remove it") from error
                found[entry.job] = entry
            self._known = found
        return self._known
