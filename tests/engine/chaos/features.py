"""Random streams under the settings of all features together, with other policies and restarts on the way."""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from schedd.policy.site import site_policy
from schedd.wire import Decision, ExtendRun, ExtensionDone, LogLost, PolicyChanged, Preempt, PreemptionDone
from tests.engine.chaos.streams import Stream
from tests.engine.chaos.values import JOBS

__all__ = ["FEATURE_KINDS", "FeatureStream", "random_site"]

_PARTITIONS: Final[dict[str, Any]] = {
    "sets": {
        "left": {"nodes": ["n1", "n4"]},
        "right": {"properties": ["big"], "charge": 2.0},
        "whole": {"every_node": True},
    },
    "defaults": [{"who": "user", "name": "bob", "default": ["left", "whole"]}],
}
_QOS: Final[dict[str, Any]] = {
    "levels": {
        "low": {"priority": -1.0, "charge": 0.5},
        "high": {"priority": 2.0, "users": ["ann"]},
    },
    "user_defaults": {"ann": "high"},
    "default": "low",
}
_PREEMPTION: Final[dict[str, Any]] = {
    "preemptors": {"queues": ["long"]},
    "targets": {"queues": ["batch"]},
    "min_run": 20,
    "rest": 500,
    "release_time": 20,
    "gain": 10,
}
_WINDOWS: Final = [f"2023-11-14T22:{at}5:00/2023-11-14T22:{at}9:00 FREQ=DAILY UTC" for at in range(1, 6)]
_TABLES: Final[dict[str, tuple[Any, ...]]] = {
    "qos": (_QOS, {**_QOS, "unknown": "ignore", "default": ""}),
    "partitions": (_PARTITIONS, {"sets": {"left": {"nodes": ["n1"]}}, "default": ["left"]}),
    "preemption": (
        _PREEMPTION,
        {**_PREEMPTION, "scavengers": {"users": ["bob"]}, "charged": "preemptor"},
        {**_PREEMPTION, "signal": "USR1", "grace": 30, "wait": 60},
    ),
    "formula": (
        {"expression": "queue_priority + eligible_time / 100 + 10 * job_priority"},
        {"expression": "ncpus * 10 - walltime / 100", "threshold": -40},
        {"expression": "100 * fairshare_factor + qos_priority"},
    ),
    "walltime_extensions": (
        {"jobs": {"queues": ["batch"]}, "step": 400, "before": 9_000, "times": 3, "delay": 200},
        {"jobs": {"users": ["ann", "bob"]}, "before": 60},
    ),
    "normalised_walltimes": ({"speed": 1.0}, {"speed": 0.5, "queues": {"long": 1.0, "batch": 0.0}}),
    "deadlines": ({"margin": 10}, {"users": ["ann"]}, {"admission": False}),
    "deadline_forecasts": ({}, {"node_failures": 86_400}, {"admission": False}),
    "licences": (
        {"sw": {"copies": 3}},
        {"sw": {"copies": 2, "command": ["count"], "stale": 300}},
    ),
    "reservations": (
        {
            "night": {
                "first": "2023-11-14T22:00",
                "last": "2023-11-14T23:00",
                "rule": "FREQ=DAILY",
                "nodes": ["n3"],
                "users": ["ann"],
            }
        },
    ),
    "limits": (
        [
            {"what": "cpus", "who": "user", "amount": 9, "soft": 5},
            {"qos": "low", "amount": 4},
            {"counts": "eligible", "who": "user", "amount": 3},
            {"counts": "used", "who": "user", "what": "cpu_seconds", "period": 2000, "amount": 4000},
        ],
        [{"partition": "left", "amount": 2}, {"counts": "submitted", "qos": "low", "amount": 6}],
        [{"what": "jobs", "who": "user", "amount": 2}],
    ),
    "priority": (
        {"wish": 1.0, "waiting": 20.0, "fair_share": 3.0, "short": 2.0},
        {"deadline": 5.0, "deadline_lost": "hold"},
    ),
    "classes": ({"urgent": {"points": 2.0, "groups": ["staff"], "breaks_promises": True}},),
    "fair_share": ({}, {"interval": 600, "decay": 0.5, "charge_qos": {"high": 2}}),
    "accounts": ({"by": "user", "unknown": "run"}, {"by": "group", "empty": "last"}),
    "bookings": ({"most": 3, "cost": 0.5}, {"most": 1, "order": "lff"}),
    "periods": (
        {"sets": {"odd": {"windows": _WINDOWS, "tables": {"preemption": _PREEMPTION, "classes": {}}}}},
        {"sets": {"odd": {"windows": _WINDOWS, "tables": {"formula": {"expression": "ncpus"}}}}},
    ),
    "node_choice": ({"prefer": {"big": -5}}, {"expression": "cpus", "arrange": "spread"}),
    "node_trials": ({"pause": 60, "walltime": 300},),
    "placement": ("best_gap_edf", "first_gap"),
    "speeds": ({"big": 2.0}, {"n1": 4.0, "n3": 0.5}),
    "criteria": ({"wait": 1.0, "late_jobs": 2.0, "weighted_utilisation": 6.0},),
    "power_saving": (Stream.settings.site.plain["power_saving"],),
    "power": (Stream.settings.site.plain["power"],),
    "thrift": ({"prefer": True},),
    "coordinate_arrays": (True,),
    "spare_scarce": (False,),
}
"""Possible values of the tables of a policy."""

