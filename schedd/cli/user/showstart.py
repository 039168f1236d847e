"""``showstart``: when and where a job starts, and why not sooner; or when a new one would start."""

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import TypedDict

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
from schedd.cli.user.formatting import format_duration, format_rows, format_time, strip_controls
from schedd.cli.user.job_text import (
    describe_change,
    describe_deadline,
    describe_job_start,
    describe_what_if_start,
    explanation_members,
    explanation_rows,
    forecast_age,
    format_due,
    format_due_start,
    format_nodes,
    format_start,
    format_time_and_distance,
)
from schedd.cli.user.time_arguments import parse_coming_time, parse_future_argument
from schedd.client import ClientError, Refused
from schedd.client.answers import (
    CheapestStart,
    Explanation,
    JobView,
    SmallerRequest,
    StartWindow,
    WhatIfResult,
    WhatIfVariantResult,
)
from schedd.deadline_sentence import format_probability
from schedd.name_list import shorten_list
from schedd.start_sentence import (
    SUSPENDED,
    StartSentence,
    describe_cause,
    describe_requested_start,
    describe_start,
    destination_start_facts,
    format_near_time,
    is_likely_no_sooner,
)
from schedd.time_words import WISH_TIMES

_SIZE = re.compile(r"\d+[kmgtp]?[bw]?", re.IGNORECASE)
_NODE_PARTITION = re.compile(r"(?:^|,)\s*node_partition\s*=", re.IGNORECASE)
_TASKS = "tasks="
_ATTRIBUTES = ("depend", "group_list", "x")
_ATTRIBUTE_ENDS = re.compile(r",(?=[A-Za-z_]+=)")
"""Commas between the attributes of one `-W`."""
_MAX_WINDOWS = 4
_SOON_S = 60  # a start within this time is at once, and a window of this length is one moment
_NOTHING_SMALLER = "no single smaller request is enough"
"""Why a forecast may be earlier than the planned start."""
_FORECAST = ("likely", "any time")


def make_parser(name: str = "showstart") -> argparse.ArgumentParser:
    found = make_command_parser(
        name,
        "Show when and where a job starts, its promised start, why it does not start sooner, and why "
        "its start last moved. Or ask for the start of a hypothetical job.",
        "what-if:\n"
        "  2@8@4:00:00              2 nodes with 8 cpus each, for 4 hours\n"
        "  2@8@4:00:00@16gb@ib      with 16 GB in all, on nodes with the feature ib\n"
        "  12@1:00:00               12 cpus anywhere\n"
        "  -l select=2:ncpus=8      as qsub -l takes it\n"
        "  123 -l walltime=1:00:00  a job in the queue, were it altered so\n"
        "  4@1:00:00 -t 1-100%10 -W depend=afterok:123\n"
        "                           a job array that starts after job 123\n"
        "  4@1:00:00 --after 8:00 --before friday\n"
        "                           whether it starts in that time, else what to change\n"
        "  4@4:00:00 --compare walltime=1:00:00\n"
        "                           two requests, one below the other",
        one=NO_START_CODE,
    )
    add = found.add_argument
    what = "a job (123, 123.server, 123[4]), an array (123[]), or a what-if"
    add("what", nargs="?", metavar="JOB|NODES@PPN@WALLTIME", help=what)
    add(
        "-l",
        dest="request",
        metavar="LIST",
        action="append",
        help="a request as for qsub -l; with JOB, the same job with this change",
    )
    add(
        "-L",
        dest="tasks",
        metavar="TASKS",
        action="append",
        default=[],
        help="the same by tasks, as for qsub -L (tasks=8:lprocs=2:memory=4gb)",
    )
    add(
        "--cheapest-by",
        metavar="WHEN",
        help="what-if: the cheapest start that ends by then (2026-12-01T08:00, 08:00 or +2d)",
    )
    add(
        "-t",
        "-J",
        dest="array",
        metavar="RANGE",
        default="",
        help="what-if: a job array, as qsub -t or -J (1-100%%10)",
    )
    add(
        "-W",
        dest="attributes",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="what-if: as for qsub -W: depend=afterok:123, group_list=physics or x=QOS:high",
    )
    add("-A", dest="account", metavar="ACCOUNT", default="", help="what-if: of this account")
    add("-P", dest="project", metavar="PROJECT", default="", help="what-if: of this project")
    add(
        "--compare",
        metavar="LIST",
        default="",
        help="what-if: the same with this change next to it, such as walltime=1:00:00",
    )
    add("--after", "-a", metavar="WHEN", help="what-if: start no earlier than this")
    add(
        "--before",
        metavar="WHEN",
        help=f"start by then; shows the smallest changes for it ({WISH_TIMES})",
    )
    add("--sooner", action="store_true", help="show also the smallest changes for an earlier start")
    add("-q", dest="queue", metavar="QUEUE", default="", help="what-if: use this queue's defaults")
    add(
        "--partition",
        metavar="NAMES",
        default="",
        help="what-if, or JOB altered so: in one of these partitions, a:b",
    )
    add("--qos", metavar="NAME", default="", help="what-if, or JOB altered so: with this QOS")
    add_federation_option(found, "a job")
    return found


