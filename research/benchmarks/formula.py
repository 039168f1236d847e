"""Cost of ranking all waiting jobs by a formula with fifteen terms."""

import json
import time
from statistics import median
from typing import Any

from schedd.engine import Engine, EngineSettings
from schedd.features.formula.rules import ranks
from schedd.policy.site import site_policy
from schedd.wire import JobFacts, JobQueued, NodeChanged, NodeFacts

FORMULA = (
    "10 * queue_priority + job_priority + eligible_time / 3600 + 5 * xfactor + 50 * fairshare_factor "
    "- 3 * fairshare_tree_usage + (100 if ncpus >= 64 else ncpus) + min(nodect, 8) + mem / 1048576 "
    "- log(max(walltime, 1)) + age / 86400 + base_score + 20 * (account == 'phys') + deadline + "
    "1000 * ncpus / total_cpus"
)
_SITE = {"formula": {"expression": FORMULA}, "fair_share": {"levels": ["account", "user"]}}
_BEGIN = 1_700_000_000


def _engine(jobs: int) -> Engine:
    engine = Engine(EngineSettings(site=site_policy(_SITE), publish_starts=False), _BEGIN)
    nodes = [NodeFacts(name=f"n{i}", cpus=64, mem=256 << 20) for i in range(64)]
    engine.handle([NodeChanged(id=f"n:{one.name}", time=_BEGIN, node=one) for one in nodes], _BEGIN)
    for i in range(jobs):
        facts = JobFacts(
            id=f"{i}.srv",
            owner=f"user{i % 200}@login",
            queue="batch",
            submitted=_BEGIN,
            state="H",
            holds="u",
            account="phys" if i % 3 else "chem",
            priority=i % 7,
            resources={
                "nodes": f"{1 + i % 4}:ppn={1 + i % 16}",
                "walltime": str(600 + i % 5000),
                "mem": "4gb",
                "base_score": str(i % 11),
            },
        )
        engine.handle([JobQueued(id=f"q:{i}", time=_BEGIN, job=facts)], _BEGIN)
    return engine


def measure_formula(jobs: int = 10_000, rounds: int = 7, slice_: int = 500) -> dict[str, Any]:
    """Return milliseconds of processor time: all jobs in slices, as the engine ranks them, the longest slice,
    and one arrival. The first round reads the jobs' requests, which later rounds keep.
    """
    engine = _engine(jobs)
    state = engine.state
    records = [one for one in state.records.values() if one.slot >= 0]
    totals: list[float] = []
    slices: list[float] = []
    for number in range(rounds):
        state.now += state.settings.priority_every + 1
        begin = time.process_time()
        for start in range(0, len(records), slice_):
            before = time.process_time()
            found = ranks(state, records[start : start + slice_])
            assert found is not None
            if number:
                slices.append(1000 * (time.process_time() - before))
        totals.append(1000 * (time.process_time() - begin))
    one = []
    for record in records[:200]:
        before = time.process_time()
        ranks(state, [record])
        one.append(1000 * (time.process_time() - before))
    return {
        "jobs": len(records),
        "formula": FORMULA,
        "first_ms": round(totals[0], 2),
        "median_ms": round(median(totals[1:]), 2),
        "worst_ms": round(max(totals[1:]), 2),
        "longest_slice_ms": round(max(slices), 2),
        "one_job_ms": round(median(one), 4),
    }


if __name__ == "__main__":
    print(json.dumps(measure_formula(), indent=1))
