"""Incident files, written when a planner stops or a job makes it fail; input of `schedd rerun`."""

import time
from collections.abc import Callable
from pathlib import Path

import structlog

from schedd.engine import Incident, dump_incident

_log = structlog.get_logger(__name__)
_EVERY_S = 60.0


class IncidentFiles:
    """The incident files of one daemon: the newest ``most``."""

    def __init__(self, folder: Path, most: int = 20) -> None:
        self.folder = folder
        self._most = most
        self._last: dict[str, float] = {}

    def record(self, cluster: str, why: str, incident: Callable[[], Incident], now: int) -> None:
        """Write an incident unless the cluster's last one is less than a minute old.

        A series of incidents thus keeps its first ones. The incident of a ``stopped`` planner is always
        written.
        """
        if why == "stopped" or time.monotonic() >= self._last.get(cluster, -_EVERY_S) + _EVERY_S:
            self.write(cluster, why, incident(), now)

    def write(self, cluster: str, why: str, incident: Incident, now: int) -> Path | None:
        """Write ``incident``, readable only by the daemon's user; return None and log an error on failure."""
        self._last[cluster] = time.monotonic()
        path = self.folder / f"{cluster}-{now}-{why}.jsonl"
        part = path.with_suffix(".part")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.unlink(missing_ok=True)
            part.touch(0o600, exist_ok=False)
            with part.open("w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in dump_incident(incident))
            part.rename(path)
            kept = sorted(self.folder.glob("*.jsonl"), key=lambda file: file.stat().st_mtime_ns)
            for old in kept[: -self._most]:
                old.unlink(missing_ok=True)
        except OSError as error:
            _log.error("an incident could not be written", cluster=cluster, file=str(path), why=str(error))
            return None
        _log.warning("an incident was written", cluster=cluster, file=str(path))
        return path
