"""Injected faults: refused and returned runs, delays, silence, cut replies."""

import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from server_adapter.batch.codes import RequestCode
from server_adapter.torque.errors import TorqueErrorCode

FOREVER = 1 << 62


@dataclass(slots=True)
class Countdown:
    """Countdown of a fault that occurs the next `left` times."""

    left: int = 0

    def hit(self) -> bool:
        """Return whether the fault occurs now, and count down."""
        if self.left <= 0:
            return False
        self.left -= 1
        return True


@dataclass(slots=True)
class Faults:
    """Injected faults. All are off at first; each method switches one on, `clear` switches all off.

    Nodes are killed and misreport their load by methods of the server: see `EmulatedServer.kill_node`,
    `lie_about_load` and `restart`.
    """

    refusals: Countdown = field(default_factory=Countdown)
    refusal_code: TorqueErrorCode = TorqueErrorCode.MOMREJECT
    refused_jobs: frozenset[str] | None = None
    returns: Countdown = field(default_factory=Countdown)
    rejecting: frozenset[str] = frozenset()
    silences: Countdown = field(default_factory=Countdown)
    cuts: Countdown = field(default_factory=Countdown)
    cut_after: int = 10
    rerun_time: float = 0.0
    delay: float = 0.0
    delayed: frozenset[RequestCode] | None = None
    failure_rate: float = 0.0
    _random: random.Random = field(default_factory=lambda: random.Random(1))

    def refuse_runs(
        self,
        count: int = FOREVER,
        code: TorqueErrorCode = TorqueErrorCode.MOMREJECT,
        jobs: Collection[str] | None = None,
    ) -> None:
        """Answers the next `count` runs (of these jobs) with an error."""
        self.refusals.left, self.refusal_code = count, code
        self.refused_jobs = None if jobs is None else frozenset(jobs)

    def refuses(self, job: str) -> bool:
        return (self.refused_jobs is None or job in self.refused_jobs) and self.refusals.hit()

    def return_runs(self, count: int = FOREVER) -> None:
        """Accepts the next `count` asynchronous runs, then puts the jobs back into the queue."""
        self.returns.left = count

    def requeue_slowly(self, seconds: float) -> None:
        """Let the run of a requeued job end this many simulated seconds after the request, like a node that
        answers late. OpenPBS refuses the request at once, as a real server after its `job_requeue_timeout`.
        """
        self.rerun_time = seconds

    def reject_jobs(self, nodes: Collection[str]) -> None:
        """Let these nodes' daemons refuse every job, like a failing prologue or execjob_begin hook."""
        self.rejecting = frozenset(nodes)

    def rejects(self, nodes: Iterable[str]) -> bool:
        """Return whether one of these nodes refuses jobs."""
        return not self.rejecting.isdisjoint(nodes)

    def be_silent(self, count: int = FOREVER) -> None:
        """Never answers the next `count` requests; the connection stays open."""
        self.silences.left = count

    def cut_replies(self, count: int = FOREVER, after: int = 10) -> None:
        """Close the connection after `after` bytes of each of the next `count` replies."""
        self.cuts.left, self.cut_after = count, after

    def slow_down(self, seconds: float, requests: Collection[RequestCode] | None = None) -> None:
        """Waits real seconds before each answer (to these requests)."""
        self.delay = seconds
        self.delayed = None if requests is None else frozenset(requests)

    def fail_jobs(self, rate: float, seed: int = 1) -> None:
        """Let this share of jobs end with exit status 1 soon after their start."""
        self.failure_rate = rate
        self._random = random.Random(seed)

    def fails_next(self) -> bool:
        """Return whether the starting job is to fail."""
        return self.failure_rate > 0 and self._random.random() < self.failure_rate

    def clear(self) -> None:
        """Behaves again."""
        for countdown in (self.refusals, self.returns, self.silences, self.cuts):
            countdown.left = 0
        self.delay, self.delayed, self.refused_jobs, self.failure_rate = 0.0, None, None, 0.0
        self.rerun_time = 0.0
        self.rejecting = frozenset()