_ALL: Final[dict[str, Any]] = {
    name: values[0] for name, values in _TABLES.items() if name not in ("spare_scarce", "formula")
}
_LABELS: Final[tuple[dict[str, str], ...]] = (
    {"qos": "high"},
    {"qos": "low"},
    {"qos": "none"},
    {"partition": "left"},
    {"partition": "left:right"},
    {"partition": "none"},
    {"x.deadline": "+0:20:00"},
    {"x.deadline": "+1:00:00", "qos": "low"},
    {"x.deadline": "+0:30:00@80%"},
    {"sw": "2"},
)
"""Requests that features obey."""


def random_site(random: Random) -> dict[str, Any]:
    """Return a policy with random values of some tables."""
    share = random.choice([0.3, 0.7, 1.0])
    site = {name: random.choice(values) for name, values in _TABLES.items() if random.random() < share}
    for name, needed in (("thrift", "power"), ("priority", "fair_share"), ("normalised_walltimes", "speeds")):
        if needed not in site:
            site.pop(name, None)
    if "limits" in site:  # limits of a QOS or partition that the policy lacks would be refused
        known = [name for table, name in (("qos", "qos"), ("partitions", "partition")) if table in site]
        site["limits"] = [
            one
            for one in site["limits"]
            if all(name in known or name not in one for name in ("qos", "partition"))
        ]
    return site


