"""One comparison: logs and machine as named by the user, prepared for the policies."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from schedd.optimize import SearchSettings
from schedd.policy.queue_policies import QUEUE_POLICIES
from schedd.policy.slack import OFF
from schedd.replay.driver import BACKFILL_POLICY, PLACEMENTS, replay
from schedd.replay.failure_log import read_outages
from schedd.replay.failures import Outage
from schedd.replay.lublin import generate
from schedd.replay.machines import read_machines
from schedd.replay.prepared import Prepared, prepare
from schedd.replay.searches import SearchSchedule
from schedd.replay.simulation import PLANNING_POLICY
from schedd.replay.site import ReplaySite, equal_node_site, machine_file_site, single_node_site
from schedd.replay.trace_reader import read_traces
from schedd.replay.workload import Estimates, Trace, TraceError, TraceJob, count_ran, select
from schedd.wire import NodeFacts

POLICIES = (PLANNING_POLICY, BACKFILL_POLICY, *PLACEMENTS, *QUEUE_POLICIES)

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "all": (PLANNING_POLICY, "fcfs", "sjf", "easy", "aggressive"),
    "rivals": ("flexible", *(name for name in QUEUE_POLICIES if name.startswith("easy-"))),
}
"""Policies behind a group name."""

_WARM_UP = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMachine:
    """Machine description in one of four ways; by default from the log's header.

    ``procs`` cpus as one node; or ``nodes`` equal nodes of ``cpus_per_node`` cpus and ``mem_per_node`` KiB
    (0: memory is not planned); or a file of node groups.
    """

    procs: int | None = None
    nodes: int | None = None
    cpus_per_node: int | None = None
    mem_per_node: int | None = None
    machines: Path | None = None
    listed: Sequence[NodeFacts] = ()  # nodes as listed by a server, instead of a description

    def site(self) -> ReplaySite | None:
        """Return the nodes, or None if only processors count. Raises TraceError for contradictions."""
        ways = [
            name
            for name, value in (
                ("--procs", self.procs), ("--nodes", self.nodes), ("--machines", self.machines)
            )
            if value is not None
        ]  # fmt: skip
        if len(ways) > 1:
            raise TraceError(f"{' and '.join(ways)} all describe the machine: give only one of them")
        if self.listed:
            return ReplaySite(tuple(replace(node, state="up") for node in self.listed), shaped=True)
        if self.machines is not None:
            self._alone("--machines")
            return machine_file_site(read_machines(self.machines))
        if self.nodes is None:
            self._alone("--nodes")
            if self.procs is not None and self.procs < 1:
                raise TraceError(f"--procs {self.procs}: must be at least 1")
            return None
        if self.cpus_per_node is None:
            raise TraceError("--nodes needs --cpus-per-node")
        if self.nodes < 1 or self.cpus_per_node < 1:
            raise TraceError(
                f"--nodes {self.nodes} --cpus-per-node {self.cpus_per_node}: both must be at least 1"
            )
        return equal_node_site(self.nodes, self.cpus_per_node, self.mem_per_node or 0)

    def _alone(self, way: str) -> None:
        given = [
            name
            for name, value in (
                ("--cpus-per-node", self.cpus_per_node), ("--mem-per-node", self.mem_per_node)
            )
            if value is not None
        ]  # fmt: skip
        if given:
            why = "needs --nodes" if way == "--nodes" else f"cannot be combined with {way}"
            raise TraceError(f"{given[0]} {why}")


@dataclass(frozen=True, slots=True)
class PreparedLog:
    """A prepared log with node outages, and ``notes`` about excluded jobs and ignored demands."""

    prepared: Prepared
    notes: tuple[str, ...]
    outages: tuple[Outage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Replays requested by the user: logs, or ``generated`` jobs of the workload model.

    ``last`` limits each log to its last jobs that ran. ``load`` and ``seed`` apply to the model only.
    """

    logs: Sequence[Path]
    machine: ComparedMachine = ComparedMachine()
    estimates: Estimates = "exact"
    jobs: int | None = None
    skip: int = 0
    last: int | None = None
    kill: bool = False
    strict: bool = False
    generated: int | None = None
    load: float | None = None
    seed: int = 1
    failures: Path | None = None  # file of node outages during each log

    def ready(self) -> Iterator[PreparedLog]:
        """Yield the prepared logs. Raises TraceError for unusable logs, OSError for unreadable files."""
        if self.last is not None and (self.last < 1 or self.skip or self.jobs is not None):
            raise TraceError(
                f"--last {self.last}: must be at least 1, and cannot be combined with --skip or --jobs"
            )
        site = self.machine.site()
        procs = site.procs if site is not None else self.machine.procs
        for trace in self._traces(procs):
            notes = list(_faults(trace))
            chosen = select(
                trace,
                estimates=self.estimates,
                jobs=self.jobs,
                skip=self.skip if self.last is None else max(0, count_ran(trace) - self.last),
                procs=procs,
                kill=self.kill,
            )
            prepared = prepare(chosen, site or single_node_site(chosen.procs), trace.unix_start_time)
            if chosen.never_ran:
                notes.append(f"left out: {_count(chosen.never_ran)} that never ran in the log")
            if chosen.without_estimate and self.estimates == "user":
                notes.append(
                    f"{_count(chosen.without_estimate)} without a walltime: the run time is used as walltime"
                )
            if prepared.skipped:
                notes.append(f"{_count(prepared.skipped)} skipped: {_skip_reason(prepared, chosen.skipped)}")
            if prepared.unread:
                notes.append(
                    f"{prepared.unread:,} node specifications were not understood: these jobs request "
                    "processors on any nodes"
                )
            if unknown := prepared.site.unknown_properties(prepared.jobs):
                listed = ", ".join(sorted(unknown)[:8]) + (", …" if len(unknown) > 8 else "")
                notes.append(f"no node of the machine has {listed}: requests for them are ignored")
            if unknown := prepared.site.unknown_resources(prepared.jobs):
                listed = ", ".join(sorted(unknown)[:8]) + (", …" if len(unknown) > 8 else "")
                notes.append(
                    f"no node of the machine has the resources {listed}: requests for them are ignored"
                )
            for name, number in sorted(
                Counter(name for job in prepared.jobs for name in job.ignored).items()
            ):
                notes.append(f"{_count(number)} with {name}, which is not replayed")
            if named := sum(bool(job.reservation) for job in prepared.jobs):
                notes.append(
                    f"{_count(named)} with advres: without a policy that has that reservation, they run "
                    "outside of it"
                )
            outages = read_outages(self.failures, prepared) if self.failures is not None else ()
            if self.failures is not None:
                nodes = len({outage.node for outage in outages})
                notes.append(f"{len(outages):,} outages of {nodes:,} nodes; jobs on them are killed")
            yield PreparedLog(prepared, tuple(f"{trace.name}: {note}" for note in notes), outages)

    def _traces(self, procs: int | None) -> Sequence[Trace]:
        if self.generated is None:
            if self.load is not None:
                raise TraceError("--load needs --lublin: the load of a log cannot be changed")
            if not self.logs:
                raise TraceError("no log is given: name one, or give --lublin JOBS for a synthetic workload")
            needed = self.skip + self.jobs if self.jobs is not None else None
            return read_traces(self.logs, strict=self.strict, first=needed)
        if self.logs:
            raise TraceError("--lublin replaces a log: give only one of them")
        if procs is None:
            raise TraceError("--lublin needs a machine: give --procs, --nodes or --machines")
        try:
            return [generate(self.generated, procs, self.seed, load=self.load)]
        except ValueError as error:
            raise TraceError(str(error)) from None


