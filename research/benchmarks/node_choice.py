"""Value of sparing scarce resources: replays of the same jobs with the rule and without it.

``python -m research.benchmarks.node_choice --json FILE [--logs DIR] [--jobs N]``. Two machines: a drawn one,
where a tenth of the nodes have gpus and stand first in the server's list; and the machine of a log with
memory requests, where a tenth of the nodes have four times the memory and stand first.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import process_time
from typing import Any, Final

import numpy as np
from typing_extensions import override

from schedd.engine import EngineSettings, EngineState, planned_shares
from schedd.policy.site import site_policy
from schedd.replay.lublin import generate
from schedd.replay.prepared import prepare
from schedd.replay.simulation import Simulation
from schedd.replay.site import ReplaySite, TraceRequest
from schedd.replay.trace_reader import read_traces
from schedd.replay.workload import Selection, TraceJob, select
from schedd.wire import NodeFacts

_CORES: Final = 16
_GPUS: Final = 4
_MOST_PERCENT: Final = 98
"""Percentile of the jobs' memory requests per core that a core of the smaller nodes has."""


@dataclass(frozen=True)
class _SelectSite(ReplaySite):
    """A machine for jobs with `select` requests, with gpus."""

    @override
    def request(self, job: TraceJob) -> TraceRequest:
        return TraceRequest("openpbs", {"select": job.select_spec or f"1:ncpus={job.procs}"})


@dataclass(frozen=True, slots=True)
class Case:
    """Jobs on a machine; ``special`` marks jobs that need scarce resources."""

    name: str
    site: ReplaySite
    selection: Selection
    special: Callable[[TraceJob], bool]


def gpu_case(jobs: int, seed: int, nodes: int = 60, load: float = 0.85) -> Case:
    """Lublin's jobs on nodes of 16 cores; the first tenth of the nodes have 4 gpus each. One in eight
    single-node jobs requests 1 to 4 gpus with 4 cores each.
    """
    rng = np.random.default_rng(seed)
    with_gpus = nodes // 10
    drawn = generate(jobs, nodes * _CORES, seed, load=load)
    made = []
    for job in drawn.jobs:
        gpus = int(rng.integers(1, _GPUS + 1)) if job.procs <= _CORES and rng.random() < 1 / 8 else 0
        if gpus:
            made.append(replace(job, procs=4 * gpus, select_spec=f"1:ncpus={4 * gpus}:ngpus={gpus}"))
            continue
        count = -(-job.procs // _CORES)
        each = -(-job.procs // count)
        made.append(replace(job, procs=count * each, select_spec=f"{count}:ncpus={each}"))
    facts = [
        NodeFacts(name=f"n{i:03}", cpus=_CORES, gpus=_GPUS if i < with_gpus else 0) for i in range(nodes)
    ]
    trace = replace(drawn, jobs=tuple(made))
    selection = select(trace, estimates="user", procs=nodes * _CORES)
    return Case(
        "gpu", _SelectSite(tuple(facts), shaped=True), selection, lambda job: "ngpus" in str(job.select_spec)
    )


def memory_case(log: Path, skip: int, jobs: int) -> Case:
    """A log's jobs with their memory requests on dual nodes that have as much as nearly all of them ask for;
    the first tenth of the nodes have four times as much.
    """
    (trace,) = read_traces([log])
    selection = select(trace, estimates="user", skip=skip, jobs=jobs, procs=240)
    nodes = 120
    small = max(1, int(np.percentile([job.mem_kib_per_proc or 0 for job in selection.jobs], _MOST_PERCENT)))
    facts = [
        NodeFacts(name=f"n{i:03}", cpus=2, mem=(8 if i < nodes // 10 else 2) * small) for i in range(nodes)
    ]
    return Case(
        f"memory, {trace.name}",
        ReplaySite(tuple(facts), shaped=True),
        selection,
        lambda job: (job.mem_kib_per_proc or 0) > small,
    )


@dataclass(eq=False)
class _Fragments:
    """Idle core-seconds, and the part of them on partly used nodes."""

    cores: dict[str, int]
    state: EngineState | None = None
    idle: float = 0.0
    stranded: float = 0.0
    _at: int = 0
    _used: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _held: dict[int, list[tuple[str, int]]] = field(default_factory=dict)

    def queued(self, i: int, now: int) -> None:  # noqa: ARG002
        self._advance(now)

    def started(self, i: int, now: int, speed: float) -> None:  # noqa: ARG002 (the interface of observers)
        self._advance(now)
        assert self.state is not None
        shares = planned_shares(self.state.plan, self.state.records[str(i)].slot)
        self._held[i] = [(share.node, share.cpus) for share in shares]
        for node, cpus in self._held[i]:
            self._used[node] += cpus

    def ended(self, i: int, now: int, *, killed: bool) -> None:  # noqa: ARG002
        self._advance(now)
        for node, cpus in self._held.pop(i, []):
            self._used[node] -= cpus

    def estimate_starts(self, state: EngineState, before: int | None) -> None:
        pass

    def _advance(self, now: int) -> None:
        seconds = now - self._at if self._at else 0
        self._at = now
        if seconds:
            for name, cores in self.cores.items():
                free = cores - self._used[name]
                self.idle += free * seconds
                self.stranded += free * seconds if 0 < free < cores else 0


def run_case(case: Case, *, spare: bool) -> dict[str, Any]:
    """Replay a case by one rule; waits in seconds."""
    prepared = prepare(case.selection, case.site)
    settings = EngineSettings(
        site=site_policy({"spare_scarce": spare}), end_allowance=0, publish_starts=False, search_every=0
    )
    began = process_time()
    fragments = _Fragments({node.name: node.cpus for node in case.site.nodes})
    simulation = Simulation(prepared, settings, teller=fragments)
    fragments.state = simulation.state
    simulation.run()
    found = simulation.schedule()
    waits = found.start - np.array([job.submit for job in prepared.jobs])
    special = np.array([case.special(job) for job in prepared.jobs])
    row = {
        "case": case.name,
        "spare_scarce": spare,
        "jobs": len(prepared.jobs),
        "special": int(special.sum()),
    }
    for name, which in (("special", special), ("others", ~special)):
        if not which.any():
            continue
        row |= {
            f"{name}_wait_mean": round(float(waits[which].mean()), 1),
            f"{name}_wait_p90": round(float(np.percentile(waits[which], 90)), 1),
        }
    row["stranded"] = round(fragments.stranded / fragments.idle, 4) if fragments.idle else 0.0
    row["cpu_s"] = round(process_time() - began, 2)
    return row


def main(argv: Sequence[str] | None = None) -> int:
    """Run all cases by both rules, print them, and write them."""
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.node_choice", description=__doc__)
    parser.add_argument("--json", type=Path, required=True, metavar="FILE")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="with HPC2N-2002-2.1-cln.swf.gz")
    parser.add_argument("--jobs", type=int, default=3_000, help="of each case (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="of the drawn case (default: %(default)s)")
    args = parser.parse_args(argv)
    cases = [(f"gpu, seed {seed}", gpu_case(args.jobs, seed)) for seed in range(1, args.seeds + 1)]
    if args.logs is not None:
        log = args.logs / "HPC2N-2002-2.1-cln.swf.gz"
        cases += [
            (f"memory, HPC2N from {skip}", memory_case(log, skip, args.jobs)) for skip in (60_000, 150_000)
        ]
    rows = []
    for name, case in cases:
        for spare in (False, True):
            rows.append(run_case(case, spare=spare) | {"case": name})
            print(json.dumps(rows[-1]), flush=True)
    args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
