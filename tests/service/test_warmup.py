"""The daemon is ready when nothing is left to be compiled: no event may wait for the compiler."""

import subprocess
import sys

from tests.conftest import ROOT

SCRIPT = """
import importlib, pkgutil
import schedd.plan.kernels as kernels
from dataclasses import replace
from schedd.engine.improve import improvement, movable
from schedd.plan.places import place_of
from schedd.service.warmup import warm_up
from tests.engine.cluster import Cluster
from tests.engine.test_windows import quota

def compiled():
    found = {}
    for info in pkgutil.iter_modules(kernels.__path__):
        module = importlib.import_module(f"schedd.plan.kernels.{info.name}")
        for name, value in vars(module).items():
            if hasattr(value, "signatures") and value.__module__ == module.__name__:
                found[f"{info.name}.{name}"] = len(value.signatures)
    return found

warm_up()
before = compiled()
site = {**quota(4, 0, 3600), "priority": {"wish": 1.0}, "fair_share": {}}
site["limits"] += [{"what": "jobs", "who": "user", "amount": 3}, {"what": "matlab", "amount": 1}]
cluster = Cluster(nodes=2, site=site, slack=10**6, validate=False)
for i in range(6):
    resources = {"matlab": "1"} if i % 2 else {}
    cluster.submit(str(i), "1:ppn=4", walltime=100 + i, priority=i, owner=f"u{i % 2}", resources=resources)
cluster.alter("3", priority=900)
cluster.reserve("r", "n1", start=500, end=900)
cluster.at(1000)
cluster = Cluster(nodes=2, slack=10**6, validate=False)
for i in range(6):
    cluster.submit(str(i), walltime=100 + i)
plan = cluster.engine.state.plan
jobs = {slot: cluster.engine.state.by_slot[slot].id for slot in movable(cluster.engine.state).tolist()}
sooner = [replace(place_of(plan, slot), start=plan.start(slot) - 1) for slot in jobs]
assert sooner
cluster.tell(improvement("search", cluster.server.now, plan, jobs, sooner))
after = compiled()
print(sorted(name for name in after if after[name] != before.get(name)))
"""


def test_limits_reservations_and_what_a_search_found_are_compiled_when_the_daemon_is_ready() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, cwd=ROOT, timeout=190
    )
    assert done.stdout == "[]\n", done.stdout + done.stderr