class FeatureStream(Stream):
    """A stream with the settings of all features, with policies that change at run time and at restarts."""

    settings = Stream.settings.with_changes(
        slack="400",
        priority_every=100,
        hole_failures=2,
        hole_users=1,
        site=site_policy(_ALL),
    )

    def __init__(self, random: Random, every_call: bool = True) -> None:
        super().__init__(random, every_call)
        self.preemptions: list[Preempt] = []
        self.extensions: list[ExtendRun] = []

    def more_acts(self) -> list[tuple[int, Callable[[], None]]]:
        """Return the acts of this stream, with their weights."""
        return [
            *super().more_acts(),
            (3, self.label_job),
            (3, self.obey_preemption),
            (3, self.obey_extension),
            (1, self.replace_policy),
            (1, self.restart),
            (1, self.lose_log),
        ]

    def _take(self, decisions: tuple[Decision, ...]) -> None:
        self.preemptions += [one for one in decisions if isinstance(one, Preempt)]
        self.extensions += [one for one in decisions if isinstance(one, ExtendRun)]
        super()._take(decisions)

    def label_job(self) -> None:
        """A job gets a QOS, a partition, a deadline or a licence."""
        job = self.server.jobs.get(self.random.choice(JOBS))
        if job is not None and job.state in ("Q", "H", "W"):
            more = self.random.choice(_LABELS)
            self._tell(*self.server.alter(job.id, resources={**job.resources, **more}))

    def obey_preemption(self) -> None:
        """A preemption is carried out, or refused, or never answered."""
        if not self.preemptions:
            return
        one = self.preemptions.pop(0)
        fate = self.random.choice(["done", "done", "done", "refused", "unanswered", "requeued only"])
        if fate == "unanswered":
            return
        done = PreemptionDone(
            **self._id(),
            decision_id=one.id,
            job_id=one.job_id,
            done=fate == "done",
            code=0 if fate == "done" else 15018,
            text="" if fate == "done" else "no",
        )
        job = self.server.jobs.get(one.job_id)
        events = [done] if fate != "requeued only" else []
        if fate != "refused" and job is not None and job.state == "R":
            events += self.server.requeue(one.job_id)  # type: ignore[arg-type]
        self._tell(*events)

    def obey_extension(self) -> None:
        """A longer walltime is set, or refused, or set without an answer."""
        if not self.extensions:
            return
        one = self.extensions.pop(0)
        fate = self.random.choice(["done", "done", "refused", "outage", "unanswered", "lost"])
        done = ExtensionDone(
            **self._id(),
            decision_id=one.id,
            job_id=one.job_id,
            done=fate == "done",
            code=15007 if fate == "refused" else 0,
            text="" if fate == "done" else "no",
            outage=fate == "outage",
        )
        job = self.server.jobs.get(one.job_id)
        events: list[Any] = [done] if fate not in ("unanswered", "lost") else []
        if fate in ("done", "unanswered") and job is not None and job.state == "R":
            events += self.server.extend(one)
        if events:
            self._tell(*events)

    def replace_policy(self) -> None:
        """The policy is replaced at run time, or withdrawn."""
        self.policies += 1
        withdrawn = self.random.random() < 0.2
        self._tell(
            PolicyChanged(
                **self._id(),
                version=0 if withdrawn else self.policies,
                site={} if withdrawn else random_site(self.random),
                by="root",
            )
        )

    def restart(self) -> None:
        """The daemon is restarted, in most cases with another configuration file."""
        site = (
            random_site(self.random)
            if self.random.random() < 0.8
            else self.compared.engine.state.settings.site.plain
        )
        base = (
            self.settings
            if self.random.random() < 0.5
            else self.settings.with_changes(slack="0", backfill="shortest")
        )
        self.compared.restart(base.with_changes(site=site_policy(dict(site))))

    def lose_log(self) -> None:
        """A part of the log is lost; the server is read again soon."""
        self._tell(LogLost(**self._id(), why="a test", decided=self.compared.engine.state.decision_number))
        if self.random.random() < 0.9:
            self.line = []
            self._handle([self.server.snapshot()])
            self._deliver()


class FormulaStream(FeatureStream):
    """The same, where a formula ranks the jobs."""

    settings = FeatureStream.settings.with_changes(
        slack="0",
        site=site_policy({**_ALL, "formula": _TABLES["formula"][0], "limits": _TABLES["limits"][1]}),
    )


class ShortestFeatureStream(FeatureStream):
    """The same, where free capacity goes to the shortest job."""

    settings = FeatureStream.settings.with_changes(backfill="shortest", search_patience=300, slack="400+0.5w")


class FeatureQueueStream(FeatureStream):
    """The same under a queue policy."""

    settings = FeatureStream.settings.with_changes(policy="easy")


FEATURE_KINDS: Final[list[type[FeatureStream]]] = [
    FeatureStream,
    FormulaStream,
    ShortestFeatureStream,
    FeatureQueueStream,
]
