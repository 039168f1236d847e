"""Running jobs: the resources they hold, until when, and overruns."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace

from schedd.dialect import format_walltime
from schedd.engine.component.job_hooks import report_about_job
from schedd.engine.component.placement_hooks import walltime_at_start
from schedd.engine.facts.bookkeeping import note_failed_bookkeeping
from schedd.engine.facts.job_requests import holds_resources
from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import Cause, CurrentRun, JobRecord, Phase
from schedd.engine.facts.shares import held_shares, planned_shares, takes_for_shares
from schedd.engine.facts.state import EngineState
from schedd.engine.facts.texts import RUNS_PAST_WALLTIME, STARTED_BY_SOMEBODY_ELSE
from schedd.engine.machine.nodes import block_nodes, unblock_nodes
from schedd.engine.place.placement import displace_for
from schedd.engine.rank.promises import judge_start
from schedd.engine.rank.quarantine import JobErrorGuard
from schedd.engine.run.start_outages import end_start_outage
from schedd.model import Chunk, Place, Request
from schedd.name_list import shorten_list
from schedd.wire import JobFacts, ShareFacts
from schedd.wire.quick_init import quick_replace

_PROMPT_S = 10  # a start within this time after its decision reduces the job's end allowance only
AHEAD = 60  # tolerated lead of the server's clock, seconds


def start_running(
    state: EngineState,
    event: str,
    record: JobRecord,
    started: int,
    shares: Iterable[ShareFacts],
    by: str | None = None,
) -> None:
    """Record that the job runs on these shares, and displace planned jobs in conflict with it.

    ``by``: the user who started it; "": this scheduler or unknown; None: as known before.
    """
    shares = tuple(shares)
    started = _correct_start(state, record, started)
    known = record.facts
    if record.phase is Phase.RUNNING and (record.run.started, known.shares) == (started, shares):
        return
    letter = known.state if known.state in ("R", "E", "S") else "R"
    # The server's description of a run counts its start already.
    starts = known.starts + (record.phase is not Phase.RUNNING and not holds_resources(known))
    by = known.by if by is None else by
    facts = quick_replace(known, state=letter, shares=shares, started=started, starts=starts, by=by)
    ours = record.phase is Phase.DISPATCHED
    decided = record.attempt.decided
    state.refused_jobs.pop(record.id, None)
    if ours and not record.attempt.accepted:
        end_start_outage(state)  # its start may be reported before its acceptance, or without it
    if ours and (walltime := walltime_at_start(state, record)) is not None:
        # In the servers' notation: an unchanged walltime is in no event, and a snapshot is compared as text.
        facts = replace(facts, resources={**facts.resources, "walltime": format_walltime(walltime)})
    # It may have been altered while its run decision was out.
    understood = state.read_request(facts)
    altered = understood != record.understood  # notes of requests are not compared
    planned = state.plan.start(record.slot) if record.slot >= 0 else -1
    as_planned = ours and not altered and _same_nodes(planned_shares(state.plan, record.slot), shares)
    state.without_place.pop(record.id, None)
    state.chained.pop(record.id, None)  # no dependency holds it any more
    state.dispatched.pop(record.id, None)
    try:
        record = judge_start(state, record, event, started)
    except Exception as error:
        if not note_failed_bookkeeping(state, record.id, "whether its promise was kept", error):
            raise
    record = apply_step(
        record, Step.STARTED, facts=facts, understood=understood, run=_current_run(state, started, letter)
    )
    record = state.store_record(_with_slot(state, record))
    # Seconds not covered by its placement, and the seconds known at its dispatch.
    beyond = record.run_end(state.now) - state.plan.end(record.slot)
    known_late = max(0, decided - planned)
    if (
        as_planned
        and planned <= started
        and beyond - known_late <= min(_PROMPT_S, state.settings.end_allowance)
    ):
        _fix_and_watch(state, record, state.plan.end(record.slot))
        _hold_amount(state, record)
        return
    fix_shares(state, record)
    _hold_amount(state, record)
    cause = Cause.OUTAGE if ours else Cause.ADMIN
    displace_for(state, [record.slot], event, cause, f"job {record.id} was started there")


def _current_run(state: EngineState, started: int, letter: str) -> CurrentRun:
    return CurrentRun(started).with_letter(letter, state.now)


def restore_suspensions(state: EngineState, event: str, job: str, since: int, seconds: int) -> None:
    """Count the suspensions of a run that were known before the plan was rebuilt: the present one, from
    ``since`` (-1: none), and the ``seconds`` of past ones.
    """
    if since < 0 and not seconds:
        return
    record = state.records[job]
    before = replace(record.run, suspended_since=min(since, state.now), suspended_s=seconds)
    run = before.with_letter(record.facts.state, state.now)
    record = state.store_record(
        apply_step(record, Step.RUN_AGAIN, facts=record.facts, understood=record.understood, run=run)
    )
    fix_shares(state, record)
    displace_for(state, [record.slot], event, Cause.OVERRUN, f"job {job} was suspended before")


def _hold_amount(state: EngineState, record: JobRecord) -> None:
    report_about_job(state, "job_holds_resources", record.facts, "what its run means for", record)


def _correct_start(state: EngineState, record: JobRecord, started: int) -> int:
    """Return a running job's reported start; one in the future (a fast clock) counts as now."""
    if started <= state.now + AHEAD:
        return started
    return record.run.started if record.phase is Phase.RUNNING else state.now


