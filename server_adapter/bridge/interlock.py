"""Is another scheduler alive? Jobs that start without us stop all our starts, until an admin resumes."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from schedd.wire import Event, JobStarted

_PATIENCE = 600  # seconds after which a run that was asked for explains a start no more


class Interlock:
    """Two small files in the state directory, so that a stop survives restarts.

    `stopped` holds the reason why nothing is started; removing it, or `pbs-adapter --resume`, lets the
    adapter go on. `qrun` lists jobs that an admin starts by hand (`pbs-adapter --record-qrun`).
    """

    def __init__(self, directory: Path) -> None:
        self._stopped = directory / "stopped"
        self._qrun = directory / "qrun"

    @property
    def reason(self) -> str:
        """Why nothing is started; empty when all is well."""
        try:
            return self._stopped.read_text(encoding="utf-8").strip() or "stopped"
        except FileNotFoundError:
            return ""

    def stop(self, reason: str) -> None:
        """Starts nothing any more until somebody resumes."""
        self._stopped.write_text(reason + "\n", encoding="utf-8")

    def resume(self) -> bool:
        """Takes a stop back; tells whether there was one."""
        try:
            self._stopped.unlink()
        except FileNotFoundError:
            return False
        return True

    def record_qrun(self, job: str) -> None:
        """Notes that an admin starts this job by hand."""
        self._qrun.parent.mkdir(parents=True, exist_ok=True)
        with self._qrun.open("a", encoding="utf-8") as file:
            file.write(job + "\n")

    def qruns(self) -> frozenset[str]:
        """The jobs that admins said they start by hand."""
        try:
            return frozenset(self._qrun.read_text(encoding="utf-8").split())
        except FileNotFoundError:
            return frozenset()


def foreign_starts(
    events: Iterable[Event], asked: Mapping[str, float], qruns: frozenset[str], now: float
) -> tuple[str, ...]:
    """Jobs that started and that neither we nor a recorded qrun started.

    `asked` has the time at which we last asked for a run, by job.
    """
    found = []
    for event in events:
        if not isinstance(event, JobStarted):
            continue
        job = event.job_id
        by_us = job in asked and now - asked[job] < _PATIENCE
        if not by_us and not is_among(job, qruns):
            found.append(job)
    return tuple(found)


def is_among(job: str, qruns: frozenset[str]) -> bool:
    """Whether an admin said to start this job by hand: by its full id, or by its number alone."""
    return job in qruns or job.partition(".")[0] in qruns