def run(argv: Sequence[str], name: str = "showstart") -> int:
    found = make_parser(name)
    if "--federation" in argv:
        from schedd.federation.commands.jobs import show_job  # noqa: PLC0415 (needed only with a federation)

        return show_job(found, argv, briefly=True)
    return run_command(found, _show, argv)


def _show(session: Session, args: argparse.Namespace) -> bool:
    what: str = args.what or ""
    given = _join_lists(args.request, args.tasks)
    if not what and given is None:
        raise ClientError("name a job, or NODES@PPN@WALLTIME, or a list with -l")
    if what and "@" not in what:
        if args.cheapest_by is not None:
            raise ClientError("--cheapest-by applies only to a what-if, not to a job")
        if args.queue:
            raise ClientError("-q applies only to a what-if, not to a job")
        if args.compare:
            raise ClientError("--compare applies only to a what-if; for a job, give -l")
        options = (("-t", args.array), ("-W", args.attributes), ("--after", args.after))
        for option, value in (*options, ("-A", args.account), ("-P", args.project)):
            if value:
                raise ClientError(f"{option} applies only to a what-if, not to a job")
        return _show_job(session, args, given)
    if what and given is not None:
        raise ClientError(f"{what} and -l {given} are two what-ifs")
    request = given if given is not None else expand_shorthand(what)
    request = _with_options(request, args)
    by = parse_coming_time(args.cheapest_by, session.now) if args.cheapest_by is not None else None
    after = parse_future_argument(args.after, session.now) if args.after else None
    attributes = _read_attributes(args.attributes)
    found = session.client.what_if(
        request,
        queue=args.queue,
        not_before=after,
        array=args.array,
        depend=attributes.get("depend", ""),
        group=attributes.get("group_list", "").partition("@")[0],
        account=args.account,
        project=args.project,
        extensions=attributes.get("x", ""),
        variants=[args.compare] if args.compare else [],
        windows=_MAX_WINDOWS,
        cheapest_by=by,
        **_requested_changes(args, session.now),
    )
    if args.json:
        show_json(found)
    else:
        print(found.request + "\n")
        lines = list(_what_if_rows(found, session.now))
        if by is not None:
            lines.append(("cheapest", _format_cheapest(found.cheapest, session.now)))
        print(format_rows(lines))
        _show_variants("compared with", found, session.now)
    return found.planned_start is not None


class _WantedChanges(TypedDict):
    """Arguments of a what-if about changes."""

    changes: bool
    sooner: bool
    start_by: int | None


def _requested_changes(args: argparse.Namespace, now: int) -> _WantedChanges:
    """Return which smallest changes are wanted. Raises ClientError."""
    by = parse_future_argument(args.before, now) if args.before else None
    return {"changes": True, "sooner": args.sooner, "start_by": by}


