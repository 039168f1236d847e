"""Groups over clusters with jobs of their own, in simulated time: the federation's own state and worker over
the daemon's own engines; after Netto, *Adaptive co-allocation of distributed resources* (2009), 4.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event as Flag
from typing import Any, Final, Literal, cast

from typing_extensions import override

from research.federations.field import ClusterSpec, Field, FieldCluster, FieldJob, FieldResult
from research.federations.wires import EngineWire
from schedd.client import Client
from schedd.dialect import parse_walltime
from schedd.engine import publish_snapshot
from schedd.features.transfers.api import transfer_view
from schedd.features.transfers.state import PublishedTransfers
from schedd.federation.coallocation.coallocations import CoAllocation
from schedd.federation.event_log import FederationLog
from schedd.federation.events import LicenceLeased, LoggedEvent
from schedd.federation.routing.cluster_status import TransferStatus
from schedd.federation.settings import FederationSettings
from schedd.federation.state.federation_state import ClusterPollResult, FederationState
from schedd.federation.workers.coallocation_worker import CoAllocationWorker
from schedd.replay.machine_state import ReplayDefectError
from schedd.store import AuditRecord
from schedd.supervision import Supervisor
from schedd.wire import (
    Decision,
    Event,
    JobDeleted,
    JobEnded,
    JobFacts,
    JobQueued,
    JobReleased,
    TransferDecision,
    TransferStepDone,
)

Moving = Literal["rigid", "shift", "remap"]
"""A group keeps its first start; it may be moved where it is; its parts may change their clusters, too."""
_SEEN: Final = tuple(TransferStatus.__dataclass_fields__)
_ROUNDS: Final = 200  # rounds of the federation within one second; more never end


@dataclass(frozen=True, slots=True)
class GroupJob:
    """A group: seconds; ``parts`` are the processors of each. On more than one cluster it runs ``overhead``
    percent longer than ``run``, and its walltime is longer by the same percentage.
    """

    submit: int
    run: int
    walltime: int
    parts: tuple[int, ...]
    overhead: int

    @property
    def cpus(self) -> int:
        return sum(self.parts)

    def lasts(self, length: int) -> int:
        """Run time of its jobs with the walltime ``length``."""
        return self.run if length == self.walltime else self.run + self.run * self.overhead // 100


@dataclass(frozen=True, slots=True)
class GroupRan:
    """``told`` is the first published start and ``start`` the actual one, in seconds as for jobs; ``first``
    and ``clusters`` are the numbers of clusters at these times. ``moves`` by kind: shift, remap.
    """

    promised: int
    start: int
    end: int
    first: int
    clusters: int
    shifts: int
    remaps: int


class _Kept(FederationLog):
    """A log that is kept nowhere: simulated federations do not die. It counts its events."""

    def __init__(self) -> None:
        self.count = 0
        self.supervisor = Supervisor()

    @override
    def read(self) -> Sequence[LoggedEvent]:
        return ()

    @override
    def append(self, events: Iterable[LoggedEvent]) -> None:
        self.count += len(list(events))

    @override
    def replace_leases(self, leases: Iterable[LicenceLeased]) -> None:
        pass

    @override
    def delete_events(self, jobs: Sequence[str]) -> None:
        pass

    @override
    def audit(self, entry: AuditRecord) -> None:
        pass

    @override
    def audit_entries(self, since: int = 0, limit: int = 1_000) -> Sequence[AuditRecord]:
        return ()

    @override
    def delete_audit_entries(self, now: int) -> None:
        pass

    @override
    def close(self) -> None:
        pass


class _Tender(CoAllocationWorker):
    """Worker for groups over clusters that are engines in this process; it asks one after the other."""

    wires: Mapping[str, EngineWire]
    requests_at_once = 1

    @override
    def _client(self, cluster: str) -> Client:
        return cast("Client", self.wires[cluster])


class _Wire(EngineWire):
    """Answers of the present plan are valid until it changes: parts of one size share an answer."""

    _known: dict[str, Any]
    _generation = -1

    @override
    def what_if(self, **asked: Any) -> Any:
        if self._generation != self._engine.state.generation:
            self._known, self._generation = {}, self._engine.state.generation
        key = repr(asked)
        if key not in self._known:
            self._known[key] = super().what_if(**asked)
        return self._known[key]


class _Groups(Field):
    """Jobs that stay at home, and groups over all clusters. ``again``: how often plans are asked whether a
    group that waits could end earlier, in seconds at least; they are asked when a job ended early.
    """

    def __init__(
        self,
        clusters: Sequence[ClusterSpec],
        jobs: Sequence[FieldJob],
        groups: Sequence[GroupJob],
        moving: Moving,
        again: int,
    ) -> None:
        super().__init__(clusters, jobs, "home", "conservative")
        self._local = len(jobs)
        self._specs = sorted(groups, key=lambda one: one.submit)
        self._came = 0
        self._remap = moving == "remap"
        self._again = again
        self._now = 0
        self._names = 0
        self._asked = 0
        self._early = False
        self._wakes: list[tuple[int, str]] = []
        self._copies: dict[str, tuple[str, int]] = {}  # by transfer, the group and the number of the job
        self._group_of: dict[int, str] = {}
        self._withdrawn: set[int] = set()
        self._stirred: dict[str, None] = {}
        self._reported: dict[str, int] = {}
        self._spec_of: dict[str, GroupJob] = {}
        self.found: dict[str, GroupRan] = {}
        one = {"url": "http://inside", "token_file": Path("none"), "realms": ["inside"]}
        settings = FederationSettings.model_validate(
            {
                "routing": {"recheck": again, "poll": 1.0},
                "coallocation": {"moves": 0} if moving == "rigid" else {},
                "clusters": {spec.name: {**one, "cluster": spec.name} for spec in clusters},
            }
        )
        self._log = _Kept()
        self._federation = FederationState(
            settings, self._log, dict.fromkeys(settings.clusters, ""), lambda: self._now
        )
        self._keeper = _Tender(self._federation, self._federation.cluster_tokens, Flag(), lambda: self._now)
        self._keeper.wires = {name: self._wire(place) for name, place in self._places.items()}

    def _wire(self, place: FieldCluster) -> EngineWire:
        return _Wire(
            place.engine,
            lambda event: self._handle(place, self._now, [event]),
            self._fresh,
            place.copy,
            lambda: self._now,
        )

    def _fresh(self) -> str:
        self._names += 1
        return f"f{self._names}"

    # ---- time -------------------------------------------------------------------------------------

    @override
    def _over(self) -> bool:
        ran = self._came == len(self._specs) and not self._federation.coallocations.open
        busy = any(place.ends for place in self._places.values())
        return ran and not busy and self._arrived == self._coming and min(self._start[: self._local]) >= 0

    @override
    def _moments(self) -> list[int]:
        moments = super()._moments()
        if self._came < len(self._specs):
            moments.append(self._specs[self._came].submit + self._offset)
        if self._wakes:
            moments.append(self._wakes[0][0])
        return moments

    @override
    def _second(self, t: int) -> None:
        self._now = t
        super()._second(t)
        while self._wakes and self._wakes[0][0] <= t:
            self._stirred[heapq.heappop(self._wakes)[1]] = None
        while self._came < len(self._specs) and self._specs[self._came].submit + self._offset == t:
            self._submit(self._specs[self._came])
            self._came += 1
        if self._early and t >= self._asked + self._again:
            self._early, self._asked = False, t
            self._stirred |= dict.fromkeys(self._waiting())
        self._federate(t)

    def _waiting(self) -> list[str]:
        """Groups with a start that has not come near yet, in its order."""
        groups = [self._federation.coallocations[name] for name in self._federation.coallocations.open]
        waiting = [
            (one.committed.start, one.id) for one in groups if one.committed and not one.release_requested_at
        ]
        return [name for _, name in sorted(waiting)]

    def _submit(self, spec: GroupJob) -> None:
        parts = tuple(
            {
                "submission": {
                    "script": "",
                    "resources": {"procs": str(cpus), "walltime": str(spec.walltime)},
                },
                "walltime": spec.walltime,
            }
            for cpus in spec.parts
        )
        options = {"overhead": spec.overhead, "remap": self._remap}
        group = self._federation.coallocation_operations.submit("group@inside", parts, options)
        self._spec_of[group.id] = spec
        self._stirred[group.id] = None

    def _federate(self, t: int) -> None:
        """Rounds of the federation until nothing follows any more."""
        for _ in range(_ROUNDS):
            if not self._stirred:
                return
            names = list(self._stirred)
            before = self._log.count
            self._look()
            for name in names:
                if name in self._federation.coallocations.open:
                    self._keeper.process(name)
            if self._log.count == before:
                self._rest(names, t)
        raise ReplayDefectError(f"the federation does not come to rest at {t}")

    def _rest(self, names: Sequence[str], t: int) -> None:
        """Record ended groups, and schedule the next action of the others; none needs one now."""
        for name in names:
            del self._stirred[name]
            group = self._federation.coallocations[name]
            if group.over:
                if group.over != "ended":
                    raise ReplayDefectError(f"group {name}: {group.over}, {group.text}")
                self.found.setdefault(name, self._ran(group))
            elif group.committed is None:
                heapq.heappush(self._wakes, (t + self._again, name))
            elif not group.release_requested_at:
                moment = group.committed.start - self._federation.coallocation_operations.rules.lead
                if moment <= t:
                    raise ReplayDefectError(f"group {name} is not let go in time")
                heapq.heappush(self._wakes, (moment, name))
            elif not group.armed_at:
                moment = group.committed.start - self._federation.coallocation_operations.rules.arming
                if moment <= t:
                    raise ReplayDefectError(f"group {name} is not armed in time")
                heapq.heappush(self._wakes, (moment, name))

    def _ran(self, group: CoAllocation) -> GroupRan:
        first = next(one for one in group.rounds if one.plans and (one.start, one.end) == group.promised)
        jobs = [self._copies[name][1] for name in self._copies if self._copies[name][0] == group.id]
        ran = [number for number in jobs if number not in self._withdrawn]
        whys = [one.why.partition(":")[0] for one in group.rounds if one.text == "moved"]
        starts = {self._start[number] for number in ran}
        if len(starts) != 1 or len(ran) != len(group.components) or group.promised is None:
            raise ReplayDefectError(f"group {group.id}: parts began at {sorted(starts)}")
        return GroupRan(
            promised=group.promised[0] - self._offset,
            start=starts.pop() - self._offset,
            end=max(self._end[number] for number in ran) - self._offset,
            first=len(first.clusters),
            clusters=len({self._at[number] for number in ran}),
            shifts=whys.count("shift"),
            remaps=whys.count("remap"),
        )

    def _look(self) -> None:
        """The federation looks at clusters that have changed."""
        for name, place in self._places.items():
            generation = place.engine.state.generation
            if self._reported.get(name) == generation:
                continue
            self._reported[name] = generation
            published = publish_snapshot(place.engine.state)
            seen = {}
            for transfer, (group, number) in self._copies.items():
                record = published.part(PublishedTransfers).transfers.get(transfer)
                if (
                    self._at[number] == name
                    and record is not None
                    and group in self._federation.coallocations.open
                ):
                    found = transfer_view(published, record)
                    seen[transfer] = TransferStatus(**{one: getattr(found, one) for one in _SEEN})
            report = ClusterPollResult(
                transfers=seen, whole=False, cpus=place.spec.cpus, generation=generation, family="torque"
            )
            self._federation.apply_report(name, report)

    # ---- clusters ---------------------------------------------------------------------------------

    @override
    def _ended(self, place: FieldCluster, t: int) -> list[Event]:
        found = super()._ended(place, t)
        for event in found:
            assert isinstance(event, JobEnded)
            number = int(event.job_id)
            job = self._jobs[number]
            self._early |= job.run < job.walltime
            if number in self._group_of:
                self._stirred[self._group_of[number]] = None
        return found

    @override
    def _carry_out(self, place: FieldCluster, decision: Decision, t: int) -> list[Event]:
        if isinstance(decision, TransferDecision):
            return self._step(place, decision, t)
        found = super()._carry_out(place, decision, t)
        for event in found:
            number = int(getattr(event, "job_id", -1))
            if number in self._group_of:
                self._stirred[self._group_of[number]] = None
        return found

    def _step(self, place: FieldCluster, one: TransferDecision, t: int) -> list[Event]:
        """What the server does upon a step of a transfer."""
        found: list[Event] = []
        if one.step == "submit":
            number = self._make(place, one)
            found.append(JobQueued(id=self._fresh(), time=t, job=self._held(number, t)))
        else:
            number = self._copies[one.transfer][1]
            if one.step == "release":
                found.append(JobReleased(id=self._fresh(), time=t, job_id=str(number)))
            elif self._start[number] >= 0:
                raise ReplayDefectError(
                    f"a job of group {self._group_of[number]} was to be deleted while it ran"
                )
            else:
                self._withdrawn.add(number)
                found.append(JobDeleted(id=self._fresh(), time=t, job_id=str(number)))
        done = TransferStepDone(
            id=self._fresh(),
            time=t,
            decision_id=one.id,
            transfer=one.transfer,
            step=one.step,
            done=True,
            server_job=str(number),
        )
        return [*found, done]

    def _make(self, place: FieldCluster, one: TransferDecision) -> int:
        assert one.submission is not None
        number, group = len(self._jobs), one.transfer.split(".")[1]
        resources = one.submission.resources
        length = parse_walltime(resources["walltime"])
        job = FieldJob(
            submit=self._now - self._offset,
            run=self._spec_of[group].lasts(length),
            walltime=length,
            cpus=int(resources["procs"]),
            resources=resources,
            load=0.0,
            clusters=(place.spec.name,),
            user=one.submission.user,
            home=place.spec.name,
        )
        self._jobs.append(job)
        self._at.append(place.spec.name)
        self._start.append(-1)
        self._end.append(-1)
        self._copies[one.transfer] = (group, number)
        self._group_of[number] = group
        return number

    def _held(self, number: int, t: int) -> JobFacts:
        return replace(self._facts(number, t), state="H", holds="o")

    def ran(self, ran: FieldResult) -> tuple[FieldResult, tuple[GroupRan, ...]]:
        """Of the jobs at home, and of the groups in their order."""
        local = slice(0, self._local)
        jobs = FieldResult(ran.cluster[local], ran.start[local], ran.end[local])
        return jobs, tuple(self.found[name] for name in self._spec_of)


def simulate_groups(
    clusters: Sequence[ClusterSpec],
    jobs: Sequence[FieldJob],
    groups: Sequence[GroupJob],
    moving: Moving,
    *,
    again: int = 600,
) -> tuple[FieldResult, tuple[GroupRan, ...]]:
    """Runs all; the groups in order of their submission. Raises Defect."""
    field = _Groups(clusters, jobs, groups, moving, again)
    return field.ran(field.run())