def check_for_foreign_start(state: EngineState, event: str, record: JobRecord, started: int, by: str) -> None:
    """Detect starts by others, ``by`` a user or unknown: a job that this scheduler did not start was run by
    hand; several within a while mean that another scheduler is active, and no more jobs are started.

    A run decision that was given up may have been carried out during its validity. The same holds
    for a decision that the engine does not know: its batch was lost or skipped, or the engine diverged from
    its log afterwards.
    """
    settings = state.settings
    if state.mode != "scheduler" or record.phase in (Phase.DISPATCHED, Phase.RUNNING):
        return
    # A start in the future comes from a wrong clock: it says neither when the job started nor that a decision
    # had expired.
    ahead = started > state.now + AHEAD
    unsure = (state.now if ahead else started) <= state.unsure_until
    if record.facts.state == "S" or (not by and (state.diverged or unsure)):
        return
    if record.attempt.decided >= 0 and (ahead or started <= record.attempt.expires + settings.answer_grace):
        return
    decided = state.unresolved.get(record.id)  # also before the job left and came back
    if decided is not None and started <= decided.until + settings.answer_grace:
        return
    who = by or "somebody else"
    state.alert(event, "by_hand", f"job {record.id} was started by {who}, not by this scheduler")
    if by or not settings.alone or state.foreign:
        return
    state.unexplained_starts = [
        at for at in state.unexplained_starts if at > state.now - settings.alone_within
    ] + [state.now]
    if len(state.unexplained_starts) < settings.alone_starts:
        return
    words = f"job {record.id} {STARTED_BY_SOMEBODY_ELSE}"
    if len(state.unexplained_starts) > 1:
        seconds = state.now - state.unexplained_starts[0]
        before = f"in the {seconds} s before" if seconds else "in the same second"
        words += f", as were {len(state.unexplained_starts) - 1} others {before}"
    state.foreign = words
    state.alert(event, "foreign", f"{state.foreign}: another scheduler is active; no more jobs are started")


def _with_slot(state: EngineState, record: JobRecord) -> JobRecord:
    """Return the record with a slot; a running job with an unreadable request gets one, too."""
    if record.slot < 0:
        request = Request((Chunk(cpus=0),), Place.FREE)
        pools = state.pools_for(record.facts, record.understood)
        slot = state.new_slot(request, max(1, record.understood.walltime), pools)
        record = apply_step(record, Step.GIVEN_SLOT, slot=slot)
    else:
        state.refit(record)
    if record.understood.assumed:
        state.assumed.add(record.slot)
    else:
        state.assumed.discard(record.slot)
    return record