def _join_lists(lists: Sequence[str] | None, tasks: Sequence[str]) -> str | None:
    """Return the lists of all `-l` and `-L` as one; None: there are none. Raises ClientError."""
    for one in tasks:
        if not one.startswith(_TASKS):
            raise ClientError(f"-L {one}: write tasks=N:lprocs=C:memory=M")
    joined = _TASKS + "+".join(one.removeprefix(_TASKS) for one in tasks)
    parts = [*(lists or []), *([joined] if tasks else [])]
    return ",".join(parts) if parts else None


def _read_attributes(given: Sequence[str]) -> dict[str, str]:
    """Return the attributes of all `-W`, by name. Raises ClientError."""
    found = {}
    for text in (one for words in given for one in _ATTRIBUTE_ENDS.split(words)):
        name, equals, value = text.strip().partition("=")
        if name not in _ATTRIBUTES or not equals or not value:
            raise ClientError(
                f"-W {text}: only depend=LIST, group_list=GROUP and x=EXTENSIONS are read here, such as "
                "depend=afterok:123"
            )
        found[name] = value
    return found


def _with_options(request: str, args: argparse.Namespace) -> str:
    """Return a request with ``--partition`` and ``--qos``. Raises ClientError for two partitions."""
    if args.partition and _NODE_PARTITION.search(request):
        raise ClientError(f"--partition {args.partition} and node_partition in -l are two requests")
    added = [f"{name}={value}" for name in ("partition", "qos") if (value := getattr(args, name))]
    return ",".join(filter(None, (request, *added)))


def expand_shorthand(text: str) -> str:
    """`2@8@4:00:00@16gb@ib` as `qsub -l` takes it. Raises ClientError."""
    parts = text.split("@")
    if not all(parts) or not parts[0].isdecimal():
        raise ClientError(f"{text}: expected NODES@PPN@WALLTIME, such as 2@8@4:00:00")
    if len(parts) == 2:
        return f"procs={parts[0]},walltime={parts[1]}"
    if not parts[1].isdecimal():
        raise ClientError(f"{text}: PPN is a number of cpus, not {parts[1]}")
    mem = [part for part in parts[3:] if _SIZE.fullmatch(part)]
    if len(mem) > 1:
        raise ClientError(f"{text}: memory is given twice, as {mem[0]} and {mem[1]}")
    features = "".join(f":{part}" for part in parts[3:] if part not in mem)
    return f"nodes={parts[0]}:ppn={parts[1]}{features},walltime={parts[2]}" + "".join(
        f",mem={m}" for m in mem
    )


# ---- a job --------------------------------------------------------------------------------------


def _show_job(session: Session, args: argparse.Namespace, given: str | None) -> bool:
    client, now = session.client, session.now
    try:
        job, found = client.explained_job(args.what)
    except Refused as error:
        if array := find_array(client, args.what):
            return show_array(array, client, now, as_json=args.json)
        return show_ended_job(session, args.what, error, as_json=args.json, briefly=True)
    request = _with_options(given or "", args)
    altered = [request] if request or given is not None else []
    result = None
    wanted = _requested_changes(args, now)
    if altered or job.state == "planned":
        try:
            result = client.what_if(job=job.id, variants=altered, **wanted)
        except Refused as error:  # it may have left meanwhile
            return show_ended_job(session, job.id, error, as_json=args.json, briefly=True)
    if args.json:
        show_json({"job": job, "explain": explanation_members(found), "what_if": result})
        return job.planned_start is not None
    print(job_title(job) + "\n")
    lines = list(start_rows(job, found, now))
    if result is not None:
        lines += _requested_start_rows(result, now)
        lines += _change_rows(result, now)
    print(format_rows(lines))
    if result is not None:
        _show_variants("altered to", result, now, submitted=True)
    return job.planned_start is not None


def _show_variants(title: str, found: WhatIfResult, now: int, *, submitted: bool = False) -> None:
    for variant in found.variants:
        print(f"\n{title} {variant.request}\n")
        rows = [*_variant_rows(variant, now, submitted=submitted), *_note_rows(variant)]
        print(format_rows(rows))


