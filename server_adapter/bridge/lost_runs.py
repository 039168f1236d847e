"""Runs that only the server knows: no node of the job has it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schedd.wire import JobFacts
from server_adapter.bridge.facts import ACTIVE

_LISTED_AFTER_S: Final = 60  # delay from a job's start to its node's first report of it


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Jobs that a node reports, and the arrival time of the report by the server's clock."""

    at: int
    jobs: frozenset[str]


class LostRuns:
    """Finds lost jobs: the server lists them as running, but none of their nodes has them.

    A restarted server may list jobs that ended before, and give their cores to others. A run counts as
    lost if two reports of each of its nodes lack the job. A node without a report counts as having it.
    """

    def __init__(self) -> None:
        self._reports: Mapping[str, NodeReport] = {}
        self._missing: dict[str, dict[str, int]] = {}
        self._before = self._missing
        self._found: set[str] = set()
        self.jobs: frozenset[str] = frozenset()
        """Lost jobs of the last reading."""

    def begin_reading(self, reports: Mapping[str, NodeReport]) -> None:
        """Take the reports of all nodes that made one."""
        self._reports, self._found = reports, set()
        self._before, self._missing = self._missing, {}

    def is_lost(self, job: JobFacts) -> bool:
        """Return whether this job of the reading runs nowhere. Nodes do not report suspended jobs."""
        if job.state == "S" or job.state not in ACTIVE or not job.shares or job.started is None:
            return False
        times: dict[str, int] = {}
        for share in job.shares:
            report = self._reports.get(share.node)
            if report is None or report.at < job.started + _LISTED_AFTER_S or job.id in report.jobs:
                return False
            times[share.node] = report.at
        first = self._missing[job.id] = self._before.get(job.id, times)
        if first.keys() != times.keys() or any(at <= first[node] for node, at in times.items()):
            return False
        self._found.add(job.id)
        return True

    def finish_reading(self) -> None:
        """Publish the lost runs of the reading."""
        self.jobs = frozenset(self._found)
