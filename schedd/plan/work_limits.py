"""Limits of the work of searches in a plan, counted in visited segments of timelines."""

from schedd.plan.kernels import layout as at
from schedd.plan.slabs import MOST_WORK, Slabs


class WorkSpent(RuntimeError):
    """A search, or all searches of a request, exceeded the work limit: no answer is known."""


class WorkLimits:
    """The work that the searches of a plan did and may do."""

    slabs: Slabs

    @property
    def work(self) -> int:
        """Visited segments of timelines: the cost of all searches until now, independent of the machine."""
        return int(self.slabs.tb.ctl[at.WORK])

    def limit_work(self, each: int = MOST_WORK, all_of_them: int | None = None) -> None:
        """Limit each search to ``each`` visited segments, and all searches from now on together to
        ``all_of_them``; beyond these, ``place`` and ``probe`` raise WorkSpent.

        A repair leaves a job where it is if its search exceeds the limit. A fork inherits the rest of the
        limit.
        """
        end = at.FAR if all_of_them is None else self.work + all_of_them
        self.slabs.limit_work(each, end)

    def halve_work_limit(self) -> None:
        """Halve the work limit of each search, down to a hundredth of the usual limit, until ``limit_work``.

        With it, many jobs that are too hard to plan cost no more than a few of them.
        """
        ctl = self.slabs.tb.ctl
        ctl[at.MOST_WORK] = max(int(ctl[at.MOST_WORK]) // 2, min(int(ctl[at.MOST_WORK]), MOST_WORK // 100))

    def stop(self) -> None:
        """End repair, and searches for a better plan, at once; thread-safe. For a fork."""
        self.slabs.tb.ctl[at.STOP] = 1

    @property
    def stopped(self) -> bool:
        """Whether ``stop`` was called."""
        return bool(self.slabs.tb.ctl[at.STOP])

    def abort_searches(self) -> None:
        """Let all searches of this plan, including the present one, raise WorkSpent; thread-safe."""
        self.slabs.tb.ctl[at.WORK_END] = -1

    @property
    def is_work_spent(self) -> bool:
        """Whether all searches together exceeded their limit, or were aborted."""
        ctl = self.slabs.tb.ctl
        return bool(ctl[at.WORK] >= ctl[at.WORK_END])

    def work_spent_error(self) -> "WorkSpent":
        ctl = self.slabs.tb.ctl
        if ctl[at.WORK_END] < 0:
            return WorkSpent("the question was given up")
        if ctl[at.WORK] >= ctl[at.WORK_END]:
            return WorkSpent("the searches for an answer visited more segments of the plan than they may")
        return WorkSpent(
            f"a search visited more than {int(ctl[at.MOST_WORK]):,} segments of the plan: "
            "the request is too hard to plan"
        )
