"""A job that has left the plan."""

from collections.abc import Iterator

from schedd.cli.user.command_session import Session, show_json
from schedd.cli.user.formatting import (
    format_duration,
    format_rows,
    format_time,
    strip_controls,
    wrap_indented,
)
from schedd.cli.user.job_text import format_time_and_distance
from schedd.client import Refused
from schedd.client.answers import EndedJobView
from schedd.name_list import shorten_list
from schedd.start_sentence import history_entry_parts

_MAX_NODES_SHOWN = 6


def show_ended_job(
    session: Session, wanted: str, error: Refused, *, as_json: bool, briefly: bool = False
) -> bool:
    """Print the record of a job that has left the plan; whether its start is known.

    Raises Refused: ``error`` if it is not about an unknown job, or the daemon's present error.
    """
    if error.kind != "unknown-job" or error.hint.startswith("did you mean"):
        raise error
    history = session.client.history(wanted)
    found, now = history.past, session.now
    if found is None:  # it came back this moment
        raise error
    if as_json:
        show_json({"job": None, "explain": None, "history": history})
        return found.started is not None
    name = f" {found.name}" if found.name else ""
    # The log may know of a job before the plan does, and of its end later than that.
    stands = "is not in the plan now" if found.ended is None else "is over"
    print(strip_controls(f"job {history.job}{name}: {found.owner}, {found.queue}, {stands}") + "\n")
    print(format_rows(list(_job_rows(found, now, briefly=briefly))))
    if not briefly and found.moments:
        print("\nWhat happened to it:")
        for one in found.moments:
            kind = [] if one.kind == "event" else [f"{one.kind} {one.decision}".rstrip()]
            words = one.words
            if one.start is not None:
                words = format_time(one.start, now).join(history_entry_parts(one.kind, words))
            text = ": ".join([*kind, words] if words else kind)
            print(wrap_indented(f"{format_time(one.time, now)}  {text}"))
    return found.started is not None


def _compare(started: int, estimate: int, what: str, how: str, now: int) -> str:
    """`likely start Mon 30 Nov 02:54:38; it started 00:05:00 earlier`."""
    off = started - estimate
    ahead = f"{format_duration(abs(off))} {'later' if off > 0 else 'earlier'}" if off else f"as {how}"
    return f"{what} {format_time(estimate, now)}; it started {ahead}"


def _job_rows(found: EndedJobView, now: int, *, briefly: bool) -> Iterator[tuple[str, str]]:
    if not briefly:
        asks = ", ".join(f"{name}={value}" for name, value in sorted(found.resources.items()))
        yield "asked for", asks or "nothing in particular"
    yield "submitted", format_time_and_distance(found.submitted, now)
    started, ended = found.started, found.ended
    if started is not None:
        yield (
            "started",
            format_time_and_distance(started, now) + (f", run {found.runs}" if found.runs > 1 else ""),
        )
        yield "on", shorten_list(found.nodes, _MAX_NODES_SHOWN)
        if found.expected_start is not None:
            yield "forecast", _compare(started, found.expected_start, "likely start", "forecast", now)
        if found.displayed_start is not None:
            yield "planned", _compare(started, found.displayed_start, "start", "planned", now)
    else:
        yield "started", "never"
    if found.promised_start is not None:
        yield "promised", f"at the latest {format_time(found.promised_start, now)}"
    if ended is None:
        yield "ended", "not noted yet"
    else:
        how = {"deleted": ", deleted", "gone": ", when the server listed it no more"}.get(found.how, "")
        if found.how == "moved":
            how = f", moved to {found.moved_to}"
        known = "not known" if found.exit_status is None else str(found.exit_status)
        status = f", exit status {known}" if found.how == "ended" else ""
        yield "ended", format_time_and_distance(ended, now) + how + status
