"""The warm-up compiles all kernels, so that no event waits for the compiler."""

import subprocess
import sys

from tests.conftest import ROOT

SCRIPT = """
import importlib, pkgutil, threading
import structlog
import schedd.plan.kernels as kernels
from dataclasses import replace
from schedd.engine.plan_improvements import improvement_event, movable_slots
from schedd.plan.placements import current_allocation
from schedd.plan.kernel_status import count_compiled
from schedd.service.warmup import log_compilation, warm_up
from tests.engine.cluster import Cluster
from tests.engine.test_windows import quota
from tests.waits import WAIT_S

def by_name():
    found = {}
    for info in pkgutil.iter_modules(kernels.__path__):
        module = importlib.import_module(f"schedd.plan.kernels.{info.name}")
        for name, value in vars(module).items():
            is_kernel = hasattr(value, "signatures") and not isinstance(value, type)
            if is_kernel and value.__module__ == module.__name__:
                found[f"{info.name}.{name}"] = len(value.signatures)
    return found

told_none, of = count_compiled()
begun = threading.Event()
lines = []
def note(_, __, line):
    lines.append(line)
    begun.set()
    raise structlog.DropEvent
structlog.configure(processors=[note])
with log_compilation(0.01):
    assert begun.wait(WAIT_S)
    warm_up()
told_all, still = count_compiled()
assert told_none == 0 < told_all <= of == still, (told_none, told_all, of)
assert lines[0]["event"] == "kernels are compiled" and lines[0]["of"] == of, lines[0]
assert 0 <= lines[0]["done"] <= lines[-1]["done"] <= of
before = by_name()
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
jobs = {slot: cluster.engine.state.by_slot[slot].id for slot in movable_slots(cluster.engine.state).tolist()}
sooner = [replace(current_allocation(plan, slot), start=plan.start(slot) - 1) for slot in jobs]
assert sooner
two = plan.planned()[:2]
assert plan.fork().displace(two, plan.starts(two) + 1000, cluster.server.now) is not None
cluster.send(improvement_event("search", cluster.server.now, plan, jobs, sooner))
after = by_name()
print(sorted(name for name in after if after[name] != before.get(name)))
"""


def test_ready_daemon_has_compiled_all_kernels() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, cwd=ROOT, timeout=190
    )
    assert done.stdout == "[]\n", done.stdout + done.stderr
