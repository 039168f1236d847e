"""``schedd alternatives``: search for alternative plans, compare them with the live plan, apply one."""

import argparse
from collections.abc import Sequence

from schedd.cli.user.command_session import Session, make_command_parser, run_command, show_json
from schedd.cli.user.formatting import (
    format_amount,
    format_duration,
    format_rows,
    format_table,
    format_time,
    natural_key,
)
from schedd.client import ClientError
from schedd.client.answers import AlternativeSet, AlternativesView, AppliedPlan, OfferedMove

_MAX_MOVES_SHOWN = 30


def make_parser(name: str = "schedd alternatives") -> argparse.ArgumentParser:
    found = make_command_parser(
        name,
        "Search for alternatives to the live plan, compare them, and apply one. No alternative is better "
        "than another by all objectives, breaks a promise, or is worse than the live plan by the weights. "
        "Needs the role operator or admin.",
    )
    acts = found.add_subparsers(dest="act", metavar="ACTION", title="actions")
    search = acts.add_parser("search", help="search for alternatives (without an action, show the latest)")
    add = search.add_argument
    add("-t", "--seconds", type=float, default=10.0, metavar="S", help="duration of the search (default: 10)")
    add("--evaluations", type=int, metavar="N", help="stop after N plans")
    add("--population", type=int, default=24, metavar="N", help="plans per generation (default: 24)")
    add("--seed", type=int, default=0, metavar="N", help="random seed (default: 0)")
    add("--weight", action="append", default=[], metavar="OBJECTIVE=W", help="override a weight of the site")
    acts.add_parser("stop", help="stop the search that is running")
    show = acts.add_parser("show", help="list the jobs that a plan moves")
    show.add_argument("plan", type=int, metavar="PLAN", help="number of the plan")
    apply = acts.add_parser("apply", help="apply a plan")
    apply.add_argument("plan", type=int, metavar="PLAN", help="number of the plan")
    apply.add_argument(
        "--tolerance",
        type=float,
        metavar="PERCENT",
        help="move all jobs of the plan or none, and refuse if more than this share of the jobs has changed "
        "since (default: make the moves that still hold)",
    )
    return found


def run(argv: Sequence[str], name: str = "schedd alternatives") -> int:
    return run_command(make_parser(name), _run_action, argv)


def _run_action(session: Session, args: argparse.Namespace) -> bool:
    client = session.client
    if args.act == "stop":
        stopped = client.stop_alternatives()
        show_json({"stopped": stopped}) if args.json else print(
            "stopped" if stopped else "no search is running"
        )
        return True
    if args.act == "search":
        found = client.search_alternatives(
            seconds=args.seconds,
            evaluations=args.evaluations,
            population=args.population,
            seed=args.seed,
            weights=_parse_weights(args.weight),
        )
        show_json(found) if args.json else print(_alternatives_text(found, session.now))
        return True
    found = client.alternatives()
    kept = found.set
    if args.act is None:
        show_json(found) if args.json else print(_alternatives_text(found, session.now))
        return True
    if kept is None:
        raise ClientError("there are no alternatives yet: schedd alternatives search")
    if args.act == "apply":
        if args.tolerance is not None and not 0 <= args.tolerance <= 100:
            raise ClientError(f"--tolerance {args.tolerance:g}: a share in percent is from 0 to 100")
        tolerance = args.tolerance / 100 if args.tolerance is not None else None
        done = client.apply_alternative(kept.number, args.plan, tolerance=tolerance)
        show_json(done) if args.json else print(_applied_text(done))
        return True
    plan = next((one for one in kept.plans if one.number == args.plan), None)
    if plan is None:
        raise ClientError(f"there is no plan {args.plan}; there are {len(kept.plans)}")
    show_json(plan) if args.json else print(_moves_table(plan.moves, session.now))
    return True


def _parse_weights(options: Sequence[str]) -> dict[str, float] | None:
    found = {}
    for option in options:
        name, equals, value = option.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise ClientError(f"--weight {option}: expected OBJECTIVE=NUMBER, such as energy=2")
    return found or None


def _alternatives_text(found: AlternativesView, now: int) -> str:
    kept = found.set
    if kept is None:
        return "there are no alternatives yet: schedd alternatives search"
    weights = ", ".join(f"{name} {weight:g}" for name, weight in kept.weights.items())
    head = format_rows(
        [
            ("searched", f"{format_time(kept.as_of, now)}, {kept.seconds:.1f} s, seed {kept.seed}"),
            ("tried", f"{kept.tried} plans of {kept.jobs} jobs; {_discarded_text(kept)}"),
            ("front", f"hypervolume {kept.hypervolume:.3f}"),
            ("weights", weights),
            ("since then", f"{found.drift:.0%} of the jobs came, went or moved"),
        ]
    )
    return f"{head}\n\n{_plans_table(kept)}"


def _discarded_text(kept: AlternativeSet) -> str:
    return f"{kept.homeless} left a job without a place in time, {kept.worse} are worse by the weights"


def _plans_table(kept: AlternativeSet) -> str:
    if not kept.plans:
        return "no plan is better by any objective and as good by the weights"
    names, units, live = list(kept.units), kept.units, kept.live
    lines = [("live", *(format_amount(live[name], units[name]) for name in names), "")]
    for plan in kept.plans:
        values = [_format_relative(plan.objectives[name], live[name]) for name in names]
        lines.append((str(plan.number), *values, str(len(plan.moves))))
    heads = ("PLAN", *(name.upper() for name in names), "MOVED")
    return format_table(heads, lines, right="".join(str(i) for i in range(1, len(heads))))


def _format_relative(value: float, live: float) -> str:
    return f"{100 * (value / live - 1):+.1f} %" if live else f"{value:g}"


def _moves_table(moves: Sequence[OfferedMove], now: int) -> str:
    ordered = sorted(moves, key=lambda one: (-abs(one.after - one.before), natural_key(one.job)))
    shown = format_table(
        ("JOB", "OWNER", "STARTS", "BY", "PROMISED", "NODES"),
        [
            (
                one.job,
                one.owner.partition("@")[0],
                format_time(one.after, now),
                _format_shift(one.after - one.before),
                format_time(one.promised, now) if one.promised is not None else "-",
                ", ".join(one.nodes),
            )
            for one in ordered[:_MAX_MOVES_SHOWN]
        ],
    )
    more = len(ordered) - _MAX_MOVES_SHOWN
    return shown + (f"\nand {more} more: --json has them all" if more > 0 else "")


def _format_shift(seconds: int) -> str:
    return (
        f"{format_duration(abs(seconds))} {'later' if seconds > 0 else 'sooner'}" if seconds else "elsewhere"
    )


def _applied_text(done: AppliedPlan) -> str:
    lines = [("moved", f"{done.moved} jobs")]
    lines += [("dropped", f"job {one.job}: {one.why}") for one in done.dropped[:_MAX_MOVES_SHOWN]]
    lines += [
        (
            one.objective,
            f"{format_amount(one.before, one.unit)} -> {format_amount(one.after, one.unit)}",
        )
        for one in done.objectives
        if one.before != one.after
    ]
    return format_rows(lines)
