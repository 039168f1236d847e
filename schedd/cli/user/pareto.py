"""``schedd pareto``: look for alternative plans, compare them with the live one, put one in force."""

import argparse
from collections.abc import Sequence

from schedd.cli.user.asking import Session, answer, parser, show_json
from schedd.cli.user.text import amount, moment, natural, rows, span, table
from schedd.client import ClientError
from schedd.client.answers import AlternativesView, AppliedPlan, OfferedMove, PlanSet

__all__ = ["make_parser", "run"]

_MOVES = 30


def make_parser(name: str = "schedd pareto") -> argparse.ArgumentParser:
    """Its options."""
    found = parser(
        name,
        "Look for alternatives to the live plan, of which none is better than another by all objectives; "
        "compare them; put one in force. None of them breaks a promise, or is worse than the live plan by "
        "the weights. Needs the role operator or admin.",
    )
    acts = found.add_subparsers(dest="act", metavar="ACTION", title="actions")
    seek = acts.add_parser("seek", help="search for alternatives (without an action, show the latest)")
    add = seek.add_argument
    add("-t", "--seconds", type=float, default=10.0, metavar="S", help="duration of the search (default: 10)")
    add("--evaluations", type=int, metavar="N", help="stop after N plans")
    add("--population", type=int, default=24, metavar="N", help="plans per generation (default: 24)")
    add("--seed", type=int, default=0, metavar="N", help="random seed (default: 0)")
    add("--weight", action="append", default=[], metavar="OBJECTIVE=W", help="override a weight of the site")
    acts.add_parser("stop", help="stop the search that is running")
    show = acts.add_parser("show", help="list the jobs that a plan moves")
    show.add_argument("plan", type=int, metavar="PLAN", help="number of the plan")
    apply = acts.add_parser("apply", help="put a plan in force")
    apply.add_argument("plan", type=int, metavar="PLAN", help="number of the plan")
    apply.add_argument(
        "--tolerance",
        type=float,
        default=10.0,
        metavar="PERCENT",
        help="refuse if more than this share of the jobs has changed since (default: 10)",
    )
    return found


def run(argv: Sequence[str], name: str = "schedd pareto") -> int:
    """The command."""
    return answer(make_parser(name), _act, argv)


def _act(session: Session, args: argparse.Namespace) -> bool:
    client = session.client
    if args.act == "stop":
        stopped = client.stop_alternatives()
        show_json({"stopped": stopped}) if args.json else print(
            "stopped" if stopped else "nothing is under way"
        )
        return True
    if args.act == "seek":
        found = client.seek_alternatives(
            seconds=args.seconds,
            evaluations=args.evaluations,
            population=args.population,
            seed=args.seed,
            weights=_weights(args.weight),
        )
        show_json(found) if args.json else print(_told(found, session.now))
        return True
    found = client.alternatives()
    kept = found["set"]
    if args.act is None:
        show_json(found) if args.json else print(_told(found, session.now))
        return True
    if kept is None:
        raise ClientError("no alternatives were sought yet: schedd pareto seek")
    if args.act == "apply":
        done = client.apply_alternative(kept["number"], args.plan, tolerance=args.tolerance / 100)
        show_json(done) if args.json else print(_applied(done))
        return True
    plan = next((one for one in kept["plans"] if one["number"] == args.plan), None)
    if plan is None:
        raise ClientError(f"there is no plan {args.plan}; there are {len(kept['plans'])}")
    show_json(plan) if args.json else print(_moves(plan["moves"], session.now))
    return True


def _weights(words: Sequence[str]) -> dict[str, float] | None:
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise ClientError(f"--weight {word}: expected OBJECTIVE=NUMBER, such as energy=2")
    return found or None


def _told(found: AlternativesView, now: int) -> str:
    kept = found["set"]
    if kept is None:
        return "no alternatives were sought yet: schedd pareto seek"
    weights = ", ".join(f"{name} {weight:g}" for name, weight in kept["weights"].items())
    head = rows(
        [
            ("sought", f"{moment(kept['as_of'], now)}, {kept['seconds']:.1f} s, seed {kept['seed']}"),
            ("tried", f"{kept['tried']} plans of {kept['jobs']} jobs; {_left_out(kept)}"),
            ("front", f"hypervolume {kept['hypervolume']:.3f}"),
            ("weights", weights),
            ("since then", f"{found['drift']:.0%} of the jobs came, went or moved"),
        ]
    )
    return f"{head}\n\n{_plans(kept)}"


def _left_out(kept: PlanSet) -> str:
    return f"{kept['homeless']} left a job without a place in time, {kept['worse']} are worse by the weights"


def _plans(kept: PlanSet) -> str:
    if not kept["plans"]:
        return "no plan is better by any objective and as good by the weights"
    names, units, live = list(kept["units"]), kept["units"], kept["live"]
    lines = [("live", *(amount(live[name], units[name]) for name in names), "")]
    for plan in kept["plans"]:
        values = [_against(plan["values"][name], live[name]) for name in names]
        lines.append((str(plan["number"]), *values, str(len(plan["moves"]))))
    heads = ("PLAN", *(name.upper() for name in names), "MOVED")
    return table(heads, lines, right="".join(str(i) for i in range(1, len(heads))))


def _against(value: float, live: float) -> str:
    return f"{100 * (value / live - 1):+.1f} %" if live else f"{value:g}"


def _moves(moves: Sequence[OfferedMove], now: int) -> str:
    ordered = sorted(moves, key=lambda one: (-abs(one["after"] - one["before"]), natural(one["job"])))
    shown = table(
        ("JOB", "OWNER", "STARTS", "BY", "PROMISED", "NODES"),
        [
            (
                one["job"],
                one["owner"].partition("@")[0],
                moment(one["after"], now),
                _by(one["after"] - one["before"]),
                moment(one["promised"], now) if one["promised"] is not None else "-",
                ", ".join(one["nodes"]),
            )
            for one in ordered[:_MOVES]
        ],
    )
    more = len(ordered) - _MOVES
    return shown + (f"\nand {more} more: --json has them all" if more > 0 else "")


def _by(seconds: int) -> str:
    return f"{span(abs(seconds))} {'later' if seconds > 0 else 'sooner'}" if seconds else "elsewhere"


def _applied(done: AppliedPlan) -> str:
    lines = [("moved", f"{done['moved']} jobs")]
    lines += [
        (one["objective"], f"{amount(one['before'], one['unit'])} -> {amount(one['after'], one['unit'])}")
        for one in done["objectives"]
        if one["before"] != one["after"]
    ]
    return rows(lines)
