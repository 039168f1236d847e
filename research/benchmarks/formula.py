"""Cost of a priority formula: the values of all waiting jobs, and their new ranks."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from research.benchmarks.fair_share import plan_a_job
from research.benchmarks.history import measure_machine
from schedd.engine import Engine, EngineSettings
from schedd.features.fair_share.rules import present_shares
from schedd.features.formula.rules import ranks
from schedd.policy.expressions import parse_formula
from schedd.policy.site import site_policy
from schedd.wire import JobFacts, JobQueued, NodeFacts, QueueFacts, Snapshot

_BEGIN: Final = 1_700_000_000
FORMULA: Final = (
    "10 * queue_priority + eligible_time / 3600 + 5 * min(xfactor, 100) + 2 * log(1 + ncpus) + 0.1 * nodect "
    "- 0.01 * walltime / 3600 + mem / 1048576 + 3 * gpus + (200 if ncpus >= 512 else 0) "
    "+ 50 * fairshare_factor - 20 * fairshare_tree_usage + 30 * (account == 'a3') + job_priority / 1024 "
    "+ 100 * ncpus / total_cpus + sqrt(predicted_run_time)"
)
"""Fifteen terms, with all kinds of names."""


def _site(accounts: int) -> dict[str, Any]:
    return {
        "formula": {"expression": FORMULA},
        "fair_share": {
            "levels": ["account", "user"],
            "shares": {f"a{i}": 1 + i % 7 for i in range(accounts)},
        },
    }


def _engine(jobs: int, users: int) -> Engine:
    """An engine with one running, one planned and many held jobs, which all get ranks."""
    engine = Engine(EngineSettings(site=site_policy(_site(users // 5)), publish_starts=False), _BEGIN)
    nodes = tuple(NodeFacts(name=f"n{i}", cpus=64, mem=256 << 20, gpus=4) for i in range(64))
    queues = (QueueFacts(name="batch", priority=10), QueueFacts(name="urgent", priority=100))
    engine.handle([Snapshot(id="s", time=_BEGIN, jobs=(), nodes=nodes, queues=queues)], _BEGIN)
    for i in range(jobs):
        user, cores = i % users, 1 + i % 16
        facts = JobFacts(
            id=f"{i}.srv",
            owner=f"user{user}@login",
            account=f"a{user // 5}",
            queue=("batch", "urgent")[i % 7 == 0],
            submitted=_BEGIN - i,
            state="H",
            holds="u",
            priority=i % 1000,
            resources={"nodes": f"1:ppn={cores}", "mem": f"{cores}gb", "walltime": str(600 + i % 5000)},
        )
        engine.handle([JobQueued(id=f"q:{i}", time=_BEGIN, job=facts)], _BEGIN)
    plan_a_job(engine, _BEGIN)
    return engine


def measure_formula(jobs: int = 10_000, users: int = 1_000, rounds: int = 9) -> dict[str, Any]:
    """Return milliseconds of processor time, the least of the rounds: the fair shares of all owners, the
    ranks of all jobs by them, and all that the engine does for both.
    """
    engine = _engine(jobs, users)
    state = engine.state
    records = [one for one in state.records.values() if one.slot >= 0]
    times: dict[str, list[float]] = {"shares_ms": [], "rerank_ms": [], "engine_ms": []}
    for _ in range(rounds):
        state.now += state.settings.priority_every + 1
        begin = time.process_time()
        present_shares(state, keep=True)
        shared = time.process_time()
        found = ranks(state, records)
        spent = time.process_time()
        assert found is not None
        assert len(set(found)) > 1
        handled = time.process_time()
        engine.handle((), state.now)
        while state.ranking.slots_to_rank:
            engine.handle((), state.now)
        times["engine_ms"].append(1000 * (time.process_time() - handled))
        times["shares_ms"].append(1000 * (shared - begin))
        times["rerank_ms"].append(1000 * (spent - shared))
    figures = {name: round(min(values), 3) for name, values in times.items()}
    return {
        "jobs": len(records),
        "terms": len(parse_formula(FORMULA).addends),
        **figures,
        "machine_us": measure_machine(),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the figures, and write them."""
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.formula", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--jobs", type=int, default=10_000, help="(default: %(default)s)")
    args = parser.parse_args(argv)
    found = json.dumps(measure_formula(args.jobs), indent=1)
    print(found)
    if args.json is not None:
        args.json.write_text(found + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
