"""``schedd federation``: clusters of a federation, outcomes of its jobs, and its audit."""

import argparse
from collections.abc import Iterator, Sequence

from schedd.cli.user.action_parsers import print_answer
from schedd.cli.user.audit_table import add_audit_options, format_audit
from schedd.cli.user.command_session import (
    EXIT_CODES,
    add_federation_answer_options,
    make_described_parser,
    run_with_exit_code,
)
from schedd.cli.user.formatting import format_duration, format_rows, format_table
from schedd.client.answers import (
    BagFigures,
    BookingFigures,
    CoAllocationSearches,
    FederatedClusterView,
    FederationReport,
    JobFigures,
    StretchFigures,
)
from schedd.federation.commands.jobs import connect_federation


def make_parser(name: str = "schedd federation") -> argparse.ArgumentParser:
    about = (
        "Show the clusters of a federation, a report of its jobs, arrays, bags, bookings and "
        "co-allocations of the last week, or its audit. docs/reference/metrics.md defines each figure."
    )
    codes = {code: words for code, words in EXIT_CODES.items() if code != 1}
    found = make_described_parser(name, about, "", codes)
    add_federation_answer_options(found)
    acts = found.add_subparsers(dest="act", metavar="ACTION", title="actions")
    acts.add_parser("clusters", help="show its clusters (default)", allow_abbrev=False)
    acts.add_parser(
        "report", help="show outcomes of jobs, co-allocations, bags and bookings", allow_abbrev=False
    )
    audit = acts.add_parser(
        "audit",
        help="for admins: show who submitted or withdrew what, and refused attempts",
        allow_abbrev=False,
    )
    add_audit_options(audit)
    return found


def run(argv: Sequence[str], name: str = "schedd federation") -> int:
    return run_with_exit_code(make_parser(name), _run_action, argv)


def _run_action(args: argparse.Namespace) -> bool:
    with connect_federation(args.url) as federation:
        if args.act == "report":
            report = federation.report()
            print_answer(args, report, lambda: _report_text(report))
            return True
        if args.act == "audit":
            since = max(0, int(federation.now() - args.days * 86_400))
            entries = federation.audit(since=since, limit=args.most)
            print_answer(args, {"entries": entries}, lambda: format_audit(entries) or "no entries")
            return True
        clusters = federation.clusters()
    print_answer(
        args,
        {"clusters": clusters},
        lambda: format_table(_HEADS, [_cluster_cells(one) for one in clusters], last=20),
    )
    return True


_HEADS = ("CLUSTER", "CPUS", "OUR JOBS", "RUNNING", "WAITING CPU HOURS", "STATE")


def _cluster_cells(one: FederatedClusterView) -> tuple[str, ...]:
    cpus = str(one.cpus) if one.cpus is not None else "-"
    hours = f"{one.load[0] / 3_600:,.1f}"
    state = one.away or one.trouble or "answers"
    return one.name, cpus, str(one.ours), str(one.running), hours, state


def _report_text(found: FederationReport) -> str:
    jobs, arrays, bags = found.jobs, found.arrays, found.bags
    parts = (
        (
            "jobs",
            [
                ("ended", str(jobs.ended)),
                ("on more than one cluster", str(jobs.moved)),
                *_deadline_rows(jobs),
            ],
        ),
        ("arrays", [("ended", str(arrays.ended)), *_stretch_rows(arrays.stretch)]),
        ("co-allocations", list(_coallocation_rows(found.coallocations))),
        (
            "bags",
            [
                ("ended", str(bags.ended)),
                ("with a refused share", str(bags.moved)),
                ("clusters for each", _format_mean(bags.clusters)),
                *_deadline_rows(bags),
                *_stretch_rows(bags.stretch),
            ],
        ),
        ("bookings", list(_booking_rows(found.bookings))),
    )
    return "\n\n".join(f"{name}\n{format_rows(lines)}" for name, lines in parts)


def _deadline_rows(of: JobFigures | BagFigures) -> Iterator[tuple[str, str]]:
    due = of.deadlines
    if not due.with_deadline:
        yield "late", "none had a deadline"
        return
    yield "late", f"{due.late} of {due.with_deadline} with a deadline"
    yield "work of these", f"{100 * due.late_work:.1f} %"
    yield "TWDelay", f"{due.tw_delay:,.0f}"


def _stretch_rows(of: StretchFigures) -> Iterator[tuple[str, str]]:
    if of.stretch_s is not None and of.stretch is not None:
        text = f"{format_duration(round(of.stretch_s))}, {100 * of.stretch:.1f} % of the response time"
        yield "stretch factor", f"{text} (mean of {of.known})"
    else:
        yield "stretch factor", "unknown for all"


def _coallocation_rows(of: CoAllocationSearches) -> Iterator[tuple[str, str]]:
    yield "ended, failed", f"{of.ended}, {of.failed}"
    yield "clusters for each", _format_mean(of.clusters)
    yield "shifts, remaps, refused", f"{of.shifts}, {of.remaps}, {of.refused}"
    yield (
        "ended on one cluster",
        _format_share(of.to_one, of.several, of.to_one_share, "planned on several"),
    )
    yield (
        "earlier than published",
        _format_share(of.earlier, of.ended, of.earlier_share, "that ended"),
    )
    yield "gap searches, found", f"{of.gap_searches}, {of.gaps_found}"


def _booking_rows(of: BookingFigures) -> Iterator[tuple[str, str]]:
    yield "requested, booked", f"{of.asked}, {of.booked}"
    yield "of these by a counter-offer", str(of.by_offer)
    yield "refused", f"{of.refused}; {of.declined} times a cluster had no room"
    yield "ended, cancelled, lost", f"{of.ended}, {of.cancelled}, {of.lost}"
    yield "moves", str(of.moves)


def _format_share(some: int, of: int, share: float | None, which: str) -> str:
    text = f"{some} of {of} {which}"
    return text if share is None else f"{text} ({100 * share:.0f} %)"


def _format_mean(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
