"""Life cycle of jobs (start, end, requeue, delete, purge) and the simulated time."""

from collections.abc import Iterable

from server_adapter.emulator.dependencies import parse_depend, unmet_conditions
from server_adapter.emulator.destination import find_slots, parse_destination, requested_gpu_mode
from server_adapter.emulator.errors import RefusalError, refusal
from server_adapter.emulator.jobs import Job, JobState
from server_adapter.emulator.nodes import EmulatedNode
from server_adapter.emulator.principal import demand_live
from server_adapter.emulator.state import Cluster
from server_adapter.torque.codes import SchedulerCommand
from server_adapter.torque.errors import TorqueErrorCode
from server_adapter.torque.notation import seconds

KILLED_BY_USER = 271  # 256 + SIGTERM
OVER_WALLTIME = -11


def advance(cluster: Cluster, now: float) -> None:
    """Advance the simulated time to `now`, running each timer at its own time."""
    for when, action in cluster.timers.pop_expired(now):
        cluster.now = max(cluster.now, when)
        action()
    cluster.now = max(cluster.now, now)


def settle(cluster: Cluster, job: Job) -> None:
    """Set the state of a job without slots by its holds and its start time."""
    if job.active or job.finished or job.state is JobState.TRANSIT:
        return
    if job.holds:
        state = JobState.HELD
    elif job.not_before is not None and job.not_before > cluster.now:
        state = JobState.WAITING
        cluster.timers.at(job.not_before, lambda: _wake(cluster, job))
    else:
        state = JobState.QUEUED
    if job.eligible is None and (state is JobState.QUEUED or job.holds == {"l"}):
        job.eligible = cluster.now
    if state is not job.state:
        job.state = state
        job.touch(cluster.now)
        if state is JobState.QUEUED:
            cluster.poke(SchedulerCommand.NEW)


def _wake(cluster: Cluster, job: Job) -> None:
    if job.state is JobState.WAITING:
        settle(cluster, job)


def start(cluster: Cluster, job: Job, destination: str, *, synchronous: bool) -> None:
    """Start a job like RunJob: holds and the job's own request are not checked.

    Raises refusals 15018 (wrong state), 15004 (stopped queue), 15064, 15046 (nodes), or those of injected
    faults.
    """
    demand_live(job)
    if job.active:
        raise refusal(TorqueErrorCode.BADSTATE, "job already running")
    if not cluster.queue(job.queue).started and not cluster.version.runs_in_stopped_queue:
        raise refusal(TorqueErrorCode.IVALREQ, "attempt to start job in non-started queue")
    text = destination or job.resources.get("neednodes") or job.resources.get("nodes") or "1"
    plain = cluster.version.plain_destination
    parts = parse_destination(text, cluster.nodes, plain=plain)
    chosen = find_slots(parts, cluster.nodes)
    if cluster.faults.refuses(job.id):
        raise RefusalError(cluster.faults.refusal_code)
    # A mom may be dead before the server notices, or refuse the job.
    reached = all(one.node.alive for one in chosen)
    reached = reached and not cluster.faults.rejects(one.node.name for one in chosen)
    if synchronous and not reached:
        raise RefusalError(TorqueErrorCode.MOMREJECT)
    crowd = _crowding(cluster, job)
    if synchronous and crowd:
        raise refusal(TorqueErrorCode.IVALREQ, crowd)
    job.held_slots = tuple((one.node.name, one.node.assign_slots(one.slots, job.id)) for one in chosen)
    job.gpu_mode = requested_gpu_mode(parts)
    gpus = [(one.node, one.node.assign_gpus(one.gpus, job.id, job.gpu_mode)) for one in chosen if one.gpus]
    job.exec_gpus = "+".join(f"{node.name}-gpu/{number}" for node, numbers in gpus for number in numbers)
    ports = {node.name: node.mom_port + 1 for node in cluster.nodes.values()}
    job.exec_host = cluster.version.exec_host(job.held_slots)
    job.exec_port = cluster.version.exec_port(job.held_slots, ports)
    begin(cluster, job, taken=synchronous or (reached and not crowd and not cluster.faults.returns.hit()))


