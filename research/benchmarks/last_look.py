"""The daemon's whole plan, read over HTTP and compared with the plain checker."""

import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from typing import Any, Final

import numpy as np

from research.benchmarks.daemon import BenchDaemon, DaemonConnection, DaemonFailed
from research.benchmarks.grow import CheckFailed
from research.benchmarks.plain import Holding, Plain
from schedd.dialect import parse_torque
from schedd.model import Node

_QUIET_S: Final = 2.0
_PATIENCE_S: Final = 600.0
_END: Final = (1 << 36) - 1


def check_plan(
    daemon: BenchDaemon,
    nodes: Sequence[Node],
    present: Mapping[str, Mapping[str, str]],
    seed: int,
    sample: int = 20,
) -> tuple[int, int]:
    """Return the number of jobs that hold nodes, and of planned jobs for which the check found no earlier
    start. ``present``: the requests of jobs that run or may be planned; each of them that fits the nodes must
    hold some, and no other job may. Raises CheckFailed; DaemonFailed when the plan does not come to rest.
    """
    with closing(daemon.client()) as client:
        bars, as_of = _at_rest(client, daemon.cluster)
        held = {
            bar["job"]: [
                Holding(share["node"], bar["start"], bar["end"], share["cpus"], share["mem"], share["gpus"])
                for share in bar["nodes"]
            ]
            for bar in bars
        }
        _check_who(held.keys(), nodes, present)
        everything = [holding for holdings in held.values() for holding in holdings]
        bad = Plain(nodes, everything).over_committed()
        if bad:
            raise CheckFailed(f"over-committed (node, moment): {bad[:5]}")
        planned = [bar for bar in bars if bar["state"] == "planned"]
        rng = np.random.default_rng([seed, 3])
        chosen = rng.choice(len(planned), min(sample, len(planned)), replace=False).tolist()
        for bar in (planned[i] for i in chosen):
            job = client.ask("GET", f"{daemon.cluster}/jobs/{bar['job']}")
            others = [h for other, holdings in held.items() if other != bar["job"] for h in holdings]
            request = parse_torque(job["resources"])
            alone = Plain(nodes, others).earliest(request, bar["end"] - bar["start"], as_of)
            if alone != bar["start"]:
                raise CheckFailed(f"job {bar['job']}: planned at {bar['start']}, could start at {alone}")
    return len(held), len(chosen)


def _check_who(
    held: AbstractSet[str], nodes: Sequence[Node], present: Mapping[str, Mapping[str, str]]
) -> None:
    gone = sorted(held - present.keys())
    if gone:
        raise CheckFailed(f"these hold nodes, and neither run nor are queued: {gone[:5]}")
    empty = Plain(nodes, ())
    for name in present.keys() - held:
        if empty.earliest(parse_torque(present[name]), 1, 0) >= 0:
            raise CheckFailed(f"job {name} holds no nodes, and would fit: {dict(present[name])}")


def _at_rest(client: DaemonConnection, cluster: str) -> tuple[list[dict[str, Any]], int]:
    """Return the placements after the end of the repair, and the time of the plan."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        before = client.ask("GET", cluster)
        time.sleep(_QUIET_S)
        after = client.ask("GET", cluster)
        # On a busy machine jobs of a snapshot may be left although nothing changes for a while.
        if after["generation"] != before["generation"] or after["arriving"]:
            continue
        bars: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = client.ask("GET", f"{cluster}/plan?begin=0&end={_END}&limit=10000{cursor}")
            bars += page["jobs"]
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
        if page["generation"] == before["generation"]:
            return bars, page["as_of"]
    raise DaemonFailed("the plan does not come to rest")
