"""What may happen to a cluster in random lives: nodes, jobs, requests, limits, and how the line behaves."""

from typing import Any

from hypothesis import strategies as st

from schedd.wire import Act
from schedd.wire.facts import NodeStateName

T = 1_700_000_000
NODES = ["n1", "n2", "n3"]
JOBS = [f"{i}.s" for i in range(8)]
REQUESTS: list[dict[str, str]] = [
    {"nodes": "1:ppn=1"},
    {"nodes": "1:ppn=2"},
    {"nodes": "1:ppn=4"},
    {"nodes": "2:ppn=2"},
    {"nodes": "3:ppn=1"},
    {"nodes": "n2:ppn=2"},
    {"nodes": "1:ppn=1:big"},
    {"nodes": "1:ppn=64"},
    {"nodes": "1:ppn=x"},
    {"procs": "5"},
    {"nodes": "1:ppn=1", "mem": "3gb"},
    {"nodes": "1:ppn=1", "naccesspolicy": "singlejob"},
    {"nodes": "1:ppn=4", "x.deadline": "+0:10:00"},
    {"nodes": "1:ppn=1", "x.advres": "b1"},
    {"nodes": "2:ppn=1", "advres": "b2"},
]
WALLTIMES = ["", "60", "100", "600", "3600"]
QUEUES = ["batch", "long"]
LIMITS: list[dict[str, str]] = [
    {},
    {"max_user_run": "1"},
    {"max_running": "2"},
    {"max_run": "[u:PBS_GENERIC=2],[u:bob=0],[g:staff=1]"},
    {"max_run_res.ncpus": "[o:PBS_ALL=5]"},
    {"max_run_res.mem": "[u:ann=4gb]", "max_run": "x"},
]
MORE: list[dict[str, Any]] = [
    {},
    {"features": ("big",)},
    {"everywhere": True, "users": ("bob",)},
    {"users": ("ann",)},
    {"queues": ("long",), "features": ("big",)},
]
FATES = ["prompt", "prompt", "late", "shuffled", "twice", "lossy"]
ADAPTERS = ["run", "run", "busy", "cannot", "fragmented", "silent", "asynchronous"]
STATES: list[NodeStateName] = ["up", "up", "down", "drain"]
BOOKING_ACTS: list[Act] = ["accept", "freeze", "confirm", "cancel"]
TOUCHES = ["hold", "hold_slot", "release", "delete", "requeue", "wake"]

POLICIES: list[dict[str, Any] | None] = [
    None,  # that of the settings
    {},
    {"bookings": {"most": 3}, "limits": [{"what": "cpus", "who": "user", "amount": 3}]},
    {"bookings": {"most": 1}, "limits": [{"what": "jobs", "who": "user", "amount": 1}]},
    {
        "bookings": {"most": 3, "order": "bjf"},
        "priority": {"wish": 2.0, "short": 3.0},
        "classes": {"urgent": {"points": 2.0, "groups": ["staff"], "breaks_promises": True}},
    },
    {
        "placement": "best_gap_edf",
        "speeds": {"n1": 4.0},
        "criteria": {"wait": 1.0, "weighted_utilisation": 6.0},
    },
    {"limits": "x"},  # it cannot be read
]

names, jobs, requests = st.sampled_from(NODES), st.sampled_from(JOBS), st.sampled_from(REQUESTS)
walltimes, queues = st.sampled_from(WALLTIMES), st.sampled_from(QUEUES)
limits = st.sampled_from(LIMITS)
seeds = st.integers(0, 1 << 32)
