"""Jobs that name a reservation, in a replay under a policy with standing reservations."""

import re
from dataclasses import replace
from typing import Final

from schedd.engine import Engine, EngineSettings
from schedd.policy.site import SitePolicy, site_policy
from schedd.replay.prepared import Prepared
from schedd.wire import JobDeleted, JobQueued, NodeChanged

_ENDS: Final = re.compile(r"\b(UNTIL|COUNT)=")


def follow_reservations(prepared: Prepared, site: SitePolicy) -> tuple[Prepared, int]:
    """Return the jobs without requests for reservations that cannot be followed, and the number of these.

    A reservation is followed if it recurs without an end, so that each job gets its turn, and if the job
    could run in it on an empty machine.
    """
    if not any(job.reservation for job in prepared.jobs):
        return prepared, 0
    tables = site.plain.get("reservations") or {}
    endless = {
        name for name, table in tables.items() if table.get("rule") and not _ENDS.search(table["rule"])
    }
    machine = _EmptyMachine(prepared, site)
    jobs, dropped = list(prepared.jobs), 0
    for i, job in enumerate(prepared.jobs):
        if job.reservation and (job.reservation not in endless or not machine.can_run(i)):
            jobs[i] = replace(job, reservation="")
            dropped += 1
    return replace(prepared, jobs=tuple(jobs)), dropped


class _EmptyMachine:
    """The machine of a replay without other jobs. Jobs are tried in order of submission."""

    def __init__(self, prepared: Prepared, site: SitePolicy) -> None:
        self._prepared = prepared
        # As in the replay, a QOS that the policy lacks counts as none.
        qos = {**(site.plain.get("qos") or {}), "unknown": "ignore"}
        settings = EngineSettings(site=site_policy({**site.plain, "qos": qos}), silent=True)
        first = prepared.jobs[0].submit + prepared.offset
        self._engine = Engine(settings, first)
        nodes = prepared.site.nodes
        self._engine.handle(
            [NodeChanged(id=f"n{i}", time=first, node=node) for i, node in enumerate(nodes)], first
        )
        self._known: dict[object, bool] = {}

    def can_run(self, i: int) -> bool:
        """Return whether a job gets a start, in the reservation that it names."""
        facts = self._prepared.facts(i)
        key = (facts.owner, facts.group, facts.account, facts.queue, *sorted(facts.resources.items()))
        if key not in self._known:
            now = facts.submitted
            self._engine.handle([JobQueued(id=f"q{i}", time=now, job=facts)], now)
            record = self._engine.state.records.get(facts.id)
            self._known[key] = (
                record is not None and record.slot >= 0 and self._engine.state.plan.start(record.slot) >= 0
            )
            self._engine.handle([JobDeleted(id=f"d{i}", time=now, job_id=facts.id)], now)
        return self._known[key]
