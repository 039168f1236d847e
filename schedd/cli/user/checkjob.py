"""``checkjob``: everything about one job: its request, what blocks it, how its start moved."""

import argparse
from collections.abc import Iterator, Sequence

from schedd.cli.user.array_text import find_array, show_array
from schedd.cli.user.command_session import (
    NO_START_CODE,
    Session,
    add_federation_option,
    make_command_parser,
    run_command,
    show_json,
)
from schedd.cli.user.ended_job import show_ended_job
from schedd.cli.user.formatting import format_duration, format_rows, format_time, wrap_indented
from schedd.cli.user.job_text import (
    describe_blocker,
    describe_change,
    explanation_members,
    format_time_and_distance,
)
from schedd.cli.user.showstart import job_title, start_rows
from schedd.client import Client, Refused
from schedd.client.answers import Explanation, JobView, PriorityView

_LETTERS = {
    "Q": "queued",
    "H": "held",
    "W": "waiting for its time",
    "R": "running",
    "E": "exiting",
    "T": "in transit",
    "S": "suspended",
    "B": "an array that has begun",
}
_HOLDS = {"u": "user", "o": "operator", "s": "system", "l": "slot limit of its array"}
_LABELS = {"qos": "QOS"}  # names of labels for readers; others are shown as they are


def make_parser(name: str = "checkjob") -> argparse.ArgumentParser:
    found = make_command_parser(
        name,
        "Show everything about a job: its request, its start and why not sooner, all blockers, and "
        "how its planned start moved.",
        one=NO_START_CODE,
    )
    found.add_argument("job", metavar="JOB", help="123, 123.server or 123[4]")
    add_federation_option(found, "a job")
    return found


def run(argv: Sequence[str], name: str = "checkjob") -> int:
    found = make_parser(name)
    if "--federation" in argv:
        from schedd.federation.commands.jobs import show_job  # noqa: PLC0415 (needed only with a federation)

        return show_job(found, argv, briefly=False)
    return run_command(found, _show_job, argv)


def _show_job(session: Session, args: argparse.Namespace) -> bool:
    client, now = session.client, session.now
    try:
        job, found = client.explained_job(args.job)
    except Refused as error:
        if array := find_array(client, args.job):
            return show_array(array, client, now, as_json=args.json)
        return show_ended_job(session, args.job, error, as_json=args.json)
    priority = _waiting_priority(client, job)
    if args.json:
        history = {"changes": found.moves, "promise_ended": found.promise_ended}
        explained = explanation_members(found)
        show_json({"job": job, "explain": explained, "history": history, "priority": priority})
        return job.planned_start is not None
    print(job_title(job) + "\n")
    run_time = [*_run_time_rows(client, job), *_tighter_walltime_rows(client, job)]
    print(format_rows([*_request_rows(job, now), *start_rows(job, found, now), *run_time]))
    for text in (_blockers_text(found, now), _formula_text(priority), _moves_text(found, now)):
        if text:
            print("\n" + text)
    return job.planned_start is not None


def _request_rows(job: JobView, now: int) -> Iterator[tuple[str, str]]:
    letter = job.job_state
    yield "state", f"{letter}, {_LETTERS.get(letter, 'as the server says')}"
    asks = ", ".join(f"{name}={value}" for name, value in sorted(job.resources.items()))
    yield "asks for", asks or "nothing in particular"
    more = [f"group {job.group}"] if job.group else []
    more += [f"account {job.account}"] if job.account else []
    more += [f"{_LABELS.get(kind, kind)} {name}" for kind, name in job.labels.items()]
    more += [f"priority {job.priority}"] if job.priority else []
    if more:
        yield "counts for", ", ".join(more)
    yield "submitted", format_time_and_distance(job.submitted, now)
    if job.eligible_since is not None and job.eligible_since != job.submitted:
        yield "eligible", format_time_and_distance(job.eligible_since, now)
    if job.holds.strip("n"):
        yield "holds", ", ".join(_HOLDS.get(letter, letter) for letter in job.holds)
    if job.depend:
        yield "depends on", job.depend