def _faults(trace: Trace) -> Iterator[str]:
    """Yield every malformed line with its number; neighbours with the same fault are merged."""
    first = last = None
    for fault in trace.faults:
        if last is not None and first is not None:
            if (fault.file, fault.reason, fault.line) == (last.file, last.reason, last.line + 1):
                last = fault
                continue
            yield _lines(str(first), first.line, last.line)
        first = last = fault
    if first is not None and last is not None:
        yield _lines(str(first), first.line, last.line)


def _lines(text: str, first: int, last: int) -> str:
    return text if first == last else text.replace(f"line {first}:", f"lines {first} to {last}:", 1)


def _count(jobs: int) -> str:
    return "1 job" if jobs == 1 else f"{jobs:,} jobs"


def _skip_reason(prepared: Prepared, wider: int) -> str:
    reasons = {f"wider than {prepared.site.procs} processors": wider, **(prepared.reasons or {})}
    return "; ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count)


def warm_up(*, search: bool = False) -> None:
    """Run a tiny workload, so that measured replays do not include compiling or loading kernels."""
    jobs = tuple(
        TraceJob(id=i, submit=i, run=10 + i, procs=1 + i % 4, estimate=40 + i) for i in range(_WARM_UP)
    )
    chosen = select(Trace("warm-up", jobs, max_procs=4), estimates="user")
    for site in (single_node_site(4), equal_node_site(2, 2)):
        prepared = prepare(chosen, site)
        for policy in (PLANNING_POLICY, BACKFILL_POLICY, "easy"):
            replay(prepared, policy)
        if search:
            replay(prepared, PLANNING_POLICY, slack=OFF, searching=SearchSchedule(1, SearchSettings(moves=5)))