def _crowding(cluster: Cluster, job: Job) -> str:
    """Return the reason if the job's array has as many running subjobs as its slot limit permits."""
    limit = job.attributes.get("slot_limit")
    running = (
        sum(other.active for other in cluster.array(job.array)) if limit is not None and job.array else -1
    )
    if limit is None or running < int(limit):
        return ""
    return f"Cannot run job. Array slot limit is {limit} and there are already {running} jobs running"


def begin(cluster: Cluster, job: Job, *, taken: bool) -> None:
    """Start a job that holds its slots; if not `taken`, the mom refuses it `timing.refused` s later."""
    cluster.queue(job.queue).used = True
    job.state = JobState.RUNNING
    job.requeueing = False
    job.run += 1
    cluster.runs[job.id] = cluster.runs.get(job.id, 0) + 1
    job.touch(cluster.now)
    run = job.run
    if not taken:
        cluster.timers.at(cluster.now + cluster.timing.refused, lambda: _returned(cluster, job, run))
        return
    job.start_time = job.started = cluster.now
    job.start_count += 1
    cluster.next_session += 1
    job.session = cluster.next_session
    _plan_end(cluster, job, run)
    release_dependents(cluster)


def _plan_end(cluster: Cluster, job: Job, run: int) -> None:
    outcome = job.order.outcome or cluster.outcome(job.order)
    runtime, status = outcome.runtime, outcome.exit_status
    if job.checkpointed:
        runtime, job.checkpointed = job.left, False
    if cluster.faults.fails_next():
        runtime, status = min(runtime, 1.0), 1
    job.suspended_s = 0.0
    job.program_ends, job.program_exits = cluster.now + runtime, status
    _set_end(cluster, job, run)


def _set_end(cluster: Cluster, job: Job, run: int) -> None:
    """Set the end of a run: the end of its program, or an earlier one by its walltime."""
    job.ends, job.will_exit = job.program_ends, job.program_exits
    walltime = job.resources.get("walltime")
    if walltime is not None and job.started is not None:
        killed = _killed_at(cluster, job, job.started + job.suspended_s + seconds(walltime))
        if job.ends > killed:
            job.ends, job.will_exit = max(cluster.now, killed), OVER_WALLTIME
    _end_at(cluster, job, run, job.will_exit)


def _end_at(cluster: Cluster, job: Job, run: int, status: int) -> None:
    """Let a run end at the job's present end, unless that is changed until then."""
    ends = job.ends or cluster.now
    cluster.timers.at(ends, lambda: _ended(cluster, job, run, status) if job.ends == ends else None)


def follow_walltime(cluster: Cluster, job: Job) -> None:
    """Apply an altered walltime to a running job: the server sends it to the mother superior."""
    if job.state is JobState.RUNNING and job.ends is not None:
        _set_end(cluster, job, job.run)


def stop(cluster: Cluster, job: Job) -> None:
    """Release the slots of a running job and stop its program."""
    release(cluster, job)
    job.run += 1
    job.left, job.ends = (job.ends or cluster.now) - cluster.now, None
    job.stopped = cluster.now


def go_on(cluster: Cluster, job: Job) -> None:
    """Continue the program of a stopped job, which has slots again, for its remaining time."""
    run, status = job.run, job.will_exit
    job.ends = cluster.now + job.left
    stopped = cluster.now - job.stopped
    job.suspended_s, job.program_ends = job.suspended_s + stopped, job.program_ends + stopped
    _end_at(cluster, job, run, status)


def declares_checkpoint(job: Job) -> bool:
    """Return whether a job has declared that it can be checkpointed while it runs (`qsub -c`)."""
    words = job.attributes.get("Checkpoint", "u").split(",")
    return any(word.partition("=")[0] in ("s", "c", "w", "enabled", "shutdown") for word in words)


def checkpoint(cluster: Cluster, job: Job) -> None:
    """End the run of a held job with a checkpoint, from which it goes on at its next start."""
    job.left, job.checkpointed = (job.ends or cluster.now) - cluster.now, True
    release(cluster, job)
    job.run += 1
    job.exec_host = job.exec_port = job.exec_gpus = ""
    job.session = job.start_time = job.started = job.ends = None
    job.state = JobState.HELD
    job.touch(cluster.now)
    cluster.poke(SchedulerCommand.TERM)


