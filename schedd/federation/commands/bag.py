"""``schedd bag``: many equal tasks with a deadline, divided among a federation's clusters."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from schedd.cli.user.action_parsers import (
    add_named_actions,
    format_optional_time,
    make_action_parser,
    print_answer,
)
from schedd.cli.user.command_session import run_with_exit_code
from schedd.cli.user.formatting import (
    describe_file_error,
    format_duration,
    format_rows,
    format_table,
    format_time,
)
from schedd.cli.user.time_arguments import parse_coming_time
from schedd.client import ClientError, Refused
from schedd.client.answers import BagOfferView, BagView
from schedd.client.json_object import json_members
from schedd.federation.commands.jobs import connect_federation, describe_deadline
from schedd.federation.commands.submit import (
    add_destination_options,
    add_script_options,
    parse_queues,
    read_script,
    read_script_options,
)

_MORE: Final = """examples:
  schedd bag offer -n 500 --by +6h -l nodes=1:ppn=1,walltime=20:00
  schedd bag submit --offer 3f0c5b1e9a7d2c46 task.sh
  schedd bag submit -n 500 --by 2026-12-01T08:00 -l nodes=1:ppn=1,walltime=20:00 task.sh

Each task finds its number, from 0 on, in ${PBS_ARRAYID:-$PBS_ARRAY_INDEX}."""
_BALANCES: Final = ("none", "offers", "power", "load")


def make_parser(name: str = "schedd bag") -> argparse.ArgumentParser:
    about = (
        "Submit a bag of equal tasks to the federation, which divides them among its clusters as job arrays, "
        "so that all tasks end by a deadline."
    )
    found, add = make_action_parser(name, about, _MORE, {1: "answered, but the deadline is not kept"}, "bags")
    offer = add("offer", "show how the tasks would be divided; submit nothing")
    offer.add_argument(
        "-l",
        dest="request",
        action="append",
        metavar="LIST",
        help="requested resources of one task, as qsub -l",
    )
    offer.add_argument(
        "-q", dest="queue", metavar="QUEUE@CLUSTER", action="append", help="queue on a cluster"
    )
    _add_bag_options(offer)
    take = add("submit", "submit a bag")
    add_script_options(take)
    _add_bag_options(take)
    take.add_argument(
        "--offer", metavar="OFFER", help="accept this offer; replaces -n, --by, -l, -q and --only"
    )
    take.add_argument("--late", action="store_true", help="submit it even if it ends after its deadline")
    take.add_argument("--key", default="", help="idempotency key: the same key again is the same bag")
    take.add_argument(
        "script", metavar="SCRIPT", nargs="?", default="-", help="job script (default: standard input)"
    )
    add_named_actions(
        add,
        "bag",
        {
            "show": "show the state of a bag's tasks",
            "cancel": "cancel a bag: waiting tasks are deleted, running ones go on",
        },
    )
    return found


def _add_bag_options(found: argparse.ArgumentParser) -> None:
    add = found.add_argument
    add("-n", dest="tasks", type=int, metavar="TASKS", help="number of tasks")
    add_destination_options(found)
    add(
        "--balance",
        choices=_BALANCES,
        default="none",
        help="how tasks are divided if the deadline can be kept (default: none)",
    )


def run(argv: Sequence[str], name: str = "schedd bag") -> int:
    """Run the command; return 1 if the deadline is not kept."""
    return run_with_exit_code(make_parser(name), _run_action, argv)


def _run_action(args: argparse.Namespace) -> bool:
    if args.act == "submit":
        return _submit_bag(args)
    with connect_federation(args.url) as federation:
        now = federation.now()
        match args.act:
            case "offer":
                offer = federation.offer_bag(
                    _bag_terms(args, args.request or (), _parse_queue_options(args), federation.now)
                )
                print_answer(args, offer, lambda: _offer_text(offer, now))
                return offer.deadline_state == "accepted"
            case "show":
                done = federation.bag(args.bag)
                print_answer(args, done, lambda: _bag_text(done, now))
                return done.deadline_kept is not False
            case "cancel":
                done = federation.cancel_bag(args.bag)
                print_answer(args, done, lambda: _cancel_text(done))
                return True
        found = federation.bags(over=False)
        print_answer(args, {"bags": found}, lambda: _bags_table(found, now) if found else "there are no bags")
        return True


def _cancel_text(one: BagView) -> str:
    if one.over and not one.cancelled:
        return f"bag {one.id}: it had {one.over}"
    left = f", {one.running} tasks run on" if one.running else ""
    return f"bag {one.id}: withdrawn{left}"


def _submit_bag(args: argparse.Namespace) -> bool:
    try:
        script = read_script(args.script)
        work = read_script_options(args, script, os.environ)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ClientError(describe_file_error(error)) from None
    request, queues = work.pop("request"), work.pop("queues")
    if work.pop("array"):
        raise ClientError("the script asks for an array (#PBS -t or -J): a bag's tasks are numbered by -n")
    if args.offer is not None and (
        args.tasks is not None or args.by or args.only or args.late or args.request or args.queue
    ):
        raise ClientError("an offer has all terms of the bag: leave out -n, --by, --only, --late, -l and -q")
    with connect_federation(args.url) as federation:
        if args.offer is None:
            terms = _bag_terms(args, request.split(",") if request else (), queues, federation.now)
            body = {**work, **terms, "late": args.late}
        else:
            body = {**work, "offer": args.offer}
        try:
            done = federation.submit_bag(body)
        except Refused as error:
            if error.kind not in ("no-room", "moved-on"):
                raise
            print(f"schedd bag: {error}", file=sys.stderr)
            return False
    print_answer(args, done, lambda: done.id)
    return done.deadline_kept is not False


def _parse_queue_options(args: argparse.Namespace) -> dict[str, str]:
    try:
        return parse_queues(args.queue or ())
    except ValueError as error:
        raise ClientError(describe_file_error(error)) from None


def _bag_terms(
    args: argparse.Namespace, request: Sequence[str], queues: dict[str, str], now: Callable[[], int]
) -> dict[str, Any]:
    if args.tasks is None or not args.by or not request:
        raise ClientError(
            "give -n, --by and -l: the number of tasks, the deadline, and the request of one task"
        )
    return {
        "request": ",".join(request),
        "tasks": args.tasks,
        "deadline": parse_coming_time(args.by, now()),
        "balance": args.balance,
        "clusters": [one for one in args.only.split(",") if one],
        "queues": queues,
    }


def _offer_text(one: BagOfferView, now: int) -> str:
    split = one.split
    lines = []
    if split is None:
        lines.append(f"there is too little capacity for {one.tasks} tasks")
    else:
        answer: str = one.deadline_state
        if one.earliest_deadline is not None:
            answer = f"refused: the earliest possible one is {format_time(one.earliest_deadline, now)}"
        elif answer == "wished":
            answer = "only a wish: its clusters accept no deadlines"
        end = format_time(split.end, now)
        lines.append(f"offer {one.id}: {one.tasks} tasks end {end}; the deadline is {answer}")
        lines.append(f"accept it until {format_time(one.expires, now)}: schedd bag submit --offer {one.id} …")
    shares = split.shares if split is not None else {}
    names = dict.fromkeys([*(offer.provider for offer in one.offers), *one.why])
    table_lines = []
    for name in names:
        ends = [offer for offer in one.offers if offer.provider == name]
        most = max(ends, key=lambda offer: offer.tasks, default=None)
        words = f"{most.tasks} by {format_time(most.end, now)}" if most else one.why.get(name, "nothing")
        table_lines.append((name, str(shares.get(name, "-")), words))
    return "\n".join(
        [*lines, "", format_table(("CLUSTER", "GETS", "OFFERS AT MOST"), table_lines, right="", last=30)]
    )


def _bags_table(found: Sequence[BagView], now: int) -> str:
    lines = [
        (
            one.id,
            one.owner,
            one.state,
            f"{one.ended}/{one.tasks}",
            format_optional_time(one.end, now),
            describe_deadline(one, now),
            _cluster_names(one),
        )
        for one in found
    ]
    return format_table(
        ("BAG", "OWNER", "STATE", "ENDED", "EXPECTED END", "DEADLINE", "CLUSTERS"), lines, last=10
    )


def _bag_text(one: BagView, now: int) -> str:
    asks = ",".join(f"{name}={value}" for name, value in one.resources.items())
    counts = ("waiting", "running", "ended", "failed", "deleted", "without_cluster")
    rows = [
        ("state", one.state),
        ("tasks", f"{one.tasks}: " + _format_counts({name: json_members(one)[name] for name in counts})),
        ("one asks for", asks),
        ("deadline", f"{format_time(one.deadline, now)}, {describe_deadline(one, now)}"),
        ("expected end", format_optional_time(one.end, now)),
        ("published end", format_optional_time(one.published_end, now)),
        ("stretch factor", _format_stretch(one)),
    ]
    if one.text:
        rows.append(("why", one.text))
    lines = [
        (
            share.cluster,
            share.server_job or "-",
            share.array,
            share.over or share.state or share.phase or "-",
            str(share.running),
            f"{share.ended}" + (f" ({share.failed} failed)" if share.failed else ""),
            format_optional_time(share.end, now),
            share.text,
        )
        for share in one.shares
    ]
    heads = ("CLUSTER", "JOB THERE", "TASKS", "STATE", "RUNNING", "ENDED", "END", "WHY")
    name = f" {one.name}" if one.name else ""
    return "\n\n".join(
        (f"bag {one.id}{name}: {one.owner}", format_rows(rows), format_table(heads, lines, last=10))
    )


def _format_stretch(one: BagView) -> str:
    """Return the time between the first and the last end."""
    if one.stretch_s is None or one.stretch is None:
        return "not known"
    share = f"{100 * one.stretch:.1f} % of the response time"
    return f"{format_duration(one.stretch_s)} from the first end to the last, {share}"


def _cluster_names(one: BagView) -> str:
    return ", ".join(sorted({share.cluster for share in one.shares if share.over != "refused"})) or "-"


def _format_counts(found: dict[str, int]) -> str:
    words = [f"{count} {name.replace('_', ' ')}" for name, count in found.items() if count]
    return ", ".join(words) or "none"