def job_title(job: JobView) -> str:
    name = f" {job.name}" if job.name else ""
    whose = strip_controls(f"job {job.id}{name}: {job.owner}, {job.queue}")
    if job.cpus is None:  # of a request that is not understood nothing is counted with
        return whose
    cpus = f"{job.cpus} cpus" if job.cpus != 1 else "1 cpu"
    assumed = " (assumed)" if job.walltime_assumed else ""
    return f"{whose}, {cpus} for {format_duration(job.walltime)}{assumed}"


def planned_condition(sentence: StartSentence, planned: int) -> str:
    """Return the condition of a planned start behind a forecast. A start that is likely after it, as the plan
    improved since, has none.
    """
    later = sentence.likely is not None and sentence.likely > planned
    return ", if the jobs ahead use their full walltimes" * (sentence.certainty in _FORECAST and not later)


def start_rows(job: JobView, found: Explanation, now: int) -> Iterator[tuple[str, str]]:
    """When, where and why; then the remarks on the job that these rows do not contain, as those on conditions
    and a deadline do.
    """
    rows = list(_start_rows(job, found, now))
    yield from rows
    conditions = f"if {' and '.join(job.conditional)}" if job.conditional else "\n"
    shown = "\n".join(text for _, text in rows)
    known = (conditions, "its deadline, ") if job.deadline is not None else conditions
    notes = [note for note in job.notes if note not in shown and not note.startswith(known)]
    yield from (("" if i else "note", note) for i, note in enumerate(notes))


def _start_rows(job: JobView, found: Explanation, now: int) -> Iterator[tuple[str, str]]:
    start, state = job.displayed_start, job.state
    if start is None:
        if state == "never":
            yield "start", f"never here: {job.requirement}"
        else:
            sentence = describe_job_start(job, now)
            plain = sentence.certainty == "unknown" and sentence.latest is None
            yield "start", "not known" if plain else format_start(sentence, now)
            yield from _waiting_rows(job, found, now)
    elif state == "running":
        end = job.planned_end or start
        since = format_time_and_distance(start, now)
        if job.job_state == SUSPENDED:
            yield "suspended", f"started {since}"
            yield "ends", f"{format_due(end, now)} at the latest if it is resumed now"
        else:
            yield "running", f"since {since}"
            yield "ends", format_due(end, now) + (" at the latest" if end >= now else "")
    elif state == "planned":
        sentence = describe_job_start(job, now)
        yield "start", format_start(sentence, now)
        yield "planned", format_due_start(start, now) + planned_condition(sentence, start)
        latest = found.planned_start
        if latest is not None and abs(latest - start) > _SOON_S:
            yield "at present", f"{format_due_start(latest, now)}; the start above is changed less often"
        yield "end", format_due(start + job.walltime, now)
    else:
        yield "starting", format_due_start(start, now)
        yield "end", format_due(start + job.walltime, now)
    if job.conditional:
        yield "if", ", ".join(job.conditional)
    if job.planned_nodes:
        yield "on", format_nodes(job.planned_nodes)
    if age := forecast_age(job, found.forecast_in, now):
        yield "forecast", age
    if job.promised_start is not None and state == "planned" and job.weak:
        yield "promise", "holds if a job ahead of it without a walltime ends in time"
    if job.at_risk is not None:
        yield "at risk", f"it cannot be kept as planned now: {describe_cause(job.at_risk.cause)}"
    if job.deadline is not None:
        risk = describe_cause(job.at_risk.cause) if job.at_risk is not None else ""
        yield "deadline", f"{format_time(job.deadline, now)} {describe_deadline(job, now, risk)}"
    if state == "planned":
        yield from explanation_rows(found, now)
    if found.last_change is not None and state != "running":
        yield "last moved", describe_change(found.last_change, now)
    for breach in job.breaches[-1:]:
        cause = describe_cause(breach.cause)
        yield "broken", f"the promise of {format_time(breach.promised, now)} was not kept: {cause}"