def _killed_at(cluster: Cluster, job: Job, limit: float) -> float:
    """Return when the mother superior ends the job: at its first poll after the limit."""
    period = cluster.timing.check_poll
    if not period:
        return limit
    first = job.held_slots[0][0] if job.held_slots else ""
    phase = cluster.nodes[first].mom_port * 0.37 % period if first in cluster.nodes else 0.0
    return limit + period - (limit - phase) % period


def _returned(cluster: Cluster, job: Job, run: int) -> None:
    if job.state is JobState.RUNNING and job.run == run:
        release(cluster, job)
        job.exec_host = job.exec_port = job.exec_gpus = ""
        job.state = JobState.QUEUED
        cluster.returned[job.id] = cluster.returned.get(job.id, 0) + 1
        job.touch(cluster.now)
        cluster.poke(SchedulerCommand.NEW)


def _ended(cluster: Cluster, job: Job, run: int, status: int) -> None:
    if job.run != run or not job.active or not _alive(cluster, job):
        return  # an earlier run, or the mother superior is dead: see `revive`
    if job.state is JobState.RUNNING:
        job.state = JobState.EXITING
        job.touch(cluster.now)
    job.exit_status = status
    cluster.timers.at(cluster.now + cluster.timing.obit, lambda: _obit(cluster, job, run))


def _alive(cluster: Cluster, job: Job) -> bool:
    first = job.held_slots[0][0] if job.held_slots else None
    return first is None or first not in cluster.nodes or cluster.nodes[first].alive


def _obit(cluster: Cluster, job: Job, run: int) -> None:
    if job.run == run and job.active:
        release(cluster, job)
        complete(cluster, job)


def complete(cluster: Cluster, job: Job) -> None:
    """Ends a job's life; it stays in the list for `retention_s` seconds."""
    ran = job.active
    if ran and job.started is not None:
        job.runtime = cluster.now - job.started
    job.state = JobState.COMPLETE
    job.completed = cluster.now
    job.touch(cluster.now)
    cluster.on_complete(ran)
    if ran:
        cluster.poke(SchedulerCommand.TERM)
    completed = cluster.now
    cluster.timers.at(completed + cluster.retention_s, lambda: _forget(cluster, job, completed))
    release_dependents(cluster)
    if job.array is not None:
        apply_slot_limit(cluster, cluster.array(job.array))


def _forget(cluster: Cluster, job: Job, completed: float) -> None:
    if job.finished and job.completed == completed:  # else it was rerun meanwhile
        purge(cluster, job)


def purge(cluster: Cluster, job: Job) -> None:
    """Remove a job completely."""
    release(cluster, job)
    if cluster.jobs.pop(job.id, None) is not None:
        cluster.poke(SchedulerCommand.TERM)
    if job.array in cluster.arrays:
        members = cluster.arrays[job.array]
        members.pop(job.id, None)
        if not members:
            del cluster.arrays[job.array]


def delete(cluster: Cluster, job: Job) -> None:
    """Delete a job (qdel). A running job holds its slots until its program is dead. Raises refusal 15018."""
    demand_live(job)
    if not job.active:
        job.delete_requested = True
        complete(cluster, job)
    elif not job.delete_requested:
        job.delete_requested = True
        job.state = JobState.EXITING
        job.touch(cluster.now)
        cluster.poke(SchedulerCommand.TERM)
        run = job.run
        cluster.timers.at(
            cluster.now + cluster.timing.kill, lambda: _ended(cluster, job, run, KILLED_BY_USER)
        )


def can_requeue(cluster: Cluster, job: Job) -> bool:
    """Return whether the job can be requeued: it is running or complete. Raises refusal 15018."""
    if job.state is JobState.QUEUED and cluster.version.reruns_queued:
        return False
    if job.state in (JobState.QUEUED, JobState.HELD, JobState.WAITING):
        raise refusal(TorqueErrorCode.BADSTATE, f"job {job.id} is in a bad state")
    return True


