"""``schedd replay``: options, and what runs them."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedd.cli.arguments import OneLineErrorParser, fail, parse_within
from schedd.cli.replay_output import check_outputs, write_files, write_results

if TYPE_CHECKING:
    from schedd.cli.replay_options import SiteRun
    from schedd.cli.replay_steps import ReplayStops
    from schedd.policy.slack import Slack
    from schedd.replay.comparison import Comparison
    from schedd.replay.result import ReplayResult
    from schedd.replay.searches import SearchSchedule


def make_parser() -> argparse.ArgumentParser:
    """Its options."""
    parser = OneLineErrorParser(
        prog="schedd replay",
        description="Replay logs through the daemon's own engine, under one policy or several, and compare.",
        epilog="Exit status: 0, 2 for input that cannot be replayed, 3 if the engine violated an invariant.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "logs",
        metavar="LOG",
        nargs="*",
        help="Standard Workload Format (plain or gzip), PBS or TORQUE accounting logs, or a directory of "
        "accounting logs",
    )
    add(
        "--policy",
        metavar="POLICY",
        action="append",
        default=[],
        help="conservative (plan every job, fill gaps, repair), backfill-shortest (also gives free "
        "capacity to the job expected to be shortest), best-gap and best-gap-edf (conservative with "
        "another placement), tabu (conservative, and search for a better plan), fcfs, sjf, edf, easy, "
        "aggressive, multi-queue, flexible, easy-sjf-24h …; all: the classical five; rivals: the "
        "stronger. May be repeated, or several with commas. (default: conservative)",
    )
    add(
        "--policy-file",
        metavar="FILE",
        type=Path,
        help="a schedd.toml: also replay all settings of its (first) cluster: policy, slack and search. "
        "Each search is bounded by --moves (or --seconds) instead of search_seconds",
    )
    add(
        "--slack",
        metavar="S",
        help="what promises of all planning policies leave for moves: seconds (600), a time (4h), a share "
        "of the wait planned at arrival (0.5w), a sum of these (1h+0.5w); off: no promise holds. "
        "Several with commas: a replay of all but conservative for each (default: 0; with --recommend "
        "1h+0.5w)",
    )
    add(
        "--hold",
        metavar="S",
        type=parse_within(int, 0),
        help="planning policies: no search or backfilling delays a start within S seconds of its "
        "publication (publish_hold) (default: 0; with --recommend 600)",
    )
    add(
        "--weights",
        metavar="C=W,…",
        default="",
        help="tabu, best-gap: what counts when two plans are compared, such as wait=1,wait_max=2 (default: "
        "as in the daemon)",
    )
    add(
        "--moves", metavar="N", type=int, default=200, help="tabu: moves that one search tries (default: 200)"
    )
    add(
        "--seconds",
        metavar="S",
        type=float,
        help="tabu: real seconds of one search instead; no two runs are alike then",
    )
    add(
        "--estimates",
        choices=("exact", "user"),
        help="what the planner knows of run times (default: exact; with --recommend user)",
    )
    add(
        "--recommend",
        action="store_true",
        help="compare EASY, the plan alone, shortest-job backfilling and searches on this log, and "
        "recommend one of the last three",
    )
    add("--jobs", metavar="N", type=int, help="only N jobs that ran")
    add("--skip", metavar="N", type=int, default=0, help="skip the first N (default: 0)")
    add("--last", metavar="N", type=int, help="only the last N jobs that ran, instead of --jobs and --skip")
    add("--expected-starts", action="store_true", help="measure start estimates, too, in a second run")
    add(
        "--until",
        metavar="T",
        action="append",
        default=[],
        help="run until T and show the plan there, instead of figures: a second of the log (86400), a time "
        "after its beginning (36h, 2d), or a date in UTC. May be repeated, or several with commas",
    )
    add(
        "--step",
        metavar="S",
        help="then ask on the standard input how to go on: Enter is a step of S (600, 30m, 2h) or, with "
        "event, to the next event; a moment runs until then; q ends it",
    )
    add("--kill", action="store_true", help="end jobs at their limit")
    add("--strict", action="store_true", help="stop at a malformed line")
    add(
        "--lublin",
        metavar="JOBS",
        type=int,
        help="instead of a log: N jobs from the model of Lublin and Feitelson",
    )
    add("--load", metavar="SHARE", type=float, help="of the model: share of the machine that its jobs need")
    add(
        "--seed",
        metavar="S",
        type=int,
        default=1,
        help="of the model and of searches; nothing else is drawn at random (default: 1)",
    )
    add(
        "--procs",
        metavar="P",
        type=int,
        help="one node of P cpus, memory ignored (default: the log's MaxProcs)",
    )
    add("--nodes", metavar="N", type=int, help="N equal nodes")
    add("--cpus-per-node", metavar="C", type=int, help="with --nodes")
    add(
        "--mem-per-node",
        metavar="M",
        help="with --nodes: KiB, or a size such as 8gb. Without it memory is not planned",
    )
    add(
        "--machines",
        metavar="FILE",
        type=Path,
        help="nodes of different shape: between tabs id, cluster, nodes, cpus and KiB per node (see "
        "docs/reference/trace-formats.md)",
    )
    add(
        "--failures",
        metavar="FILE",
        type=Path,
        help="outages of nodes, one a line: BEGIN END NODE (see docs/reference/trace-formats.md); jobs on "
        "a node that fails are killed",
    )
    add("--json", metavar="FILE", type=Path, help="write all results there")
    add("--plot", metavar="FILE", type=Path, help="draw a picture: png, svg or pdf")
    add("--validate", action="store_true", help="check every invariant after every event; slow")
    return parser


def run(argv: Sequence[str]) -> int:
    """Replay and compare; 0, 2 for input that cannot be replayed, 3 if the engine violated an invariant."""
    args = make_parser().parse_intermixed_args(argv)
    # Here and not above: `--help` and a mistyped option need not wait for the numeric libraries.
    from schedd.cli.replay_options import (  # noqa: PLC0415
        expand_runs,
        load_site_run,
        parse_kib,
        parse_policies,
        parse_search,
        parse_slacks,
        with_queue_order,
    )
    from schedd.replay.comparison import ComparedMachine, Comparison  # noqa: PLC0415
    from schedd.replay.machine_state import ReplayDefectError  # noqa: PLC0415
    from schedd.replay.searches import SEARCH_POLICY  # noqa: PLC0415
    from schedd.replay.workload import TraceError  # noqa: PLC0415

    results: list[ReplayResult] = []
    try:
        stops = _parse_stop_options(args)
        policies, paths = parse_policies(args.policy, args.logs)
        check_outputs(args.json, args.plot)
        wanted = Comparison(
            logs=paths,
            machine=ComparedMachine(
                procs=args.procs,
                nodes=args.nodes,
                cpus_per_node=args.cpus_per_node,
                mem_per_node=parse_kib(args.mem_per_node),
                machines=args.machines,
            ),
            estimates=args.estimates or ("user" if args.recommend else "exact"),
            jobs=args.jobs,
            skip=args.skip,
            last=args.last,
            kill=args.kill,
            strict=args.strict,
            generated=args.lublin,
            load=args.load,
            seed=args.seed,
            failures=args.failures,
        )
        bounds: dict[str, Any] = {
            "moves": None if args.seconds is not None else args.moves,
            "seconds": args.seconds,
            "seed": args.seed,
        }
        if args.expected_starts and args.seconds is not None and SEARCH_POLICY in policies:
            raise TraceError(
                "--expected-starts runs everything twice, and with --seconds runs differ: give --moves"
            )
        search = parse_search(bounds, args.weights)
        slacks = parse_slacks(args.slack or "0")
        runs = [run for name in policies for run in expand_runs(name, slacks, search, args.hold or 0)]
        site = load_site_run(args.policy_file, bounds)
        runs = [with_queue_order(run, site) for run in runs]
        if args.recommend:
            _check_recommend_options(args, bool(args.policy) or len(paths) < len(args.logs), site, stops)
            _recommend_mode(
                wanted,
                search,
                site,
                (slacks[0] if args.slack else None, args.hold),
                (args.json, args.plot),
                expected_starts=args.expected_starts,
                validate=args.validate,
            )
            return 0
        if stops is not None:
            runs = [_site_run(site)] if site is not None and not args.policy else runs
            if len(runs) > 1 or (site is not None and args.policy):
                raise TraceError("--until and --step need a single policy: name one, or only --policy-file")
            _run_stepped(wanted, runs[0], stops, args.json, validate=args.validate, site=site)
            return 0
        _run_replays(
            wanted, runs, site, results, expected_starts=args.expected_starts, validate=args.validate
        )
    except (TraceError, OSError) as error:
        fail("replay", str(error))
    except ReplayDefectError as defect:
        fail("replay", f"a defect of the engine: {defect}", 3)
    except KeyboardInterrupt:
        if results:
            write_results(results, args.json, args.plot)
        fail("replay", f"interrupted; {len(results)} complete", 130)
    write_results(results, args.json, args.plot)
    return 0


def _parse_stop_options(args: argparse.Namespace) -> "ReplayStops | None":
    """Where to stop and show the plan; None: nowhere. Raises TraceError."""
    from schedd.cli.replay_steps import parse_stops  # noqa: PLC0415
    from schedd.replay.workload import TraceError  # noqa: PLC0415

    if not args.until and args.step is None:
        return None
    if args.expected_starts or args.plot is not None:
        raise TraceError("--until and --step show the plan at a time: without --expected-starts and --plot")
    return parse_stops(args.until, args.step)


def _site_run(site: "SiteRun") -> tuple[str, str, dict[str, Any]]:
    """The run of a site's settings: its name, the engine's policy, other arguments."""
    from schedd.replay.simulation import PLANNING_POLICY  # noqa: PLC0415

    own = {"settings": site.settings, "searching": site.searching}
    return f"{PLANNING_POLICY} site", PLANNING_POLICY, own


def _run_stepped(
    wanted: "Comparison",
    run: tuple[str, str, dict[str, Any]],
    stops: "ReplayStops",
    json: Path | None,
    *,
    validate: bool,
    site: "SiteRun | None",
) -> None:
    """Stop at moments of one log. Raises TraceError, Defect and OSError."""
    from schedd.cli.replay_options import print_note, within_site_limits  # noqa: PLC0415
    from schedd.cli.replay_steps import step_through  # noqa: PLC0415
    from schedd.replay.comparison import warm_up  # noqa: PLC0415
    from schedd.replay.workload import TraceError  # noqa: PLC0415

    warm_up(search=run[2].get("searching") is not None)
    made = list(wanted.ready())
    if len(made) > 1:
        raise TraceError("--until and --step go through one log: name one")
    (ready,) = made
    for note in ready.notes:
        print_note(note)
    prepared = within_site_limits(ready.prepared, site)
    name, policy, how = run
    run = (name, policy, {**how, "outages": ready.outages})
    step_through(prepared, run, stops, asked=sys.stdin, to_json=json, validate=validate)


def _check_recommend_options(
    args: argparse.Namespace, named: bool, site: "SiteRun | None", stops: "ReplayStops | None"
) -> None:
    """Raise TraceError for options that have no meaning with --recommend."""
    from schedd.replay.workload import TraceError  # noqa: PLC0415

    if named:
        raise TraceError("--recommend chooses the policies that it compares: give it without --policy")
    if stops is not None:
        raise TraceError("--recommend runs logs to their ends: give it without --until and --step")
    if "," in (args.slack or ""):
        raise TraceError("--recommend makes one comparison: give one --slack")
    if site is not None and args.slack:
        raise TraceError("--recommend takes the slack from --policy-file: give it without --slack")
    if site is not None and args.hold is not None:
        raise TraceError("--recommend takes the hold from --policy-file: give it without --hold")


def _recommend_mode(
    wanted: "Comparison",
    searching: "SearchSchedule",
    site: "SiteRun | None",
    promises: "tuple[Slack | None, int | None]",
    outputs: tuple[Path | None, Path | None],
    *,
    expected_starts: bool,
    validate: bool,
) -> None:
    """Compare the planning modes and print the recommendation. Raises TraceError and ReplayDefectError."""
    from schedd.cli.replay_options import print_note  # noqa: PLC0415
    from schedd.cli.replay_recommend import (  # noqa: PLC0415
        compare_modes,
        print_recommendation,
        recommendation_json,
    )

    if site is not None:
        print_note(f"site: {site.summary}")
        searching = site.searching or searching
    logs = compare_modes(
        wanted,
        searching,
        site,
        *promises,
        expected_starts=expected_starts,
        validate=validate,
    )
    chosen = print_recommendation(logs, searching.every)
    write_files(
        [result for of in logs for result in of.values()], recommendation_json(logs, chosen), *outputs
    )


def _run_replays(
    wanted: "Comparison",
    chosen: list[tuple[str, str, dict[str, Any]]],
    site: "SiteRun | None",
    results: "list[ReplayResult]",
    *,
    expected_starts: bool,
    validate: bool,
) -> None:
    """Replay everything, showing how far it is; appends to `results` as they come."""
    from schedd.cli.progress import ReplayDisplay  # noqa: PLC0415
    from schedd.cli.replay_options import print_note, within_site_limits  # noqa: PLC0415
    from schedd.replay.comparison import warm_up  # noqa: PLC0415
    from schedd.replay.driver import replay  # noqa: PLC0415
    from schedd.service.garbage_collector import rare_collections  # noqa: PLC0415

    with ReplayDisplay() as watch:
        watch.show_status("loading the planner's kernels (compiled at the first use)")
        searched = any("searching" in how for _, _, how in chosen)
        warm_up(search=searched or (site is not None and site.searching is not None))
        if site is not None:
            print_note(f"site: {site.summary}")
        watch.show_status("reading")
        for ready in wanted.ready():
            for note in ready.notes:
                print_note(note)
            # All policies run the same jobs, or they could not be compared.
            prepared = within_site_limits(ready.prepared, site)
            for name, policy, how in [*chosen, *([_site_run(site)] if site is not None else ())]:
                shown = watch.replay(f"{prepared.name} {name}", prepared.unix_start_time)
                with shown as on_progress, rare_collections():
                    results.append(
                        replay(
                            prepared,
                            policy,
                            **how,
                            outages=ready.outages,
                            expected_starts=expected_starts,
                            validate=validate,
                            on_progress=on_progress,
                        )
                    )
            watch.show_status("reading")
