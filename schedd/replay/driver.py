"""Driver of a replay: runs the daemon's engine under a simulated clock and computes the figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter, process_time
from typing import Any, Final

import numpy as np

from schedd.engine import SITE_PUBLISH_PAUSE, EngineSettings
from schedd.policy.site import site_policy
from schedd.policy.slack import NONE, Slack
from schedd.replay.failures import Outage
from schedd.replay.limits import peak_usage
from schedd.replay.machine_state import ReplayDefectError, check_capacity
from schedd.replay.metrics import (
    lateness,
    measure,
    series,
    start_estimate_accuracy,
    start_estimate_error,
)
from schedd.replay.prepared import Prepared
from schedd.replay.result import ReplayResult
from schedd.replay.searches import PlanImprover, SearchSchedule
from schedd.replay.simulation import PLANNING_POLICY, Observer, Progress, Schedule, Simulation
from schedd.replay.start_estimates import StartEstimator

BACKFILL_POLICY: Final = "backfill-shortest"
"""Planning with shortest-expected-job-first backfilling; run times are predicted for it."""
PLACEMENTS: Final[Mapping[str, str]] = {"best-gap": "best_gap", "best-gap-edf": "best_gap_edf"}
"""Planning with another placement of arriving jobs, by policy name."""


def replay(
    prepared: Prepared,
    policy: str,
    *,
    settings: EngineSettings | None = None,
    site: Mapping[str, Any] | None = None,
    slack: Slack = NONE,
    queue_slack: Mapping[str, str] | None = None,
    hold: int = 0,
    searching: SearchSchedule | None = None,
    weights: Mapping[str, float] | None = None,
    outages: Sequence[Outage] = (),
    expected_starts: bool = False,
    validate: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> ReplayResult:
    """Replay ``prepared`` under ``policy`` and measure it. Raises ReplayDefectError.

    With ``site``, a site's policy as plain values, its limits and priorities apply, too; its limits must
    allow all jobs. ``slack`` is the slack of promises for priorities and searches, ``queue_slack`` overrides
    it for some queues; ``hold`` is ``publish_hold`` in seconds. ``settings`` are all settings of a site and
    replace these four; settings that a log cannot support (failed starts, late ends) are removed. With
    ``searching`` the planning policy's plan is searched periodically; ``weights`` of objectives by name are
    used by placements (by default those of the search). Jobs killed by ``outages`` are counted and excluded
    from all other figures. With ``expected_starts`` the accuracy of start estimates is measured in a second
    run.
    """
    begin, begin_cpu = perf_counter(), process_time()
    of_site = settings is not None or site is not None
    settings = settings or _settings(site, slack, queue_slack, weights, hold)
    schedule = run(
        prepared,
        policy,
        settings=settings,
        searching=searching,
        outages=outages,
        expected_starts=expected_starts,
        validate=validate,
        on_progress=on_progress,
    )
    wall, cpu = perf_counter() - begin, process_time() - begin_cpu
    jobs = schedule.jobs(prepared.jobs)
    capacity = prepared.site.procs
    pauses = [(begin, end, jobs[i].procs) for i, begin, end in schedule.pauses]
    check_capacity(schedule.start, schedule.end, [job.procs for job in jobs], capacity, pauses)
    used = (
        peak_usage(settings.site, prepared, jobs, schedule.start.tolist(), schedule.end.tolist())
        if settings.site.plain
        else []
    )
    for peak in used:
        if peak.used > peak.amount:
            raise ReplayDefectError(f"{peak.limit}: {peak.used} at once by {peak.by}")
    well = np.flatnonzero(schedule.killed == 0)
    if not well.shape[0]:
        raise ReplayDefectError("node failures killed every job: nothing is left to measure")
    ran = [jobs[i] for i in well.tolist()]
    submit, procs = [job.submit for job in ran], [job.procs for job in ran]
    start, end = schedule.start[well], schedule.end[well]
    held, start_delay = start_estimate_accuracy(schedule.estimated_starts[well], start)
    late_jobs, tardiness = lateness([job.deadline for job in ran], end)
    plan = schedule.plan
    add_mean, add_p99 = plan.add_us if plan is not None else (None, None)
    name = policy if searching is None else str(searching.search.kind)
    if searching is not None and policy in PLACEMENTS:
        name = f"{policy}, {name}"
    return ReplayResult(
        log=prepared.name,
        policy=f"{name}, site" if of_site else name,
        estimates=prepared.estimates,
        kill=prepared.kill,
        slack=settings.slack if plan is not None else "",
        procs=capacity,
        jobs=len(jobs),
        skipped=prepared.skipped,
        metrics=measure(
            submit,
            start,
            end,
            procs,
            [job.user for job in ran],
            capacity,
            weighted=(schedule.weighted_procs[well], sum(n.cpus * n.speed for n in prepared.site.nodes)),
            paused=schedule.paused_seconds()[well],
        ),
        promise_breaches=schedule.promise_breaches,
        held_share=held,
        start_delay_s=start_delay,
        start_error_s=start_estimate_error(schedule.estimated_starts[well], submit, start),
        late_jobs=late_jobs,
        tardiness_s=tardiness,
        killed_jobs=len(jobs) - len(ran),
        inversions=schedule.inversions,
        preempted_runs=schedule.preempted_runs,
        lost_core_s=schedule.lost_core_s,
        repairs=len(plan.repair_ns) if plan is not None else 0,
        searched=schedule.searched,
        wall_s=wall,
        cpu_s=cpu,
        events_per_s=schedule.events / wall,
        plan_add_us_mean=add_mean,
        plan_add_us_p99=add_p99,
        repair_us_p99=plan.repair_us_p99 if plan is not None else None,
        unix_start_time=prepared.unix_start_time,
        limits=tuple(used),
        accuracy=schedule.expected_figures,
        series=series(
            submit,
            start,
            end,
            procs,
            capacity,
            pauses=[
                (begin, end, jobs[i].procs) for i, begin, end in schedule.pauses if not schedule.killed[i]
            ],
        ),
    )


def run(
    prepared: Prepared,
    policy: str,
    *,
    settings: EngineSettings | None = None,
    site: Mapping[str, Any] | None = None,
    slack: Slack = NONE,
    queue_slack: Mapping[str, str] | None = None,
    hold: int = 0,
    searching: SearchSchedule | None = None,
    weights: Mapping[str, float] | None = None,
    outages: Sequence[Outage] = (),
    improver: PlanImprover | None = None,
    expected_starts: bool = False,
    validate: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Schedule:
    """Run ``prepared`` under ``policy`` to the end of its last job. Raises ReplayDefectError.

    ``improver`` replaces ``searching``. ``expected_starts`` runs the replay twice, because the times of the
    estimates depend on the waits; once is enough if all jobs start as planned at their submission.
    """
    settings = settings or _settings(site, slack, queue_slack, weights, hold)
    searched = searching is not None or improver is not None
    settings = _with_machine_speeds(settings, prepared)
    settings = simulated_settings(settings, policy, validate=validate, searched=searched)
    first = StartEstimator(prepared) if expected_starts and not outages else None
    simulation = Simulation(prepared, settings, searching, outages, first, improver)
    simulation.run(on_progress)
    schedule = simulation.schedule()
    if not expected_starts:
        return schedule
    if first is not None and first.has_starts(schedule.start):
        return replace(schedule, expected_figures=first.figures(schedule.killed))
    teller = StartEstimator(prepared, schedule.start)
    again = Simulation(prepared, settings, searching, outages, teller)
    again.run(on_progress)
    if (again.schedule().start != schedule.start).any():
        raise ReplayDefectError(
            "the second run differs from the first: start estimates need searches bounded by moves"
        )
    return replace(schedule, expected_figures=teller.figures(schedule.killed))


def _settings(
    site: Mapping[str, Any] | None,
    slack: Slack,
    queue_slack: Mapping[str, str] | None,
    weights: Mapping[str, float] | None,
    hold: int,
) -> EngineSettings:
    chosen = EngineSettings(
        slack=str(slack),
        queue_slack=dict(queue_slack or {}),
        publish_pause=SITE_PUBLISH_PAUSE,
        publish_hold=hold,
        site=site_policy(site or {}),
    )
    return chosen.with_changes(weights=weights) if weights else chosen


def _with_machine_speeds(settings: EngineSettings, prepared: Prepared) -> EngineSettings:
    """Return the settings with the speeds of the machine, among which normalised walltimes choose."""
    plain, speeds = settings.site.plain, prepared.site.speeds
    if not settings.site.has_table("normalised_walltimes") or set(speeds.values()) <= {1.0}:
        return settings
    return settings.with_changes(site=site_policy({**plain, "speeds": {**plain["speeds"], **speeds}}))


_TIME_USED: Final = {"levels": ["user"], "interval": 366 * 86_400, "depth": 1000, "decay": 1.0}
"""Policy that counts the use of each user over the whole log, which ``multi-queue`` needs."""


def simulated_settings(
    settings: EngineSettings, policy: str, *, validate: bool, searched: bool = False
) -> EngineSettings:
    """Return the settings without features that a log cannot provide.

    Starts are published as by a daemon if a published start holds, and if there is something that would delay
    it: searches (``searched``), backfilling, or placement by deadlines.
    """
    placed = {"placement": PLACEMENTS[policy]} if policy in PLACEMENTS else {}
    qos = {
        **(settings.site.plain.get("qos") or {}),
        "unknown": "ignore",
    }  # runs without the site's policy have none
    if policy == BACKFILL_POLICY:
        settings = settings.with_changes(backfill="shortest", predict=True)
    if policy == "multi-queue" and not settings.site.has_table("fair_share"):
        settings = settings.with_changes(site=site_policy({**settings.site.plain, "fair_share": _TIME_USED}))
    optimised = searched or settings.backfill == "shortest" or policy == "best-gap-edf"
    return settings.with_changes(
        policy=PLANNING_POLICY if placed or policy == BACKFILL_POLICY else policy,
        mode="scheduler",
        start_rate=0,
        start_rate_node=0,
        end_allowance=0,
        publish_starts=optimised and settings.publish_hold > 0,
        silent=True,
        repair_slice=1 << 60,
        log_batches=1,
        hole_failures=0,
        site=site_policy({**settings.site.plain, **placed, "qos": qos}),
        validate_=validate,
    )


def walk(
    prepared: Prepared,
    policy: str,
    *,
    settings: EngineSettings | None = None,
    slack: Slack = NONE,
    queue_slack: Mapping[str, str] | None = None,
    hold: int = 0,
    searching: SearchSchedule | None = None,
    weights: Mapping[str, float] | None = None,
    outages: Sequence[Outage] = (),
    observer: Observer | None = None,
    publishes: bool = False,
    validate: bool = False,
) -> Simulation:
    """Return a simulation of the same run for stepwise execution. See ``replay``.

    ``publishes``: starts are published even if nothing depends on it.
    """
    settings = settings or _settings(None, slack, queue_slack, weights, hold)
    settings = _with_machine_speeds(settings, prepared)
    settings = simulated_settings(settings, policy, validate=validate, searched=searching is not None)
    if publishes:
        settings = settings.with_changes(publish_starts=True)
    return Simulation(prepared, settings, searching, outages, teller=observer)