def requeue(cluster: Cluster, job: Job) -> None:
    """Requeue a job that `can_requeue` (qrerun). Raises refusal 15040."""
    if not job.order.rerunnable:
        raise refusal(TorqueErrorCode.NORERUN, f"job {job.id} not rerunnable")
    if cluster.faults.rerun_time and job.state is JobState.RUNNING:
        run, job.requeueing = job.run, True
        job.touch(cluster.now)
        cluster.timers.at(cluster.now + cluster.faults.rerun_time, lambda: _requeued(cluster, job, run))
    else:
        _put_back(cluster, job)


def requeue_all(cluster: Cluster) -> None:
    """Requeue all running jobs, and end those that may not be, like a server that is shut down at once."""
    for job in list(cluster.jobs.values()):
        if job.state is JobState.RUNNING and job.order.rerunnable:
            _put_back(cluster, job)
        elif job.state is JobState.RUNNING:
            release(cluster, job)
            complete(cluster, job)


def _requeued(cluster: Cluster, job: Job, run: int) -> None:
    if job.run == run and job.active:
        _put_back(cluster, job)


def _put_back(cluster: Cluster, job: Job) -> None:
    release(cluster, job)
    job.run += 1
    job.requeueing = False
    job.exec_host = job.exec_port = job.exec_gpus = ""
    job.run_ended = cluster.now
    if not job.finished:  # a finished job keeps its session and start time
        job.session = job.start_time = None
    job.started = job.ends = job.completed = job.runtime = None
    job.delete_requested = False
    job.state = JobState.HELD if job.holds else JobState.QUEUED
    job.touch(cluster.now)
    if job.state is JobState.QUEUED:
        cluster.poke(SchedulerCommand.NEW)


def end_by_term(cluster: Cluster, job: Job) -> None:
    """End a job as finished, like TORQUE by the SIGTERM of a rerun or a signal on several nodes."""
    run = job.run
    cluster.timers.at(cluster.now + cluster.timing.kill, lambda: _ended(cluster, job, run, 0))


def release_dependents(cluster: Cluster) -> None:
    """Release jobs with fulfilled conditions; delete jobs with conditions that can never be fulfilled."""
    for name in sorted(cluster.dependents):
        job = cluster.jobs.get(name)
        if job is None or job.finished or "d" not in job.holds:
            cluster.dependents.discard(name)
            continue
        conditions = list(unmet_conditions(job, cluster.jobs))
        if any(answer is None for _, answer in conditions):
            job.delete_requested = True
            complete(cluster, job)
        elif not conditions:
            job.holds.discard("d")
            cluster.dependents.discard(name)
            for condition in parse_depend(job.depend):
                if condition.job in cluster.jobs:
                    cluster.jobs[condition.job].revision += 1
            settle(cluster, job)


def apply_slot_limit(cluster: Cluster, members: Iterable[Job]) -> None:
    """Release subjobs from the hold `l` up to the array's slot limit."""
    live = [job for job in members if not job.finished]
    limit = next((int(job.attributes["slot_limit"]) for job in live if "slot_limit" in job.attributes), None)
    if limit is None:
        return
    free = sum("l" not in job.holds for job in live)
    for job in live:
        if "l" in job.holds and free < limit:
            job.holds.discard("l")
            free += 1
            settle(cluster, job)


def kill(cluster: Cluster, node: EmulatedNode) -> None:
    """Kill the node's mom. The server notices `node_check` seconds later, without calling its scheduler."""
    node.alive = False

    def notice() -> None:
        if not node.alive:
            node.down = True

    cluster.timers.at(cluster.now + cluster.timing.node_check, notice)


def revive(cluster: Cluster, node: EmulatedNode) -> None:
    """Restart the node's mom, which reports the jobs that have ended meanwhile."""
    node.alive, node.down = True, False
    node.reported = int(cluster.now)
    for job in [job for job in cluster.live_jobs() if job.active and job.held_slots]:
        if job.held_slots[0][0] != node.name:
            continue
        if job.delete_requested:
            _ended(cluster, job, job.run, KILLED_BY_USER)
        elif job.ends is not None and job.ends <= cluster.now:
            _ended(cluster, job, job.run, job.will_exit)


def release(cluster: Cluster, job: Job) -> None:
    """Free the slots of a job."""
    for name, _ in job.held_slots:
        if name in cluster.nodes:
            cluster.nodes[name].release(job.id)
    job.held_slots = ()
