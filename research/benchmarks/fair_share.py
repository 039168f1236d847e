"""Cost of fair share: one charge, and the shares and ranks of all waiting jobs after it."""

import json
import time
from statistics import median
from typing import Any

from schedd.engine import Engine, EngineSettings
from schedd.features.fair_share.rules import charge_run, present_shares, rate_tree
from schedd.policy.site import site_policy
from schedd.wire import JobFacts, JobQueued, NodeChanged, NodeFacts

_BEGIN = 1_700_000_000
_GROUPS = 40


def _site(users: int) -> dict[str, Any]:
    """A tree of three levels of groups above the users' accounts."""
    accounts = [f"a{i}" for i in range(users // 5)]
    parents = {name: f"g{i % _GROUPS}" for i, name in enumerate(accounts)}
    parents |= {f"g{i}": f"top{i % 4}" for i in range(_GROUPS)}
    shares = {name: 1 + i % 7 for i, name in enumerate([*accounts, *(f"g{i}" for i in range(_GROUPS))])}
    shares |= {f"top{i}": 1 for i in range(4)}
    return {
        "priority": {"fair_share": 1000.0, "waiting": 1.0},
        "fair_share": {"levels": ["account", "user"], "shares": shares, "parents": parents},
    }


def _engine(jobs: int, users: int) -> Engine:
    engine = Engine(EngineSettings(site=site_policy(_site(users)), publish_starts=False), _BEGIN)
    nodes = [NodeFacts(name=f"n{i}", cpus=64, mem=256 << 20) for i in range(64)]
    engine.handle([NodeChanged(id=f"n:{one.name}", time=_BEGIN, node=one) for one in nodes], _BEGIN)
    for i in range(jobs):
        user = i % users
        facts = JobFacts(
            id=f"{i}.srv",
            owner=f"user{user}@login",
            account=f"a{user // 5}",
            queue="batch",
            submitted=_BEGIN,
            state="H",
            holds="u",
            resources={"nodes": f"1:ppn={1 + i % 16}", "walltime": str(600 + i % 5000)},
        )
        engine.handle([JobQueued(id=f"q:{i}", time=_BEGIN, job=facts)], _BEGIN)
    plan_a_job(engine, _BEGIN)
    return engine


def plan_a_job(engine: Engine, now: int) -> None:
    """Submit a running job and a planned job: ranks are computed only if some job is planned."""
    for name in ("running", "planned"):
        resources = {"nodes": "n0:ppn=64", "walltime": "1000000"}
        facts = JobFacts(id=name, owner="a@login", queue="batch", submitted=now, resources=resources)
        engine.handle([JobQueued(id=f"q:{name}", time=now, job=facts)], now)


def measure_fair_share(jobs: int = 10_000, users: int = 1_000, rounds: int = 9) -> dict[str, Any]:
    """Return milliseconds of processor time (medians): a charge of one run, the shares after it with the same
    and with a new owner, and the ranks of all jobs by weights.
    """
    engine = _engine(jobs, users)
    state = engine.state
    records = [one for one in state.records.values() if one.slot >= 0]
    present_shares(state, True)
    times: dict[str, list[float]] = {"charge_ms": [], "shares_ms": [], "new_owner_ms": [], "ranks_ms": []}

    def spent(name: str, begin: float) -> None:
        times[name].append(1000 * (time.process_time() - begin))

    for number in range(rounds):
        record = records[number * 37 % len(records)]
        begin = time.process_time()
        charge_run(state, record, state.now)
        spent("charge_ms", begin)
        begin = time.process_time()
        shares = present_shares(state, True)
        spent("shares_ms", begin)
        assert shares is not None
        owners = {*shares.owners, (f"new{number}", "new")}
        begin = time.process_time()
        type(shares)(shares.tree, state.now, owners, shares.used, shares)
        spent("new_owner_ms", begin)
        state.now += state.settings.priority_every + 1
        begin = time.process_time()
        engine.handle((), state.now)
        while state.ranking.slots_to_rank:
            engine.handle((), state.now)
        spent("ranks_ms", begin)
    last = rate_tree(state)
    places = len(last.rows()) if last is not None else 0
    figures = {name: round(median(values), 3) for name, values in times.items()}
    return {"jobs": len(records), "users": users, "places": places, **figures}


if __name__ == "__main__":
    print(json.dumps(measure_fair_share(), indent=1))
