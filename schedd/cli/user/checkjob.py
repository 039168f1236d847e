"""``checkjob``: everything about one job: its request, what blocks it, how its start moved."""

import argparse
from collections.abc import Iterator, Sequence

from schedd.cli.user.asking import Session, answer, parser, show_json
from schedd.cli.user.federated import add_option, show_job
from schedd.cli.user.past import past
from schedd.cli.user.showstart import start_rows, title
from schedd.cli.user.text import moment, rows, span, wrapped
from schedd.cli.user.words import blocked, moved, when
from schedd.client import Client, Refused
from schedd.client.answers import Explanation, JobView, StartHistory

__all__ = ["make_parser", "run"]

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
_MOVES = 20


def make_parser(name: str = "checkjob") -> argparse.ArgumentParser:
    """Its options."""
    found = parser(
        name,
        "Show everything about a job: what it asks for, when it starts and why not sooner, all that is in "
        "its way, and how its planned start moved.",
    )
    found.add_argument("job", metavar="JOB", help="123, 123.server or 123[4]")
    add_option(found, "a job")
    return found


def run(argv: Sequence[str], name: str = "checkjob") -> int:
    """The command."""
    found = make_parser(name)
    if "--federation" in argv:
        return show_job(found, argv, briefly=False)
    return answer(found, _show, argv)


def _show(session: Session, args: argparse.Namespace) -> bool:
    client, now = session.client, session.now
    try:
        job = client.job(args.job)
    except Refused as error:
        if "[]" in args.job:
            return _array(client, args.job, now, as_json=args.json)
        return past(session, args.job, error, as_json=args.json)
    found, history = client.explain(job["id"]), client.history(job["id"], limit=_MOVES)
    if args.json:
        show_json({"job": job, "explain": found, "history": history})
        return job["planned_start"] is not None
    print(title(job) + "\n")
    print(rows([*_request(job, now), *start_rows(job, found, now), *_run_time(client, job)]))
    for text in (_in_the_way(found, now), _moves(history, now)):
        if text:
            print("\n" + text)
    return job["planned_start"] is not None


def _array(client: Client, name: str, now: int, *, as_json: bool) -> bool:
    """An array as a whole."""
    found = client.array(name)
    if as_json:
        show_json(found)
        return found["last_end"] is not None
    counts = ("waiting", "planned", "running", "ended", "failed", "deleted")
    words = [f"{found[one]} {one}" for one in counts if found[one]]  # type: ignore[literal-required]
    lines = [("jobs", ", ".join(words)), ("submitted", when(found["submitted"], now))]
    if found["first_end"] is not None:
        lines.append(("first end", when(found["first_end"], now)))
    last = when(found["last_end"], now) if found["last_end"] is not None else "not known: a job has no start"
    lines.append(("last end", last))
    if found["stretch_s"] is not None and found["stretch"] is not None:
        share = f"{100 * found['stretch']:.1f} % of the response"
        lines.append(
            ("stretch factor", f"{span(found['stretch_s'])} from the first end to the last, {share}")
        )
    print(f"array {found['array']}: {found['owner']}\n")
    print(rows(lines))
    return found["last_end"] is not None


def _request(job: JobView, now: int) -> Iterator[tuple[str, str]]:
    letter = job["job_state"]
    yield "state", f"{letter}, {_LETTERS.get(letter, 'as the server says')}"
    asks = ", ".join(f"{name}={value}" for name, value in sorted(job["resources"].items()))
    yield "asks for", asks or "nothing in particular"
    more = [f"group {job['group']}"] if job["group"] else []
    more += [f"account {job['account']}"] if job["account"] else []
    more += [f"priority {job['priority']}"] if job["priority"] else []
    if more:
        yield "counts for", ", ".join(more)
    yield "submitted", when(job["submitted"], now)
    if job["eligible_since"] is not None and job["eligible_since"] != job["submitted"]:
        yield "eligible", when(job["eligible_since"], now)
    if job["holds"].strip("n"):
        yield "holds", job["holds"]
    if job["depend"]:
        yield "depends on", job["depend"]


def _run_time(client: Client, job: JobView) -> Iterator[tuple[str, str]]:
    """Of a job that says how much it does, and how fast."""
    if not any(name.removeprefix("x.") == "work_units" for name in job["resources"]):
        return
    found = client.run_time(job["id"])
    if found["p50"] is not None and found["p90"] is not None:
        by = "its throughput where it is planned" if found["source"] == "throughput" else "others like it"
        yield "run time", f"{span(found['p50'])} by {by}; {span(found['p90'])} at most in nine of ten cases"
    if found["too_short"]:
        yield "", "longer than its walltime: it would be killed there"
    for one in found["on"]:
        where = f"{one['nodes']} nodes: {', '.join(one['some'][:3])}{' …' if one['nodes'] > 3 else ''}"
        yield f"at {one['rate']:g}/s", f"{span(one['run_time'])} on {where}"
    past = found["past"]
    if past is not None and past["median_error"] is not None:
        yield "so far", f"off by {100 * past['median_error']:.0f} % in the median of {past['jobs']} jobs"


def _in_the_way(found: Explanation, now: int) -> str:
    """All blockers, where they are more than `start_rows` names."""
    if found["earliest"] is None or not (found["blockers"] or found["hidden"]):
        return ""
    lines = [f"To start {_at(found['earliest'], now)}, these would have to be out of its way:"]
    lines += [wrapped(blocked(one, now)) for one in found["blockers"]]
    if found["hidden"]:
        lines.append(f"  jobs of other users: {found['hidden']}")
    return "\n".join(lines)


def _at(time: int, now: int) -> str:
    return "now" if time <= now else f"at {moment(time, now)}"


def _moves(history: StartHistory, now: int) -> str:
    if not history["changes"]:
        return ""
    lines = ["How its start moved, the latest first:"]
    for change in history["changes"]:
        after = moment(change["after"], now) if change["after"] is not None else "not known"
        lines.append(wrapped(f"{after}  decided {moved(change, now)}"))
    ended = history["promise_ended"]
    if ended is not None:
        when_ended = f"{span(now - ended['time'])} ago: {ended['words']}"
        lines.append(f"Its promise of {moment(ended['promised'], now)} ended {when_ended}")
    return "\n".join(lines)
