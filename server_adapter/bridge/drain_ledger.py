"""What a drain asked the federation to take, kept until it is known whether the job went.

Between the federation's answer and the moment at which the server gives the job away, a crash, a cut
connection or the job's owner may come. What is kept here says afterwards which job there is which job here.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from server_adapter.bridge.journal import hand_over

__all__ = ["Asked", "Ledger", "LedgerError"]

_SUFFIX: Final = ".json"


class LedgerError(Exception):
    """The directory cannot be read or written; says which file and why."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A job that we hold here for the federation.

    ``body`` is what the federation was asked to take, None while it was not asked; ``seen`` what the job was
    then.
    """

    job: str
    body: Mapping[str, Any] | None = None
    seen: str = ""


class Ledger:
    """A file for each job in ``directory``, which is made when the first is kept. Raises `LedgerError`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, Asked] | None = None

    def __iter__(self) -> Iterator[Asked]:
        return iter(list(self._all().values()))

    def __contains__(self, job: str) -> bool:
        return job in self._all()

    def get(self, job: str) -> Asked:
        """What is kept of the job; an empty one where nothing is."""
        return self._all().get(job, Asked(job))

    def keep(self, job: str, **changes: Any) -> Asked:
        """Writes what is known of the job now, safe from a crash."""
        entry = replace(self.get(job), **changes)
        path = self._path(job)
        fresh = path.with_suffix(".new")
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            hand_over(self._directory)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(asdict(entry), file)
                file.flush()
                os.fsync(file.fileno())
            hand_over(fresh)
            fresh.replace(path)
        except OSError as error:
            raise LedgerError(f"{path} cannot be written: {error.strerror}") from error
        self._all()[job] = entry
        return entry

    def forget(self, job: str) -> None:
        """Nothing is open with this job any more."""
        with contextlib.suppress(FileNotFoundError):
            self._path(job).unlink()
        self._all().pop(job, None)

    def _path(self, job: str) -> Path:
        if not job or Path(job).name != job:
            raise LedgerError(f"{job!r} is no name of a job")
        return self._directory / f"{job}{_SUFFIX}"

    def _all(self) -> dict[str, Asked]:
        if self._known is None:
            found = {}
            for path in sorted(self._directory.glob(f"*{_SUFFIX}")):
                try:
                    entry = Asked(**json.loads(path.read_text(encoding="utf-8")))
                except OSError as error:
                    raise LedgerError(f"{path} cannot be read: {error.strerror}") from error
                except (ValueError, TypeError) as error:
                    raise LedgerError(f"{path} is damaged ({error}); remove it") from error
                found[entry.job] = entry
            self._known = found
        return self._known
