"""Answers as they may look, for the API's description."""

from typing import Any, Final

__all__ = ["EXAMPLES"]

_SHARE: Final = {"node": "n1", "cpus": 12, "mem": 8_388_608, "gpus": 0}

JOB: Final[dict[str, Any]] = {
    "id": "124.server",
    "name": "relax",
    "owner": "ann@login1",
    "group": "chem",
    "account": "",
    "queue": "batch",
    "job_state": "Q",
    "state": "planned",
    "priority": 0,
    "submitted": 1_700_000_000,
    "eligible_since": 1_700_000_000,
    "not_before": None,
    "holds": "",
    "depend": "",
    "resources": {"nodes": "1:ppn=12", "mem": "8gb", "walltime": "01:00:00"},
    "cpus": 12,
    "walltime": 3600,
    "walltime_assumed": False,
    "started": None,
    "planned_start": 1_700_003_720,
    "displayed_start": 1_700_003_720,
    "planned_end": 1_700_007_320,
    "planned_nodes": [_SHARE],
    "expected_start": 1_700_001_800,
    "expected_by": 1_700_003_500,
    "expected_as_of": 1_700_000_000,
    "predicted": True,
    "promised_start": 1_700_004_620,
    "headline": "Likely 2023-11-14 22:43:20 UTC (90 % by 2023-11-14 23:11:40 UTC), at the latest "
    "2023-11-14 23:30:20 UTC",
    "labels": {"qos": "normal"},
    "node_sets": [],
    "limited_by": ["at most 10 jobs of user ann at once"],
    "deadline": None,
    "deadline_state": "",
    "earliest_deadline": None,
    "conditional": [],
    "weak": False,
    "answer": "start_known",
    "waiting_for": "",
    "requirement": "",
    "notes": [],
    "why": "planned start 2023-11-14 23:15:20 UTC; not sooner, since at most 10 jobs of user ann at once",
    "at_risk": None,
    "breaches": [],
    "last_change": {
        "time": 1_700_000_000,
        "generation": 1,
        "event": "e1:3",
        "cause": "arrived",
        "words": "it arrived",
        "before": None,
        "after": 1_700_003_720,
    },
    "changed": 1,
    "as_of": 1_700_000_000,
    "generation": 1,
    "stale": "",
}

WHAT_IF: Final[dict[str, Any]] = {
    "request": "1 x (12 cpus, 8gb); scatter; 01:00:00",
    "answer": "start_known",
    "planned_start": 1_700_007_320,
    "planned_end": 1_700_010_920,
    "planned_nodes": [_SHARE],
    "expected_start": 1_700_003_100,
    "expected_by": 1_700_006_400,
    "expected_as_of": 1_700_000_000,
    "predicted": True,
    "promised_start": 1_700_008_220,
    "headline": "Likely 2023-11-14 23:05:00 UTC (90 % by 2023-11-15 00:00:00 UTC), at the latest "
    "2023-11-15 00:30:20 UTC",
    "predicted_run_time": 1_500,
    "cost": 6.0,
    "currency": "EUR",
    "over": False,
    "deadline": None,
    "late_by": None,
    "start_by": None,
    "start_late_by": None,
    "refusals": [],
    "deadline_state": "",
    "earliest_deadline": None,
    "waiting_for": "",
    "requirement": "",
    "why": "the plan has room for it then",
    "walltime": 3600,
    "walltime_assumed": False,
    "notes": [],
    "windows": [{"first": 1_700_007_320, "last": 1_700_093_720}],
    "changes": [{"change": "walltime", "asked": "01:00:00", "enough": "00:42:00", "value": 2520}],
    "cheapest": {"start": 1_700_028_000, "cost": 3.2, "nodes": ["n1"]},
    "variants": [],
    "tasks": [],
    "changes_by": None,
    "destinations": [],
    "array": None,
    "as_of": 1_700_000_000,
    "generation": 1,
}

DECISIONS: Final[dict[str, Any]] = {
    "decisions": [
        {
            "id": "d000000000017",
            "cause": "e1:2",
            "time": 1_700_000_000,
            "job_id": "123.server",
            "shares": [_SHARE],
            "version": "1",
            "expires": 1_700_000_060,
            "walltime": None,
            "term": 1,
            "type": "run",
        }
    ],
    "last": "d000000000017",
    "missed": False,
}


EXAMPLES: Final = {
    ("/v1/clusters/{cluster}/jobs/{job}", "get"): JOB,
    ("/v1/clusters/{cluster}/what-if", "post"): WHAT_IF,
    ("/v1/clusters/{cluster}/decisions", "get"): DECISIONS,
}
"""By path and method."""