def _waiting_rows(job: JobView, found: Explanation, now: int) -> Iterator[tuple[str, str]]:
    name = "waits for"
    for one in found.blockers:
        is_held_by = one.kind in ("job", "node", "reservation")
        yield name, one.words.removeprefix("it waits for ") if is_held_by else one.name
        name = ""
    if name:
        yield name, job.why.removeprefix("waiting for ")
    if found.without is not None:
        yield "without it", f"it would start {format_time_and_distance(found.without, now)}"
    if "u" in job.holds:
        yield "release", f"qrls {job.id}"


# ---- a what-if ----------------------------------------------------------------------------------


def _variant_rows(
    found: WhatIfVariantResult, now: int, *, submitted: bool = False
) -> Iterator[tuple[str, str]]:
    start, end = found.planned_start, found.planned_end
    if start is None or end is None:
        yield "start", "never here" if found.answer == "never" else "not known"
        if found.refusals:
            name = "qsub refuses"
            for refusal in found.refusals:
                yield name, refusal
                name = "and"
        else:
            yield "why", found.requirement or found.why
    else:
        sentence = describe_what_if_start(found, now)
        at_once = start <= now + 1 and not found.starts_stopped
        if at_once:
            yield "start", format_time_and_distance(start, now)
        else:
            yield "start", format_start(sentence, now)
            if sentence.certainty != "stopped":
                condition = planned_condition(sentence, start)
                yield "planned", format_time_and_distance(start, now) + condition
        if sentence.certainty != "stopped":
            yield "end", format_time_and_distance(end, now)
        if found.deadline is not None:
            late = found.late_by
            met = f"cannot be met: it would have to be {format_duration(late)} later" if late else "is met"
            yield "deadline", f"{format_time(found.deadline, now)} {met}"
            yield "", f"as submitted now, it {describe_deadline(found, now)}"
            if found.deadline_required is None and (share := found.deadline_probability) is not None:
                yield "", f"it ends by then with a probability of {format_probability(share)}, by a forecast"
        yield "on", format_nodes(found.planned_nodes)
        if found.promised_start is not None and not at_once and not submitted:
            yield "promise", "the latest start is promised at submission"
        if found.cost is not None:
            over = ", more than its limit" if found.over else ""
            yield "cost", f"{found.cost:,.2f} {found.currency}{over}"
        if found.predicted_run_time is not None:
            yield "run time", f"about {format_duration(found.predicted_run_time)}, as such jobs ran"


def _what_if_rows(found: WhatIfResult, now: int) -> Iterator[tuple[str, str]]:
    yield from _variant_rows(found, now)
    yield from _requested_start_rows(found, now)
    yield from _array_rows(found, now)
    yield from _destination_rows(found, now)
    yield from _window_rows(found.windows, now)
    yield from _change_rows(found, now)
    yield from _note_rows(found)


def _requested_start_rows(found: WhatIfVariantResult, now: int) -> Iterator[tuple[str, str]]:
    """Whether it starts by the wished time: as planned, likely, or not."""
    if found.start_by is None:
        return
    words = describe_requested_start(
        found.start_by, found.start_late_by, found.expected_start, found.expected_by, format_duration
    )
    yield "wish", f"start by {format_near_time(found.start_by, now)}: {words}"


def _array_rows(found: WhatIfResult, now: int) -> Iterator[tuple[str, str]]:
    array = found.array
    if array is None or found.planned_start is None:
        return
    limit = f", {array.slot_limit} at once" if array.slot_limit is not None else ""
    end = array.planned_end
    until = f"all done by {format_near_time(end, now)}" if end is not None else "too many to plan here"
    yield "array", f"{array.subjobs} subjobs{limit}: {until}"


def _destination_rows(found: WhatIfResult, now: int) -> Iterator[tuple[str, str]]:
    """What each destination of a routing queue does with the job."""
    name = "routed to"
    for one in found.destinations:
        if one.refusals:
            yield name, f"{one.queue}: refused, {'; '.join(one.refusals)}"
        else:
            start = describe_start(destination_start_facts(one, stopped=found.starts_stopped), now)
            mark = (
                " (chosen: the first that accepts it)" if one.chosen and len(found.destinations) > 1 else ""
            )
            yield name, f"{one.queue}: {format_start(start, now)}{mark}"
        name = "or to"