def _same_nodes(a: Sequence[ShareFacts], b: Sequence[ShareFacts]) -> bool:
    if len(a) == len(b) == 1:
        return a[0].node == b[0].node and a[0].cpus == b[0].cpus
    return sorted([(s.node, s.cpus) for s in a]) == sorted([(s.node, s.cpus) for s in b])


def fix_shares(state: EngineState, record: JobRecord) -> None:
    """Fix a running job on its shares, whatever the plan says about them."""
    slot = record.slot
    end = max(record.run_end(state.now), state.now + 1)
    start = min(record.run.started, end - 1)
    state.queue.pop(slot, None)
    state.plan.remove(slot, state.now)
    state.plan.set_duration(slot, end - start, state.now)
    passes = state.open_gates(record.facts)
    takes = takes_for_shares(state.plan, record.understood.request, held_shares(record.facts), passes)
    state.plan.fix(slot, start, takes)
    heapq.heappush(state.ends, (end, slot, record.id))


def _fix_and_watch(state: EngineState, record: JobRecord, end: int) -> None:
    """Fix a job that runs where it was planned, until ``end``."""
    fix_until(state, record, end)
    heapq.heappush(state.ends, (end, record.slot, record.id))


def fix_until(state: EngineState, record: JobRecord, end: int) -> None:
    """Fix a placed job; it holds its placement until ``end``."""
    state.queue.pop(record.slot, None)
    state.plan.fix_in_place(record.slot)
    if end != state.plan.end(record.slot):
        state.plan.set_duration(record.slot, end - state.plan.start(record.slot), state.now)


def on_running_job_altered(state: EngineState, event: str, record: JobRecord, facts: JobFacts) -> None:
    """Apply the server's present description of a running job, with its walltime and shares."""
    understood = state.read_request(facts)
    shares = facts.shares or record.facts.shares
    reported_start = facts.started if facts.started is not None else record.run.started
    started = _correct_start(state, record, reported_start)
    letter = facts.state if facts.state in ("R", "E", "S") else record.facts.state
    facts = replace(facts, shares=shares, started=started, state=letter)
    same_place = _same_nodes(shares, record.facts.shares) and started == record.run.started
    found_again = facts.run_lost != record.facts.run_lost
    run = record.run.with_letter(letter, state.now)
    went_on = record.run.suspended_since >= 0 and letter != "S"
    if same_place and understood.walltime == record.understood.walltime and not went_on and not found_again:
        state.store_record(apply_step(record, Step.RUN_AGAIN, facts=facts, understood=understood, run=run))
        return
    unblock_nodes(state, record.id, event)
    if started == record.run.started:
        run = replace(run, overruns=0)
        if understood.walltime != record.understood.walltime:
            run = replace(run, ordered_walltime=0)  # the server shows the ordered one, or somebody's
    else:
        run = _current_run(state, started, letter)
    new = apply_step(record, Step.RUN_AGAIN, facts=facts, understood=understood, run=run)
    new = state.store_record(_with_slot(state, new))
    state.note_freed(event, f"job {record.id} was altered while it runs")
    fix_shares(state, new)
    _hold_amount(state, new)
    if facts.run_lost and found_again:
        nodes = shorten_list([share.node for share in shares], 5)
        lost = f"the server lists job {record.id} as running on {nodes}, where it is not"
        state.alert(event, "lost_run", f"{lost}; it holds no cores in the plan", record.id)
    words = f"job {record.id} was altered while it runs" if same_place else f"job {record.id} runs there"
    displace_for(state, [new.slot], event, Cause.ADMIN, words)


def hold_new_node(state: EngineState, event: str, names: frozenset[str]) -> None:
    """Fix running jobs on nodes that just became known."""
    for record in list(state.records.values()):
        if record.phase is Phase.RUNNING and any(share.node in names for share in record.facts.shares):
            fix_shares(state, record)
            displace_for(state, [record.slot], event, Cause.ADMIN, f"job {record.id} runs there")


