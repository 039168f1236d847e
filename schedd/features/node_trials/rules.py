"""Trials of nodes that get no new jobs because jobs fail on them.

After a pause the node is opened for jobs that end within the longest walltime of a trial. The first job that
is dispatched there tries it, and the node is closed for all others. If the job fails early, or the node
refuses it, the pause doubles; otherwise the node is opened.

The pause is short while jobs only come back to their queue: a trial then costs no job.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from schedd.engine.facts.explanations import format_length, format_moment
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.shares import BLOCK, block_takes
from schedd.engine.facts.state import HORIZON, EngineState
from schedd.engine.machine.nodes import refresh_nodes
from schedd.engine.place.placement import place_unplaced
from schedd.features.node_trials.settings import NodeTrialSettings
from schedd.features.node_trials.state import NodeTrial, trial_records
from schedd.model import FOREVER
from schedd.name_list import name_node

_HARMLESS_PAUSE_S: Final = 60


def _settings(state: EngineState) -> NodeTrialSettings:
    return state.site.part(NodeTrialSettings)


def close_node(state: EngineState, name: str, job: str) -> str:
    """Plan the first trial of a node that was closed because jobs failed there, the last of them ``job``.
    Return what opens it again; empty without trials.
    """
    settings = _settings(state)
    if not settings.pause:
        return ""
    pause = _first_pause(state, job)
    trial = NodeTrial(name, state.now + pause, pause)
    trial_records(state)[name] = trial
    return (
        f"a job of up to {format_length(settings.walltime)} has succeeded there (one may try it from "
        f"{format_moment(trial.again_at)} on)"
    )


def follow_settings(state: EngineState) -> None:
    """Plan the trials of nodes that were closed before trials were switched on."""
    for name in state.black_holes:
        if name not in trial_records(state):
            close_node(state, name, "")


def _first_pause(state: EngineState, job: str) -> int:
    """Return the pause after a failure of this job: a job that still exists can start elsewhere."""
    pause = _settings(state).pause
    return min(pause, _HARMLESS_PAUSE_S) if job in state.records else pause


def is_open_for_trial(state: EngineState, name: str) -> bool:
    """Return whether a closed node is open for the job that tries it."""
    trial = trial_records(state).get(name)
    return trial is not None and trial.opened >= 0


def follow_trials(state: EngineState, event: str) -> None:
    """Open nodes for trials that are due, and for good after a success."""
    settings = _settings(state)
    for name, trial in list(trial_records(state).items()):
        if name not in state.black_holes or not settings.pause:
            _end(state, name)  # an administrator set it offline, or it was down
            if name in state.black_holes:
                refresh_nodes(state, [name], event, f"{name_node(name)} is not tried", Cause.NODE_LOST)
        elif trial.passed or _has_run_long_enough(state, trial):
            _end(state, name)
            state.black_holes.pop(name, None)
            state.failures.pop(name, None)
            refresh_nodes(state, [name], event, f"a job succeeded on {name_node(name)}")
        elif trial.job:
            record = state.records.get(trial.job)
            if record is None or record.phase not in (Phase.DISPATCHED, Phase.RUNNING):
                _open(state, replace(trial, job=""), event)  # it did not run, or left before it could fail
        elif trial.opened >= 0:
            if state.now >= trial.opened + settings.walltime // 2:
                state.drop_slot(trial.slot)
                _limit(state, trial)
        elif state.now >= trial.again_at and name in state.plan.nodes:
            _open(state, trial, event)


def _has_run_long_enough(state: EngineState, trial: NodeTrial) -> bool:
    """Whether the job of a trial has run for longer than an early failure takes."""
    record = state.records.get(trial.job)
    if record is None or record.phase is not Phase.RUNNING:
        return False
    return state.now > record.run.started + state.settings.hole_within


def _open(state: EngineState, trial: NodeTrial, event: str) -> None:
    _limit(state, trial)
    refresh_nodes(state, [trial.node], event, f"a job may try {name_node(trial.node)}")


def _limit(state: EngineState, trial: NodeTrial) -> None:
    """Let only jobs use the node that end within the longest walltime of a trial from now on."""
    slot = state.new_slot(BLOCK, 2 * HORIZON)
    begin = state.now + _settings(state).walltime
    state.plan.fix(slot, begin, block_takes(state.plan, [trial.node], ""))
    trial_records(state)[trial.node] = replace(trial, opened=state.now, slot=slot)


def _end(state: EngineState, name: str) -> None:
    trial = trial_records(state).pop(name)
    if trial.slot >= 0:
        state.drop_slot(trial.slot)


def start_trial(state: EngineState, record: JobRecord, nodes: Sequence[str], event: str) -> None:
    """Note that a dispatched job tries those of its nodes that are open for a trial, and close them again."""
    tried = [name for name in nodes if is_open_for_trial(state, name)]
    for name in tried:
        trial = trial_records(state)[name]
        state.drop_slot(trial.slot)
        trial_records(state)[name] = replace(trial, opened=-1, slot=-1, job=record.id)
    if tried:
        words = f"job {record.id} tries the node"
        refresh_nodes(state, tried, event, words, Cause.NODE_LOST)
        place_unplaced(state, event, words)  # their explanations name the job


def judge_run(state: EngineState, record: JobRecord, nodes: Sequence[str], event: str, failed: bool) -> None:
    """Note whether the job of a trial failed early, or was refused, on the node that it tried."""
    for name in nodes:
        trial = trial_records(state).get(name)
        if trial is None or trial.job != record.id or trial.passed:
            continue
        if not failed:
            trial_records(state)[name] = replace(trial, passed=True)
            continue
        pause = min(2 * trial.pause, max(trial.pause, _settings(state).longest_pause))
        pause = max(pause, _first_pause(state, record.id))
        again_at = state.now + pause
        trial_records(state)[name] = NodeTrial(name, again_at, pause)
        words = f"job {record.id} tried {name_node(name)} and failed"
        when = f"the next may try it from {format_moment(again_at)} on"
        state.alert(event, "black_hole", f"{words}; {when}", name)
        place_unplaced(state, event, words)  # their explanations name the next trial


def next_trial(state: EngineState) -> int:
    """When a trial is to be followed, later than now; FOREVER: never."""
    if not trial_records(state):
        return FOREVER
    found = [FOREVER]
    for trial in trial_records(state).values():
        record = state.records.get(trial.job)
        if trial.opened >= 0:
            found.append(trial.opened + _settings(state).walltime // 2)
        elif not trial.job:
            found.append(trial.again_at)
        elif record is not None and record.phase is Phase.RUNNING:
            found.append(record.run.started + state.settings.hole_within + 1)
    return min(moment for moment in found if moment > state.now)


def closed_because(state: EngineState, name: str) -> str:
    """Return why a node is closed, with its trial, to follow "node n1 is"; empty: it has no trial."""
    trial = trial_records(state).get(name)
    if trial is None or name not in state.black_holes:
        return ""
    words = "not used, since jobs fail on it"
    if trial.job:
        return f"{words}; job {trial.job} tries it"
    when = "now" if trial.opened >= 0 else f"from {format_moment(trial.again_at)} on"
    return f"{words}; one job of up to {format_length(_settings(state).walltime)} may try it {when}"


def trial_slots(state: EngineState) -> list[int]:
    """The slots that keep long jobs off nodes that are open for a trial."""
    return [one.slot for one in trial_records(state).values() if one.slot >= 0]


def slot_names(state: EngineState) -> dict[int, str]:
    return {one.slot: f"trial of {one.node}" for one in trial_records(state).values() if one.slot >= 0}
