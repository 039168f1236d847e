"""Two hundred jobs in the mix of real users, and the conditions that their runs must meet."""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from server_adapter.emulator import EmulatedServer, JobState
from server_adapter.emulator.jobs import Job
from server_adapter.torque.notation import exec_host, kib

PLAIN = {"1": 23, "2:ppn=4": 14, "1:ppn=8:even": 7, "3:ppn=2": 7, "1:odd+2:ppn=2": 5, "node3:ppn=4": 4}
"""Requests for nodes, and how many of each in a half."""


@dataclass
class Scenario:
    """Submits jobs to the server, and records the special ones."""

    server: EmulatedServer
    memory: int
    """KiB of a node."""
    seed: int = 7
    held: list[str] = field(default_factory=list)
    doomed: list[str] = field(default_factory=list)
    """To be deleted while they are queued."""
    short_lived: list[str] = field(default_factory=list)
    """To be deleted while they run."""
    failing: list[str] = field(default_factory=list)
    behind: dict[str, str] = field(default_factory=dict)
    """Jobs that depend on another one's end."""
    arrays: dict[str, int] = field(default_factory=dict)
    """How many sub-jobs of an array may run at once."""

    def submit_half(self) -> None:
        """A hundred jobs."""
        chance = random.Random(self.seed)
        self.seed += 1
        plans: list[tuple[str, dict[str, str], bool]] = [
            (nodes, {}, False) for nodes, count in PLAIN.items() for _ in range(count)
        ]
        plans += [("1:ppn=1", {"mem": f"{int(self.memory * 0.45)}kb"}, False)] * 6
        plans += [("1:ppn=2", {}, True)] * 6
        chance.shuffle(plans)
        names = []
        for nodes, more, overestimated in plans:
            runtime = 0.5 if overestimated else chance.uniform(0.3, 2.5)
            walltime = 600 if overestimated else int(runtime * 2) + 2
            names.append(self._submit(nodes, runtime, walltime=walltime, **more))
        for _ in range(5):
            self.failing.append(self._submit("1", 0.4, exit_status=3))
            self.behind[self._submit("1", 0.4, depend=f"afterany:{chance.choice(names)}")] = ""
        for _ in range(4):
            self.held.append(self._submit("1:ppn=2", 0.5, holds="u"))
        for _ in range(3):
            self.doomed.append(self._submit("16:ppn=8", 30.0))
        for _ in range(2):
            self.short_lived.append(self._submit("1", 60.0))
        for job in list(self.behind):
            self.behind[job] = self.server.job(job).order.depend.partition(":")[2]
        self.arrays[self._submit("1", 0.7, array="1-5%2")] = 2
        self.arrays[self._submit("1", 0.6, array="1-4")] = 4

    def _submit(self, nodes: str, runtime: float, *, walltime: int = 10, **more: object) -> str:
        order = {name: more.pop(name) for name in list(more) if name != "mem"}
        resources = {"nodes": nodes, "walltime": str(walltime), **more}
        return self.server.submit(
            resources=resources,  # type: ignore[arg-type]
            runtime=runtime,
            **order,  # type: ignore[arg-type]
        )

    # -- final conditions -------------------------------------------------------------------------

    def each_came_to_the_end_it_should(self) -> None:
        """Run once and with its own exit status, or deleted."""
        jobs = self.server.cluster.jobs
        assert len(jobs) == 200
        for job in jobs.values():
            assert job.state is JobState.COMPLETE, job.id
            if job.id in self.doomed:
                assert job.start_count == 0, job.id
            elif job.id not in self.short_lived:
                assert job.exit_status == (3 if job.id in self.failing else 0), job.id

    def nothing_was_over_committed(self) -> None:
        """Neither cores nor memory of a node, at no moment: this the server does not see to by itself."""
        for _, cores, memory in self._loads():
            for node, used in cores.items():
                assert used <= self.server.cluster.nodes[node].slots, node
            for node, used in memory.items():
                assert used <= self.memory, node

    def _loads(self) -> Iterator[tuple[float, dict[str, int], dict[str, int]]]:
        """Return the use of each node after every start and end."""
        moments = []
        for job in self._ran():
            assert job.started is not None
            assert job.completed is not None
            moments += [(job.started, 1, job), (job.completed, -1, job)]
        cores: dict[str, int] = defaultdict(int)
        memory: dict[str, int] = defaultdict(int)
        for moment, sign, job in sorted(moments, key=lambda entry: entry[:2]):
            hosts = exec_host(job.exec_host)
            share = kib(job.resources.get("mem", "0kb")) // sum(slots for _, slots in hosts)
            for node, slots in hosts:
                cores[node] += sign * slots
                memory[node] += sign * slots * share
            yield moment, cores, memory

    def _ran(self) -> list[Job]:
        return [job for job in self.server.cluster.jobs.values() if job.started is not None]

    def conditions_were_met(self) -> None:
        """Check dependencies, and slot limits of arrays."""
        jobs = self.server.cluster.jobs
        for job, before in self.behind.items():
            started, ended = jobs[job].started, jobs[before].completed
            assert started is not None
            assert ended is not None
            assert started >= ended - 0.2, job  # its end is known before its slots are free
        for array, most in self.arrays.items():
            steps = []
            for part in self.server.cluster.array(array):
                assert part.started is not None
                assert part.completed is not None
                steps += [(part.started, 1), (part.completed - 0.2, -1)]
            running = 0
            for _, sign in sorted(steps):
                running += sign
                assert running <= most, array