def _note_rows(found: WhatIfVariantResult) -> Iterator[tuple[str, str]]:
    for note in found.notes:
        yield "note", note
    if found.walltime_assumed:
        yield "note", f"no walltime was named: {format_duration(found.walltime)} is assumed"


def _format_cheapest(found: CheapestStart | None, now: int) -> str:
    if found is None:
        return "no start ends in time, or the site has no prices"
    return f"{found.cost:,.2f} at {format_time(found.start, now)} on {shorten_list(found.nodes)}"


def _window_rows(windows: Sequence[StartWindow], now: int) -> Iterator[tuple[str, str]]:
    name = "may start"
    for window in windows[: _MAX_WINDOWS - 1]:
        open_ended = window.last - now > 10 * 366 * 86_400
        until = "at any later time" if open_ended else f"to {format_time(window.last, now)}"
        if window.last - window.first < _SOON_S:
            until = "only then"
        yield name, f"{format_time(window.first, now)}  {until}"
        name = "or"
    if len(windows) == _MAX_WINDOWS:
        yield name, "in later windows, too"


def _change_rows(found: WhatIfResult, now: int) -> Iterator[tuple[str, str]]:
    """The changes that let it start at once or by the wished time, and those for a sooner start."""
    wish, start = found.start_by is not None, found.planned_start
    by = found.changes_by
    at_once = by is None or by <= max(now, found.as_of) + _SOON_S
    name = "in time if" if wish else "at once if" if at_once else f"by {format_near_time(by or now, now)} if"
    late = start is not None and by is not None and start > by + (0 if wish else _SOON_S)
    if not found.changes and late:
        sooner = "" if wish or found.sooner_by is not None else "; --sooner seeks an earlier start"
        yield name, _NOTHING_SMALLER + sooner
    yield from _smaller_request_rows(name, found.changes, found.expected_start, now)
    by = found.sooner_by
    if by is not None and by != found.changes_by and start is not None and start > by:
        name = "sooner if"
        if not found.sooner_changes:
            yield name, _NOTHING_SMALLER
        yield from _smaller_request_rows(name, found.sooner_changes, found.expected_start, now)


def _format_start_then(one: SmallerRequest, unchanged: int | None, now: int) -> str:
    """The likely start with a change, and the planned one; empty: at once.

    ``unchanged`` is the likely start without it; it may be as early, since jobs end before their walltimes.
    """
    if one.planned_start <= now + 1:
        return ""
    planned = f"planned {format_near_time(one.planned_start, now)}"
    if one.expected_start is None:
        return f": {planned}"
    if is_likely_no_sooner(one.expected_start, unchanged):
        return f": {planned}, but likely no sooner"
    likely = f": likely {format_near_time(one.expected_start, now)}"
    same = one.expected_start // 60 == one.planned_start // 60
    return likely if same else f"{likely}, {planned}"


def _smaller_request_rows(
    name: str, changes: Sequence[SmallerRequest], unchanged: int | None, now: int
) -> Iterator[tuple[str, str]]:
    nouns = {"walltime": "walltime", "cpus": "cpus a node", "mem": "memory a node", "nodes": "nodes"}
    nouns |= {"units": "cpus or chunks", "gpus": "gpus a node"}
    singular = {"cpus": "cpu a node", "nodes": "node", "units": "cpu or chunk", "gpus": "gpu a node"}
    for one in changes:
        then = _format_start_then(one, unchanged, now)
        if one.change == "feature":
            yield name, f"without the feature {one.asked}{then}"
        elif one.change in ("walltime", "mem"):
            risk = f"; {100 * one.risk:.0f} % of such jobs run longer" if one.risk is not None else ""
            yield name, f"{nouns[one.change]} {one.enough} (asked: {one.asked}){then}{risk}"
        else:
            noun = (singular if one.value == 1 else nouns)[one.change]
            yield name, f"{one.enough} {noun} (asked: {one.asked}){then}"
        name = "or if"
