"""Simulated power of a replay's nodes: switch orders take effect after their delay, and energy is counted.

In addition to the engine's own orders there is the rule of other schedulers: a node is switched off after an
idle timeout, and on when a job was assigned to it, which then waits (Slurm: SuspendTime and ResumeProgram).
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from typing_extensions import override

from schedd.engine import EngineSettings
from schedd.policy.economy import Draw
from schedd.replay.driver import simulated_settings
from schedd.replay.machine_state import ReplayDefectError
from schedd.replay.prepared import Prepared
from schedd.replay.simulation import Schedule, Simulation
from schedd.wire import Event, NodeChanged, ShareFacts, Switch, Switched

_KWH: Final = 3.6e6


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerModel:
    """Power draw of the nodes, with ``boot`` and ``stop`` delays in seconds until the server shows a node up
    or down.

    With a ``timeout`` nodes are switched by idle seconds, otherwise by the engine. Booting and stopping nodes
    draw idle power.
    """

    draw: Draw
    boot: int = 300
    stop: int = 60
    timeout: int | None = None


@dataclass(frozen=True, slots=True)
class EnergyUse:
    """Energy of all nodes from the first submission to the last end. ``jobs_kwh`` is the part of busy cores,
    ``idle_kwh`` of nodes without jobs, ``kwh`` the total. ``switched_off`` counts orders.
    """

    kwh: float
    jobs_kwh: float
    idle_kwh: float
    switched_off: int


class _Phase(Enum):
    ON = auto()
    STOPPING = auto()
    OFF = auto()
    BOOTING = auto()


class NodePowerSimulation:
    """Power states of one replay's nodes from ``begin`` on, when all are on and idle."""

    def __init__(self, boards: PowerModel, nodes: Iterable[str], begin: int) -> None:
        self._boards = boards
        self._phase = dict.fromkeys(nodes, _Phase.ON)
        self._since = dict.fromkeys(self._phase, begin)
        self._busy = dict.fromkeys(self._phase, 0)
        self._idle_since = dict.fromkeys(self._phase, begin)
        self._due: list[tuple[int, str]] = []
        """When a node is to be looked at: it is up or down then, or was idle for long."""
        self._last = begin
        self._drawn = self._idle = self._jobs = 0.0
        self._offs = 0
        if boards.timeout is not None:
            self._due = [(begin + boards.timeout, name) for name in self._phase]
            heapq.heapify(self._due)

    @property
    def obeys(self) -> bool:
        """Whether nodes follow the engine's orders."""
        return self._boards.timeout is None

    def next(self) -> int | None:
        """Return the time of the next change or check of a node."""
        return self._due[0][0] if self._due else None

    def order(self, decision: Switch, now: int) -> Switched:
        """Carry out an order of the engine. Raises ReplayDefectError if a node with a job is switched off."""
        name = decision.node
        if self._busy[name] and not decision.on:
            raise ReplayDefectError(f"node {name}, on which a job runs, was switched off at {now}")
        if decision.on != (self._phase[name] in (_Phase.ON, _Phase.BOOTING)):
            (self._boot if decision.on else self._stop)(name, now)
        return Switched(
            id=f"p{decision.id}",
            time=now,
            decision_id=decision.id,
            node=name,
            on=decision.on,
            done=True,
        )

    def arrived(self, now: int) -> list[tuple[str, bool]]:
        """Return nodes that are up (True) or down now; with a timeout, idle nodes begin to stop."""
        found = []
        while self._due and self._due[0][0] <= now:
            _, name = heapq.heappop(self._due)
            phase, since = self._phase[name], self._since[name]
            if phase is _Phase.STOPPING and now >= since + self._boards.stop:
                self._set_phase(name, _Phase.OFF, now)
                found.append((name, False))
            elif phase is _Phase.BOOTING and now >= since + self._boards.boot:
                self._set_phase(name, _Phase.ON, now)
                found.append((name, True))
            elif phase is _Phase.ON and self._is_idle(name, now):
                self._stop(name, now)
        return found

    def start_job(self, shares: Sequence[ShareFacts], now: int) -> int:
        """Assign a job to nodes. Return the seconds until all are up. Raises ReplayDefectError if the engine
        used a node that it had switched off.
        """
        self._count(now)
        wait = 0
        for name in {share.node for share in shares}:
            phase = self._phase[name]
            if phase is not _Phase.ON:
                if self.obeys:
                    raise ReplayDefectError(
                        f"a job was started on node {name}, which is {phase.name.lower()}, at {now}"
                    )
                if phase is _Phase.STOPPING:  # it can be switched on only when down
                    wait = max(wait, self._since[name] + self._boards.stop - now + self._boards.boot)
                    self._since[name] += self._boards.stop  # it boots from then on
                    self._phase[name] = _Phase.BOOTING
                    heapq.heappush(self._due, (self._since[name] + self._boards.boot, name))
                else:
                    if phase is _Phase.OFF:
                        self._boot(name, now)
                    wait = max(wait, self._since[name] + self._boards.boot - now)
            self._busy[name] += 1
        return wait

    def left(self, shares: Sequence[ShareFacts], ran: int, now: int) -> None:
        """End a job that ``ran`` for this many seconds."""
        self._count(now)
        self._jobs += self._boards.draw.core * ran * sum(share.cpus for share in shares)
        for name in {share.node for share in shares}:
            self._busy[name] -= 1
            if not self._busy[name]:
                self._idle_since[name] = now
                if self._boards.timeout is not None:
                    heapq.heappush(self._due, (now + self._boards.timeout, name))

    def use(self, now: int) -> EnergyUse:
        """Return the energy up to ``now``."""
        self._count(now)
        jobs, drawn = self._jobs / _KWH, self._drawn / _KWH
        return EnergyUse(drawn + jobs, jobs, self._idle / _KWH, self._offs)

    def _is_idle(self, name: str, now: int) -> bool:
        """Return whether the idle timeout has passed."""
        timeout = self._boards.timeout
        return timeout is not None and not self._busy[name] and now >= self._idle_since[name] + timeout

    def _count(self, now: int) -> None:
        seconds, self._last = now - self._last, now
        if not seconds:
            return
        draw = self._boards.draw
        off = sum(phase is _Phase.OFF for phase in self._phase.values())
        idle = sum(self._phase[name] is not _Phase.OFF and not busy for name, busy in self._busy.items())
        self._drawn += seconds * (off * draw.off + (len(self._phase) - off) * draw.idle)
        self._idle += seconds * (off * draw.off + idle * draw.idle)

    def _set_phase(self, name: str, phase: _Phase, now: int) -> None:
        self._count(now)
        self._phase[name], self._since[name] = phase, now

    def _boot(self, name: str, now: int) -> None:
        self._set_phase(name, _Phase.BOOTING, now)
        heapq.heappush(self._due, (now + self._boards.boot, name))

    def _stop(self, name: str, now: int) -> None:
        self._set_phase(name, _Phase.STOPPING, now)
        self._offs += 1
        heapq.heappush(self._due, (now + self._boards.stop, name))