# ---- overruns -----------------------------------------------------------------------------------


def extend_overruns(state: EngineState, event: str) -> None:
    """Extend jobs that should have ended by now.

    Everything over-committed by that is replanned together: many jobs may reach their end at the same time.
    """
    longer: dict[Cause, list[tuple[int, str]]] = {}
    while state.ends:
        end, slot, job_id = state.ends[0]
        record = state.records.get(job_id)
        holds = record is not None and record.slot == slot and state.plan.end(slot) == end
        if holds and end > state.now:
            break
        heapq.heappop(state.ends)  # a job that ended earlier is removed at once
        if record is None or not holds:
            continue
        with JobErrorGuard(state, job_id, event):
            found = _past_end(state, record, end, event)
            if found is not None:
                cause, words = found
                longer.setdefault(cause, []).append((slot, words))
    for cause, these in longer.items():
        words = these[0][1] if len(these) == 1 else f"{these[0][1]} ({len(these) - 1} more jobs, too)"
        displace_for(state, [slot for slot, _ in these], event, cause, words)


def _past_end(state: EngineState, record: JobRecord, end: int, event: str) -> tuple[Cause, str] | None:
    """Extend a job past its planned end. Return cause and text for the jobs displaced by it.

    While the server's state is not known, and at the first call after an outage of the daemon, which may come
    before the events of the time since, a run past its end is no overrun and blocks no nodes.
    """
    unread, late = state.now <= state.unread_until, state.now - end > state.lateness
    if (unread or late) and record.phase is Phase.RUNNING and record.run_end(state.now) <= state.now:
        _extend(state, record, state.settings.overrun_step)
        outage = "the server's state was not known" if unread else "the daemon was down or busy"
        return Cause.OUTAGE, f"job {record.id} may have ended while {outage}"
    if record.phase is Phase.DISPATCHED:
        words = f"job {record.id} should have ended by now, and is not known to have started"
        _extend(state, record, state.settings.overrun_step)
        return Cause.OUTAGE, words
    return _overrun(state, record, event) if record.phase is Phase.RUNNING else None


def _overrun(state: EngineState, record: JobRecord, event: str) -> tuple[Cause, str]:
    """Extend a job past its planned end: it started late, uses its end allowance, or overruns."""
    settings = state.settings
    words = f"job {record.id} {RUNS_PAST_WALLTIME}"
    end = record.run_end(state.now)
    left = end - state.now
    if left > 0:
        _extend(state, record, left)
        if record.run.suspended_since >= 0:
            return Cause.OVERRUN, f"job {record.id} is suspended and holds its nodes for longer"
        return Cause.OVERRUN, f"job {record.id} started later than planned and runs on"
    over = state.now - end - settings.end_allowance
    if over < 0:
        _extend(state, record, min(settings.overrun_step, -over))
        return Cause.OVERRUN, words
    step = min(settings.overrun_step << min(record.run.overruns, 20), settings.overrun_most)
    if over < settings.overrun_blocked:
        # the time when its nodes become blocked must not be missed
        step = min(step, settings.overrun_blocked - over)
    record = state.store_record(
        apply_step(record, Step.OVERRAN, run=replace(record.run, overruns=record.run.overruns + 1))
    )
    _extend(state, record, step)
    # A job without walltime is ended by no one: an overrun says nothing about its nodes.
    late = over >= settings.overrun_blocked and not record.understood.assumed
    if late and block_nodes(state, record, event, words):
        nodes = ", ".join(share.node for share in record.facts.shares)  # the history of nodes reads all
        past = f"job {record.id} is {over} s past its walltime: {nodes} counts as blocked"
        state.alert(event, "overrun", past, record.id)
    return Cause.OVERRUN, words


def _extend(state: EngineState, record: JobRecord, step: int) -> None:
    end = state.now + step
    state.plan.set_duration(record.slot, end - state.plan.start(record.slot), state.now)
    heapq.heappush(state.ends, (end, record.slot, record.id))
