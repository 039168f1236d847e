"""What-if: the start of a job that is not submitted yet, and what would make it start sooner."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from schedd.dialect import request_words
from schedd.dialect.walltime_scale import WalltimeScale
from schedd.engine import ParsedRequest, PlanSnapshot
from schedd.model import Answer, Never, Request, StartKnown, WaitingFor
from schedd.plan.views import StartWindow, join_windows
from schedd.service.questions.arrivals import Arrival
from schedd.service.questions.cheapest_start import CheapestStart
from schedd.service.questions.open_questions import limit_plan_work
from schedd.service.questions.smaller_requests import SmallerRequest, smaller_requests
from schedd.service.questions.trial import DeadlineOrder, SubmissionTrial, TasksEnd, task_ends
from schedd.service.questions.unplanned_answers import UnplannedAnswers

SOONER_S = 300  # a start is sooner than planned if it is at least this much earlier


@dataclass(frozen=True, slots=True)
class WhatIfOptions:
    """Optional parts of a what-if, and what is removed from the plan first."""

    instead_of: str = ""  # a job of the plan that is removed first
    without_slots: tuple[int, ...] = ()  # slots that are removed first
    most_windows: int = 0
    changes: bool = False  # the smallest changes for an immediate start, or for one by `start_by`
    start_by: int | None = None
    sooner: bool = False  # the smallest changes for a start at least SOONER_S before the planned one
    cheapest_by: int | None = None  # the cheapest start with an end by then
    tasks: Sequence[int] = ()  # numbers of equal jobs, ascending


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """Answer to a what-if: the start of the job if it arrived at ``now``, and its interpretation."""

    answer: Answer
    walltime: int
    walltime_assumed: bool
    notes: tuple[str, ...]
    now: int
    generation: int
    request: str  # the request in words
    windows: tuple[StartWindow, ...] = ()  # possible starts, from the earliest on
    changes: tuple[SmallerRequest, ...] = ()
    cheapest: CheapestStart | None = None  # the cheapest start that ends in time, if requested and found
    many: tuple[TasksEnd, ...] = ()
    changes_by: int | None = None  # the latest start that `changes` allow; None: no changes were requested
    sooner_changes: tuple[SmallerRequest, ...] = ()
    sooner_by: int | None = None  # the latest start that `sooner_changes` allow
    scale: WalltimeScale | None = None  # the scale of the walltime; None: it is as requested
    promise: int | None = None  # the latest start that would be promised, FOREVER: none; None: not known
    means: str = ""  # note about the jobs that would be moved or preempted for this start


@dataclass(frozen=True, slots=True)
class WhatIfQuestion:
    """A question about the start of one job.

    ``trial`` has the job in the form that is planned, ``forms`` in each form that may be planned.
    """

    published: PlanSnapshot
    unplanned: UnplannedAnswers
    options: WhatIfOptions
    trial: SubmissionTrial
    request: Request
    arrival: Arrival | None
    """The engine's plan after the arrival of the job; None: for a booking, which displaces no job."""
    only: bool
    """The job has no other alternative."""
    forms: Sequence[SubmissionTrial]
    order: DeadlineOrder | None
    """How several such jobs are placed before jobs with later deadlines; None: they displace none."""

    def find_answer(self) -> WhatIfAnswer:
        """Return the answer with the parts that the options name."""
        options, trial = self.options, self.trial
        understood, scale = trial.understood, trial.understood.scale
        answer = self._find_start()
        waits = isinstance(answer, WaitingFor) and self._waits_for_component(understood)
        later = self._may_start_sooner(answer)
        planned = answer.placement.start if isinstance(answer, StartKnown) else None
        windows: tuple[StartWindow, ...] = ()
        if options.most_windows and (later or planned is not None) and not waits:
            windows = self._find_windows()

        def find_changes(by: int | None) -> tuple[SmallerRequest, ...]:
            if by is None or not later or (planned is not None and planned <= by):
                return ()
            return self._find_changes(by, waits=waits)

        changes_by = max(trial.ready, options.start_by or 0) if options.changes else None
        sooner_by = max(trial.ready, planned - SOONER_S) if options.sooner and planned is not None else None
        changes = find_changes(changes_by)
        sooner_changes = changes if sooner_by == changes_by else find_changes(sooner_by)
        remark = self.arrival.remark if self.arrival is not None else ""
        remarks = (remark, scale.describe() if scale is not None else "")
        stated = scale.stated if scale is not None else understood.walltime
        return WhatIfAnswer(
            answer,
            understood.walltime,
            understood.assumed,
            notes=(*self.request.notes, *filter(None, remarks)),
            now=trial.now,
            generation=self.published.generation,
            request=request_words(replace(self.request, walltime=stated)),
            windows=windows,
            changes=changes,
            cheapest=self._find_cheapest() if planned is not None else None,
            many=self._find_ends_of_tasks() if planned is not None else (),
            changes_by=changes_by,
            sooner_changes=sooner_changes,
            sooner_by=sooner_by,
            scale=scale,
            promise=self.arrival.promise if self.arrival is not None else None,
            means=remark,
        )

    def _find_start(self) -> Answer:
        """Return the start, or why there is none."""
        trial, unplanned, request = self.trial, self.unplanned, self.request
        facts, walltime = trial.facts, trial.understood.walltime
        if self.arrival is None:
            return (
                unplanned.before_search(trial.plan, facts, request, trial.understood)
                or trial.start(request, walltime)
                or unplanned.without_gap(trial.plan, facts, request)
            )
        return (
            self.arrival.answer
            or unplanned.of_queue_policy(trial.plan, trial, request, walltime, only=self.only)
            or unplanned.without_gap(trial.plan, facts, request)
        )

    def _may_start_sooner(self, answer: Answer) -> bool:
        """Whether a smaller request might start before the answer's start."""
        if isinstance(answer, StartKnown):
            return answer.placement.start != self.trial.ready
        return self.unplanned.plans_starts and (isinstance(answer, Never) or answer.kind in ("node", "limit"))

    def _waits_for_component(self, understood: ParsedRequest) -> bool:
        wait = self.unplanned.wait_of_component(self.trial.facts, understood, self.options.instead_of)
        return wait is not None

    def _find_changes(self, by: int, *, waits: bool) -> tuple[SmallerRequest, ...]:
        """Return the smallest changes of the request with which the job would start by then; the walltimes in
        them are those to request. ``waits``: a component makes the unchanged job wait.
        """
        understood, scale = self.trial.understood, self.trial.understood.scale
        trials = self.forms if scale is None else [self.trial]  # a scaled walltime is for nodes of one speed

        def earliest_start(smaller: Request, lasts: int) -> int:
            seconds = lasts if scale is None else scale.planned(lasts)
            form = replace(understood, request=smaller, walltime=seconds)
            if waits and self._waits_for_component(form):
                return -1
            starts = (one.start_in_time(smaller, seconds, by) for one in trials)
            return min((start for start in starts if start >= 0), default=-1)

        stated = understood.walltime if scale is None else scale.stated
        return smaller_requests(self.request, stated, earliest_start)

    def _forms_of_walltime(self) -> Iterator[tuple[SubmissionTrial, Request]]:
        """Yield each form of the planned walltime, such as each partition, with its request."""
        walltime = self.trial.understood.walltime
        for one in self.forms:
            request = one.understood.request
            if request is not None and one.understood.walltime == walltime:
                yield one, request

    def _find_windows(self) -> tuple[StartWindow, ...]:
        """Return the windows in which any form could start."""
        walltime, most = self.trial.understood.walltime, self.options.most_windows
        forms = list(self._forms_of_walltime()) or [(self.trial, self.request)]
        return join_windows([form.windows(request, walltime, most) for form, request in forms], most)

    def _find_cheapest(self) -> CheapestStart | None:
        by, walltime = self.options.cheapest_by, self.trial.understood.walltime
        if by is None:
            return None
        forms = list(self._forms_of_walltime()) or [(self.trial, self.request)]
        found = [form.cheapest(request, walltime, by, self.published) for form, request in forms]
        return min(filter(None, found), key=lambda one: (one.cost, one.start), default=None)

    def _find_ends_of_tasks(self) -> tuple[TasksEnd, ...]:
        if not self.options.tasks:
            return ()
        plan = self.trial.plan
        if self.order is not None:
            plan = plan.fork()
            limit_plan_work(plan)
        tried = [
            (replace(one, plan=plan, order=self.order), one.understood.request or self.request)
            for one in self.forms
        ]
        return tuple(task_ends(tried, self.options.tasks))
