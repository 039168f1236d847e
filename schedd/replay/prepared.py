"""Preparation of selected jobs: requests on the machine, and facts for the engine."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from schedd.dialect.partition import NODE_PARTITION, PARTITION
from schedd.dialect.topology import TOPOLOGY, read_level
from schedd.engine import EngineSettings, RequestReader, planner_node
from schedd.model import Request
from schedd.plan.plan import Plan
from schedd.plan.views import find_unmet_requirement
from schedd.policy.expressions import parse_formula
from schedd.replay.site import ReplaySite, TraceRequest
from schedd.replay.workload import Estimates, Selection, TraceError, TraceJob
from schedd.wire import JobFacts
from schedd.wire.quick_init import quick_replace


@dataclass(frozen=True, slots=True)
class Prepared:
    """Jobs that can run on ``site``, in order of submission; ``skipped`` could not.

    ``offset`` converts the log's seconds to the engine's clock. ``reasons`` counts excluded jobs by reason,
    except those wider than the machine; ``unread`` counts node specifications that were not understood: their
    jobs request processors anywhere.
    """

    name: str
    site: ReplaySite
    jobs: tuple[TraceJob, ...]
    requests: tuple[TraceRequest, ...]
    estimates: Estimates
    skipped: int
    offset: int
    unix_start_time: int | None = None
    reasons: Mapping[str, int] | None = None
    unread: int = 0
    kill: bool = False

    def facts(self, i: int) -> JobFacts:
        """Return job number ``i`` as a server would describe it on arrival."""
        job, ask = self.jobs[i], self.requests[i]
        return JobFacts(
            id=str(i),
            owner=job.user,
            group=job.group,
            account=job.account,
            project=job.project,
            queue=job.queue,
            submitted=job.submit + self.offset,
            family=ask.family,
            resources={
                **ask.resources,
                "walltime": str(job.estimate),
                **self._optional_resources(job, ask.family),
            },
        )

    def for_policy(self, plain: Mapping[str, Any]) -> "Prepared":
        """Return a copy without requests that the policy (as plain values) does not support."""
        levels = (plain.get("node_choice") or {}).get("levels") or {}
        found = self if plain.get("partitions") else self.without_partitions()
        reservations = plain.get("reservations") or {}
        if any(job.reservation and job.reservation not in reservations for job in found.jobs):
            known = [job.reservation if job.reservation in reservations else "" for job in found.jobs]
            named = zip(found.jobs, known, strict=True)
            found = replace(found, jobs=tuple([replace(job, reservation=name) for job, name in named]))
        if any(job.own_resources for job in found.jobs):
            found = found.with_resources(_formula_names(plain))
        wishes = {job.topology for job in found.jobs if job.topology}
        unknown = {wish for wish in wishes if read_level({TOPOLOGY: wish}) not in levels}
        if not unknown:
            return found
        jobs = [replace(job, topology="") if job.topology in unknown else job for job in found.jobs]
        return replace(found, jobs=tuple(jobs))

    def with_resources(self, names: frozenset[str]) -> "Prepared":
        """Return a copy with only these of the jobs' own resources."""

        @cache
        def kept(own: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
            return tuple([(name, value) for name, value in own if name in names])

        jobs = [quick_replace(job, own_resources=kept(job.own_resources)) for job in self.jobs]
        return replace(self, jobs=tuple(jobs))

    def without_partitions(self) -> "Prepared":
        """Return a copy without requested partitions, for a policy that has none."""
        if not any(job.partition for job in self.jobs):
            return self
        return replace(self, jobs=tuple(replace(job, partition="") for job in self.jobs))

    def _optional_resources(self, job: TraceJob, family: str) -> dict[str, str]:
        found = {}
        if job.deadline is not None:
            found["deadline"] = datetime.fromtimestamp(job.deadline + self.offset, UTC).isoformat()
        if job.qos:
            found["qos"] = job.qos
        if job.partition:
            found[NODE_PARTITION if family == "openpbs" else PARTITION] = job.partition
        if job.topology:
            found[TOPOLOGY] = job.topology
        if job.min_walltime and job.min_walltime < job.estimate:
            least = str(job.min_walltime)
            if family == "openpbs":
                found |= {"min_walltime": least, "max_walltime": str(job.estimate)}
            else:
                found["minwclimit"] = least
        if job.alternatives and family != "openpbs":
            found["trl"] = ":".join([f"{tasks}@{seconds}" for tasks, seconds in job.alternatives])
        if job.reservation:
            found["advres"] = job.reservation
        found.update(job.own_resources)
        if job.cost_limit is not None:
            found["cost_limit"] = f"{job.cost_limit:.4f}"
        return found


def _formula_names(plain: Mapping[str, Any]) -> frozenset[str]:
    """Return the names in the formulas of a policy, in lower case."""
    sets = (plain.get("periods") or {}).get("sets") or {}
    policies = [plain, *[one.get("tables") or {} for one in sets.values()]]
    texts = [(one.get("formula") or {}).get("expression", "").strip() for one in policies]
    formulas = [parse_formula(text) for text in texts if text]
    return frozenset(name.lower() for one in formulas for name in (*one.names, *one.text_names))


def terms_not_in_logs(plain: Mapping[str, Any]) -> list[str]:
    """Return the terms of a policy's formulas that are 0 for each logged job, since logs do not have them."""
    queues = (plain.get("priority") or {}).get("queues")
    return sorted(
        name
        for name in _formula_names(plain)
        if name.startswith(("queue.", "server."))
        or name == "job_priority"
        or (name == "queue_priority" and not queues)
    )


def prepare(selection: Selection, site: ReplaySite, unix_start_time: int | None = None) -> Prepared:
    """Return the jobs of ``selection`` with their requests on ``site``, without jobs that can never run.

    Raises TraceError when nothing is left.
    """
    judge = _Judge(site)
    jobs: list[TraceJob] = []
    requests: list[TraceRequest] = []
    reasons: Counter[str] = Counter()
    for job in selection.jobs:
        ask, never = judge(job)
        if never:
            reasons[never] += 1
        else:
            jobs.append(job)
            requests.append(ask)
    if not jobs:
        why = reasons.most_common(1)[0][0]
        raise TraceError(f"{selection.name}: none of {len(selection.jobs)} jobs can run here: {why}")
    return Prepared(
        name=selection.name,
        site=site,
        jobs=tuple(jobs),
        requests=tuple(requests),
        estimates=selection.estimates,
        skipped=selection.skipped + len(selection.jobs) - len(jobs),
        offset=max(unix_start_time or 0, 1 - jobs[0].submit),
        unix_start_time=unix_start_time,
        reasons=dict(reasons),
        unread=judge.unread,
        kill=selection.kill,
    )


class _Judge:
    """Parses requests like the engine. Equal requests are parsed once and shared."""

    def __init__(self, site: ReplaySite) -> None:
        self._site = site
        nodes = [planner_node(node) for node in site.nodes]
        self._plan = Plan(nodes, 0)
        self._intake = RequestReader(EngineSettings())
        self._intake.set_nodes(self._plan.nodes)
        self._known: dict[object, tuple[TraceRequest, str, bool]] = {}
        self.unread = 0

    def __call__(self, job: TraceJob) -> tuple[TraceRequest, str]:
        """Return the job's request, and the reason why it can never run, or an empty string."""
        key: tuple[object, ...] = (
            job.procs,
            job.mem_kib_per_proc,
            job.mem_kib_per_node,
            job.nodes_spec,
            job.select_spec,
        )
        key += (job.gpus, job.node_count, job.gres)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._read(job)
        self.unread += found[2]
        return found[:2]

    def _read(self, job: TraceJob) -> tuple[TraceRequest, str, bool]:
        ask, unread = self._site.request(job), False
        request = self._understood(ask)
        if request is None:
            unread = True
            ask = TraceRequest("torque", {"procs": str(job.procs)})
            request = self._understood(ask)
        assert request is not None
        never = find_unmet_requirement(self._plan, request)
        return ask, never.requirement if never is not None else "", unread

    def _understood(self, ask: TraceRequest) -> Request | None:
        facts = JobFacts(id="0", owner="", queue="", submitted=0, family=ask.family, resources=ask.resources)
        return self._intake.read(facts, None, {}).request
