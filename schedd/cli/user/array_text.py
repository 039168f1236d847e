"""A job array as a whole, for ``checkjob`` and ``showstart``."""

from collections.abc import Iterator
from contextlib import suppress

from schedd.cli.user.command_session import show_json
from schedd.cli.user.formatting import format_duration, format_rows
from schedd.cli.user.job_text import describe_job_start, format_start, format_time_and_distance
from schedd.client import Client, Refused
from schedd.client.answers import ArrayView
from schedd.client.json_object import json_members
from schedd.start_sentence import format_near_time

_COUNTS = ("waiting", "planned", "running", "ended", "failed", "deleted")


def find_array(client: Client, name: str) -> ArrayView | None:
    """Return the array of an id that names no job, such as `123[]` or `123`; None if there is none.

    Raises Refused only for an id with brackets, which names an array.
    """
    if "[" in name and "[]" not in name:
        return None
    try:
        return client.array(name)
    except Refused:
        if "[]" in name:
            raise
        return None


def show_array(found: ArrayView, client: Client, now: int, *, as_json: bool) -> bool:
    """Print an array: next start, subjobs by state, last end. Return whether the last end is known."""
    next_job = None
    if found.next_job:
        with suppress(Refused):  # it ended meanwhile
            next_job = client.job(found.next_job)
    if as_json:
        show_json({**json_members(found), "next": next_job} if next_job is not None else found)
        return found.last_end is not None
    lines = []
    if next_job is not None:
        start = format_start(describe_job_start(next_job, now), now)
        lines.append(("next start", f"{start}: {next_job.id}"))
    lines += _count_rows(found, now)
    print(f"array {found.array}: {found.owner}\n")
    print(format_rows(lines))
    return found.last_end is not None


def _count_rows(found: ArrayView, now: int) -> Iterator[tuple[str, str]]:
    members = json_members(found)
    yield "jobs", ", ".join(f"{members[one]} {one}" for one in _COUNTS if members[one])
    yield "submitted", format_time_and_distance(found.submitted, now)
    if found.first_end is not None:
        yield "first end", format_time_and_distance(found.first_end, now)
    if found.last_end is None:
        yield "last end", "not known: a job has no start"
    else:
        yield "last end", format_time_and_distance(found.last_end, now)
        if found.last_end > now:
            yield "all done", f"by {format_near_time(found.last_end, now)}, at full walltimes"
    if found.stretch_s is not None and found.stretch is not None:
        share = f"{100 * found.stretch:.1f} % of its time in the system (stretch factor)"
        yield "spread", f"{format_duration(found.stretch_s)} from the first end to the last, {share}"