class PoweredSimulation(Simulation):
    """A replay with nodes that are switched off and on."""

    def __init__(self, prepared: Prepared, settings: EngineSettings, boards: PowerModel) -> None:
        super().__init__(prepared, settings)
        begin = self.state.now
        self.power = NodePowerSimulation(boards, self.state.node_facts, begin)
        self.state.first_snapshot = begin  # as after a snapshot: running jobs are known

    @override
    def _next_node_event(self) -> int | None:
        return self.power.next()

    @override
    def _node_events(self, t: int) -> list[Event]:
        """Return node events for the server's view; with an idle timeout the server shows all nodes up."""
        events: list[Event] = []
        nodes = self.state.node_facts
        for name, up in self.power.arrived(t):
            if self.power.obeys:
                now_is = replace(nodes[name], state="up" if up else "down")
                events.append(NodeChanged(id=f"p{name}:{t}", time=t, node=now_is))
        return events

    @override
    def _switch(self, decision: Switch, t: int) -> Event:
        return self.power.order(decision, t)

    @override
    def _start_delay(self, shares: Sequence[ShareFacts], t: int) -> int:
        return self.power.start_job(shares, t)

    @override
    def _end_run(self, shares: Sequence[ShareFacts], ran: int, t: int) -> None:
        self.power.left(shares, ran, t)


def run_with_power(
    prepared: Prepared, policy: str, settings: EngineSettings, boards: PowerModel, *, validate: bool = False
) -> tuple[Schedule, EnergyUse]:
    """Run ``prepared`` under ``policy`` with nodes that are switched; return the energy, too."""
    simulation = PoweredSimulation(prepared, simulated_settings(settings, policy, validate=validate), boards)
    simulation.run()
    schedule = simulation.schedule()
    return schedule, simulation.power.use(int(schedule.end.max()) + prepared.offset)