def _run_time_rows(client: Client, job: JobView) -> Iterator[tuple[str, str]]:
    """Of a job that says how much it does, and how fast."""
    if not any(name.removeprefix("x.") == "work_units" for name in job.resources):
        return
    found = client.run_time(job.id)
    if found.p50 is not None and found.p90 is not None:
        half, most = format_duration(found.p50), format_duration(found.p90)
        by = "its throughput where it is planned" if found.source == "throughput" else "others like it"
        yield (
            "run time",
            f"{half} by {by}; 90 % by {most}",
        )
    if found.too_short:
        yield "", "longer than its walltime: it would be killed there"
    for one in found.on:
        where = f"{one.nodes} nodes: {', '.join(one.some[:3])}{' …' if one.nodes > 3 else ''}"
        yield f"at {one.rate:g}/s", f"{format_duration(one.run_time)} on {where}"
    ended = found.past
    if ended is not None and ended.median_error is not None:
        yield "so far", f"off by {100 * ended.median_error:.0f} % in the median of {ended.jobs} jobs"


def _tighter_walltime_rows(client: Client, job: JobView) -> Iterator[tuple[str, str]]:
    """Of a waiting job: how much sooner it would start with the walltime that 90 % of such jobs keep."""
    if job.job_state != "Q" or job.planned_start is None:
        return
    try:
        found = client.tighter_walltime(job.id)
    except Refused:  # the planner is busy
        return
    if found is not None:
        gain = format_duration(found.planned_start - found.sooner_start)
        yield (
            "tighter",
            f"walltime={format_duration(found.enough)} would start it {gain} sooner as planned now;",
        )
        yield "", f"{100 * found.risk:.0f} % of such jobs run longer and would be killed"


def _blockers_text(found: Explanation, now: int) -> str:
    """All blockers, where they are more than `start_rows` names."""
    if found.earliest is None or not (found.blockers or found.hidden):
        return ""
    start = _format_start(found.earliest, now)
    lines = [f"If all these were gone, it could start {start} on some nodes:"]
    lines += [wrap_indented(describe_blocker(one, now)) for one in found.blockers]
    if found.hidden:
        lines.append(f"  jobs of other users: {found.hidden}")
    return "\n".join(lines)


def _waiting_priority(client: Client, job: JobView) -> PriorityView | None:
    """The priority of a job that waits; None if it runs, or the daemon had no time to answer."""
    if job.job_state not in ("Q", "H", "W"):
        return None
    try:
        return client.priority(job.id)
    except Refused:
        return None


def _formula_text(priority: PriorityView | None) -> str:
    """The value by a formula, with the share of each part and the value of each name."""
    if priority is None or not priority.formula:
        return ""
    lines = [f"Its value by {priority.formula_source} is {priority.total:.6g}:"]
    if priority.failing:
        lines.append(
            wrap_indented(f"the formula has no value, which counts as 0: {priority.failing} has none")
        )
    lines += [wrap_indented(f"{one.points:+.6g}  {one.name}") for one in priority.terms]
    values = [
        f"{one.name} = {value if isinstance(value := one.value, str) else f'{value:.6g}'}"
        for one in priority.names
    ]
    if values:
        lines.append(wrap_indented(f"with {', '.join(values)}"))
    if priority.threshold is not None:
        lines.append(wrap_indented(f"jobs with a value of {priority.threshold:.6g} or less are not planned"))
    return "\n".join(lines)


def _format_start(time: int, now: int) -> str:
    return "now" if time <= now + 1 else f"at {format_time(time, now)}"


def _moves_text(found: Explanation, now: int) -> str:
    if not found.moves:
        return ""
    lines = ["How its start moved, the latest first:"]
    for change in found.moves:
        after = format_time(change.after, now) if change.after is not None else "not known"
        lines.append(wrap_indented(f"{after}  decided {describe_change(change, now)}"))
    ended = found.promise_ended
    if ended is not None:
        when_ended = f"{format_duration(now - ended.time)} ago: {ended.words}"
        lines.append(f"Its promise of {format_time(ended.promised, now)} ended {when_ended}")
    return "\n".join(lines)
