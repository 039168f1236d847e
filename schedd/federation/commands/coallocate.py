"""``schedd coallocate``: jobs with a common start at several clusters of a federation."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from schedd.cli.user.action_parsers import (
    add_named_actions,
    format_optional_time,
    make_action_parser,
    print_answer,
)
from schedd.cli.user.command_session import run_with_exit_code
from schedd.cli.user.formatting import describe_file_error, format_rows, format_table
from schedd.client import ClientError
from schedd.client.answers import CoAllocationView
from schedd.federation.commands.jobs import connect_federation
from schedd.start_sentence import StartFacts, describe_start, format_near_time

_FILE = """the file:
  {"components": [{"request": "nodes=4:ppn=8,walltime=2:00:00", "script": "…"},
                  {"request": "nodes=2:ppn=8,walltime=2:00:00", "script_file": "b.sh",
                   "clusters": ["north"], "optional": true}],
   "overhead": 20, "remap": true, "most": 2, "deadline": 1800000000}

a component with "cores" is divided over up to "most" clusters as these have room;
its request is one unit, nodes=1:ppn=P. The same by options:
  schedd coallocate divide --cores 96 --most 3 -l nodes=1:ppn=8,walltime=2:00:00 job.sh"""


_EDITS: Final = {
    "add": "add a component to one that has not begun; it keeps its start unless --later is given",
    "substitute": "substitute a component of a co-allocation that has not begun",
    "delete": "delete a component of a co-allocation that has not begun; the others keep their numbers",
}


def make_parser(name: str = "schedd coallocate") -> argparse.ArgumentParser:
    about = (
        "Submit a co-allocation to the federation: components that start at the same time, each on one of "
        "the clusters; either all start, or none. The start is moved only to end earlier than published."
    )
    found, add = make_action_parser(name, about, _FILE, {}, "co-allocations")
    submit = add("submit", "submit a co-allocation")
    submit.add_argument("file", metavar="FILE", help="the co-allocation as JSON")
    submit.add_argument(
        "--key", default="", help="idempotency key: the same key again is the same co-allocation"
    )
    divide = add("divide", "submit a job on N cores of any clusters, which all start at the same time")
    divide.add_argument(
        "script", metavar="SCRIPT", help="script that each cluster runs on its cores; -: standard input"
    )
    divide.add_argument("--cores", type=int, required=True, metavar="N", help="total number of cores")
    divide.add_argument("--most", type=int, required=True, metavar="K", help="maximum number of clusters")
    divide.add_argument(
        "-l",
        dest="request",
        required=True,
        metavar="UNIT",
        help="one unit and its walltime: nodes=1:ppn=8,walltime=2:00:00",
    )
    divide.add_argument("--only", metavar="CLUSTER,…", default="", help="only these clusters")
    divide.add_argument(
        "--overhead",
        type=int,
        default=0,
        metavar="PERCENT",
        help="percentage by which it runs longer on several clusters (default: 0)",
    )
    divide.add_argument("--no-remap", action="store_true", help="never change its clusters while it waits")
    divide.add_argument(
        "--key", default="", help="idempotency key: the same key again is the same co-allocation"
    )
    add_named_actions(
        add,
        "coallocation",
        {
            "show": "show a co-allocation: its components, their clusters and every move",
            "cancel": "cancel a co-allocation",
        },
    )
    for act, words in _EDITS.items():
        edit = add(act, words)
        edit.add_argument("coallocation", metavar="COALLOCATION", help="number of the co-allocation")
        if act != "add":
            edit.add_argument("component", type=int, metavar="COMPONENT", help="number of the component")
        if act != "delete":
            edit.add_argument("file", metavar="FILE", help="the component as JSON, as in the file of submit")
            edit.add_argument("--later", action="store_true", help="let it move the start to a later time")
    return found


def run(argv: Sequence[str], name: str = "schedd coallocate") -> int:
    return run_with_exit_code(make_parser(name), _run_action, argv)


def _run_action(args: argparse.Namespace) -> bool:
    with connect_federation(args.url) as federation:
        now = federation.now()
        match args.act:
            case "submit":
                done = federation.submit_coallocation({**_read_file(Path(args.file)), "key": args.key})
            case "divide":
                done = federation.submit_coallocation(_divided_request(args))
            case "show":
                done = federation.coallocation(args.coallocation)
            case "cancel":
                done = federation.cancel_coallocation(args.coallocation)
            case "add" | "substitute" | "delete":
                component = _read_component(Path(args.file)) if args.act != "delete" else None
                number = args.component if args.act != "add" else None
                later = args.act != "delete" and args.later
                done = federation.edit_component(args.coallocation, component, number, later=later)
            case _:
                found = federation.coallocations(over=False)
                print_answer(
                    args,
                    {"coallocations": found},
                    lambda: _coallocations_table(found, now) if found else "there are no co-allocations",
                )
                return True
    words = {
        "submit": lambda: done.id,
        "divide": lambda: done.id,
        "cancel": lambda: f"co-allocation {done.id}: {'it had ' + done.over if done.over else 'withdrawn'}",
        "show": lambda: _coallocation_text(done, now),
    }
    print_answer(args, done, words.get(args.act, lambda: f"co-allocation {done.id}: {_edit_text(done)}"))
    return args.act != "show" or done.start is not None


def _read_file(file: Path) -> dict[str, Any]:
    """The co-allocation of a file; scripts may be in separate files. Raises ClientError."""
    return _read_json(file, "co-allocation", lambda request: request["components"])


def _read_component(file: Path) -> dict[str, Any]:
    """The component of a file; its script may be in a separate file. Raises ClientError."""
    return _read_json(file, "component", lambda component: [component])


def _read_json(file: Path, kind: str, components: Callable[[Any], Any]) -> dict[str, Any]:
    try:
        request = json.loads(file.read_text(encoding="utf-8"))
        for component in components(request):
            if "script_file" in component:
                component["script"] = (file.parent / component.pop("script_file")).read_text(encoding="utf-8")
        return dict(request)
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(describe_file_error(error)) from None
    except json.JSONDecodeError as error:
        fault = f"not a {kind}: line {error.lineno}, column {error.colno} is no JSON: {error.msg}"
        raise ClientError(f"{file}: {fault}; see schedd coallocate --help") from None
    except KeyError as error:
        raise ClientError(
            f"{file}: not a {kind}: it has no {error.args[0]}; see schedd coallocate --help"
        ) from None
    except (ValueError, TypeError, AttributeError):
        raise ClientError(f"{file}: not a {kind}; see schedd coallocate --help") from None


def _edit_text(one: CoAllocationView) -> str:
    """The latest change of a component."""
    edit = one.edits[-1]
    what = {"add": "added", "substitute": "substituted", "delete": "deleted"}[edit.act]
    if edit.phase == "refused":
        return f"component {edit.component} was not {what}: {edit.text}"
    more = " once all components are booked again" if edit.phase == "pending" else ""
    return f"component {edit.component} is {what}{more}"


def _divided_request(args: argparse.Namespace) -> dict[str, Any]:
    """Return the co-allocation of the arguments of ``divide``. Raises ClientError."""
    try:
        script = sys.stdin.read() if args.script == "-" else Path(args.script).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(describe_file_error(error)) from None
    component = {
        "request": args.request,
        "cores": args.cores,
        "script": script,
        "clusters": [name for name in args.only.split(",") if name],
    }
    return {
        "components": [component],
        "most": args.most,
        "overhead": args.overhead,
        "remap": not args.no_remap,
        "key": args.key,
    }


def _coallocations_table(found: Sequence[CoAllocationView], now: int) -> str:
    lines = [
        (
            one.id,
            one.owner,
            one.state,
            _start_text(one, now),
            ", ".join(sorted({component.cluster for component in one.components if component.cluster}))
            or "-",
            one.text,
        )
        for one in found
    ]
    return format_table(("CO-ALLOCATION", "OWNER", "STATE", "START", "CLUSTERS", "WHY"), lines, last=20)


def _start_text(one: CoAllocationView, now: int) -> str:
    """The sentence about the common start, which has no forecast; once it is over, the last start."""
    if one.over:
        return format_optional_time(one.start, now)
    started = [component.started for component in one.components if component.started is not None]
    facts = StartFacts(
        state="running" if started else "planned",
        started=min(started, default=None),
        planned=one.start,
        predicted=False,
    )
    return describe_start(facts, now).text(lambda moment: format_near_time(moment, now))


def _coallocation_text(one: CoAllocationView, now: int) -> str:
    rows = [("cores", str(one.cores))] if one.cores is not None else []
    rows += [
        ("state", one.state),
        ("start", _start_text(one, now)),
        ("end", format_optional_time(one.end, now)),
    ]
    if one.displayed_start is not None:
        start, end = one.displayed_start, one.published_end
        period = f"{format_optional_time(start, now)} to {format_optional_time(end, now)}"
        rows.append(("first published", period))
    if one.text:
        rows.append(("why", one.text))
    if one.edits:
        rows.append(("latest change", _edit_text(one)))
    components = [
        (
            str(component.component) + (" (optional)" if component.optional else ""),
            component.cluster or "-",
            component.job or "-",
            component.state or component.phase or "-",
            format_optional_time(component.started, now),
            ",".join(f"{name}={value}" for name, value in component.resources.items()),
        )
        for component in one.components
    ]
    moves = [
        (
            str(turn.number),
            format_optional_time(turn.start, now),
            ", ".join(f"{component}: {cluster}" for component, cluster in turn.clusters.items()),
            turn.phase,
            turn.why + (f"; {turn.text}" if turn.text else ""),
        )
        for turn in one.rounds
    ]
    return "\n\n".join(
        (
            f"co-allocation {one.id}: {one.owner}",
            format_rows(rows),
            format_table(
                ("COMPONENT", "CLUSTER", "JOB THERE", "STATE", "STARTED", "ASKS FOR"), components, last=30
            ),
            format_table(("ROUND", "START", "PLACES", "STATE", "WHY"), moves, last=34),
        )
    )
