"""``schedd replay``: options and output."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from schedd.cli.replay_options import SiteRun
    from schedd.cli.replay_steps import ReplayStops
    from schedd.engine.facts.slack import Slack
    from schedd.replay.comparison import Comparison
    from schedd.replay.result import ReplayResult
    from schedd.replay.searches import SearchSchedule

_PICTURES = (".pdf", ".png", ".svg")
_MACHINE = "The machine"
_WORKLOAD = "The jobs"
_OUTPUT = "Output"


def command(
    logs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LOG",
            help="Standard Workload Format (plain or gzip), PBS or TORQUE accounting logs, or a directory of "
            "accounting logs",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="POLICY",
            help="conservative (plan every job, fill gaps, repair), backfill-shortest (also gives "
            "free capacity to the job expected to be shortest), best-gap and best-gap-edf "
            "(conservative with another placement), tabu (conservative, and search for a better "
            "plan), fcfs, sjf, edf, easy, aggressive, multi-queue, flexible, easy-sjf-24h …; all: the "
            "classical five; rivals: the stronger. May be repeated, or several with commas. "
            " (default: conservative)",
            show_default=False,
        ),
    ] = None,
    policy_file: Annotated[
        Path | None,
        typer.Option(
            "--policy-file",
            metavar="FILE",
            help="a schedd.toml: also replay all settings of its (first) cluster: policy, slack and search. "
            "Each search is bounded by --moves (or --seconds) instead of search_seconds",
            show_default=False,
        ),
    ] = None,
    slack: Annotated[
        str | None,
        typer.Option(
            metavar="S",
            help="what promises of all planning policies leave for moves: seconds (600), a time "
            "(4h), a share of the wait planned at arrival (0.5w), a sum of these (1h+0.5w); off: no promise "
            "holds. Several with commas: a replay of all but conservative for each (default: 0; with "
            "--recommend 1h+0.5w)",
            show_default=False,
        ),
    ] = None,
    hold: Annotated[
        int | None,
        typer.Option(
            metavar="S",
            min=0,
            help="planning policies: no search or backfilling delays a start within S seconds of its "
            "publication (publish_hold)  [default: 0; with --recommend 600]",
            show_default=False,
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="tabu: which search instead, see docs/developers/optimisation.md. Several with commas",
        ),
    ] = "tabu",
    every: Annotated[
        int, typer.Option(metavar="S", help="tabu: simulated seconds between two searches")
    ] = 300,
    pause: Annotated[
        int, typer.Option(metavar="S", help="tabu: and as early as this where room was freed")
    ] = 30,
    newcomers: Annotated[
        int,
        typer.Option(
            metavar="S",
            help="tabu: N seconds after the last search, new jobs, and jobs that fit into capacity "
            "freed early, are tried in front of others; 0: never",
        ),
    ] = 5,
    patience: Annotated[
        int,
        typer.Option(metavar="S", help="tabu: a job that has waited N seconds is hardly moved back any more"),
    ] = 86_400,
    lifted: Annotated[int, typer.Option(metavar="K", help="tabu: most jobs that a move lifts")] = 8,
    parallel: Annotated[
        int,
        typer.Option(metavar="N", help="tabu: searches at the same time, from which the best is taken"),
    ] = 1,
    weights: Annotated[
        str,
        typer.Option(
            metavar="C=W,…",
            help="tabu, best-gap: what counts when two plans are compared, such as wait=1,wait_max=2.  "
            " (default: as in the daemon)",
            show_default=False,
        ),
    ] = "",
    moves: Annotated[int, typer.Option(metavar="N", help="tabu: moves that one search tries")] = 200,
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="S", help="tabu: real seconds of one search instead; no two runs are alike then"
        ),
    ] = None,
    estimates: Annotated[
        str | None,
        typer.Option(
            metavar="exact|user",
            help="what the planner knows of run times (default: exact; with --recommend user)",
            show_default=False,
        ),
    ] = None,
    recommend: Annotated[
        bool,
        typer.Option(
            "--recommend",
            help="compare EASY, the plan alone, shortest-job backfilling and searches on this log, and "
            "recommend one of the last three",
        ),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", metavar="N", help="only N jobs that ran", rich_help_panel=_WORKLOAD),
    ] = None,
    skip: Annotated[
        int, typer.Option("--skip", metavar="N", help="pass over the first N", rich_help_panel=_WORKLOAD)
    ] = 0,
    last: Annotated[
        int | None,
        typer.Option(
            "--last",
            metavar="N",
            help="only the last N jobs that ran, instead of --jobs and --skip",
            rich_help_panel=_WORKLOAD,
        ),
    ] = None,
    expected_starts: Annotated[
        bool,
        typer.Option("--expected-starts", help="measure start estimates, too, in a second run"),
    ] = False,
    until: Annotated[
        list[str] | None,
        typer.Option(
            "--until",
            metavar="T",
            help="run until T and show the plan there, instead of figures: a second of the log (86400), a "
            "time from its second 0 on (36h, 2d), or a date in UTC. May be repeated, or several with commas",
            show_default=False,
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            "--step",
            metavar="S",
            help="then ask on the standard input how to go on: Enter is a step of S (600, 30m, 2h) or, with "
            "event, to the next event; a moment runs until then; q ends it",
            show_default=False,
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    kill: Annotated[
        bool, typer.Option("--kill", help="end jobs at their limit", rich_help_panel=_WORKLOAD)
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="A malformed line is fatal", rich_help_panel=_WORKLOAD)
    ] = False,
    lublin: Annotated[
        int | None,
        typer.Option(
            "--lublin",
            metavar="JOBS",
            help="instead of a log: N jobs from the model of Lublin and Feitelson",
            rich_help_panel=_WORKLOAD,
        ),
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(
            "--load",
            metavar="SHARE",
            help="of the model: share of the machine that its jobs need",
            rich_help_panel=_WORKLOAD,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            metavar="S",
            help="of the model and of searches; nothing else is drawn at random",
            rich_help_panel=_WORKLOAD,
        ),
    ] = 1,
    procs: Annotated[
        int | None,
        typer.Option(
            "--procs",
            metavar="P",
            help="one node of P cpus, memory ignored (default: the log's MaxProcs)",
            rich_help_panel=_MACHINE,
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", metavar="N", help="N equal nodes", rich_help_panel=_MACHINE),
    ] = None,
    cpus_per_node: Annotated[
        int | None,
        typer.Option("--cpus-per-node", metavar="C", help="with --nodes", rich_help_panel=_MACHINE),
    ] = None,
    mem_per_node: Annotated[
        str | None,
        typer.Option(
            "--mem-per-node",
            metavar="M",
            help="with --nodes: KiB, or a size such as 8gb. Without it memory is not planned",
            rich_help_panel=_MACHINE,
        ),
    ] = None,
    machines: Annotated[
        Path | None,
        typer.Option(
            "--machines",
            metavar="FILE",
            help="nodes of different shape: between tabs id, cluster, nodes, cpus and KiB per node (see "
            "docs/reference/trace-formats.md)",
            rich_help_panel=_MACHINE,
        ),
    ] = None,
    failures: Annotated[
        Path | None,
        typer.Option(
            "--failures",
            metavar="FILE",
            help="outages of nodes, one a line: BEGIN END NODE (see docs/reference/trace-formats.md); "
            "jobs on a node that fails are killed",
            show_default=False,
            rich_help_panel=_MACHINE,
        ),
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="write all results there", rich_help_panel=_OUTPUT),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="draw a picture: png, svg or pdf", rich_help_panel=_OUTPUT
        ),
    ] = None,
    validate: Annotated[
        bool,
        typer.Option(
            "--validate", help="check every invariant after every event; slow", rich_help_panel=_OUTPUT
        ),
    ] = False,
) -> None:
    """Replay logs through the daemon's own engine, under one policy or several, and compare.

    Exit status: 0, 2 for input that cannot be replayed, 3 if the engine violated an invariant.
    """
    # Here and not above: `--help` and a mistyped option need not wait for the numeric libraries.
    from schedd.cli.replay_options import (  # noqa: PLC0415
        expand_runs,
        load_site_run,
        parse_kib,
        parse_policies,
        parse_searches,
        parse_slacks,
    )
    from schedd.replay.comparison import Comparison, Machine  # noqa: PLC0415
    from schedd.replay.driver import ReplayDefectError  # noqa: PLC0415
    from schedd.replay.searches import SEARCH_POLICY  # noqa: PLC0415
    from schedd.replay.workload import TraceError  # noqa: PLC0415

    results: list[ReplayResult] = []
    try:
        stops = _parse_stop_options(until, step, expected_starts=expected_starts, plot=plot)
        policies, paths = parse_policies(policy or [], logs or [])
        _check_outputs(json, plot)
        estimates = estimates or ("user" if recommend else "exact")
        if estimates not in ("exact", "user"):
            raise TraceError(f"--estimates {estimates}: exact or user")
        wanted = Comparison(
            logs=paths,
            machine=Machine(
                procs=procs,
                nodes=nodes,
                cpus_per_node=cpus_per_node,
                mem_per_node=parse_kib(mem_per_node),
                machines=machines,
            ),
            estimates="user" if estimates == "user" else "exact",
            jobs=jobs,
            skip=skip,
            last=last,
            kill=kill,
            strict=strict,
            generated=lublin,
            load=load,
            seed=seed,
            failures=failures,
        )
        bounds: dict[str, Any] = {
            "moves": None if seconds is not None else moves,
            "seconds": seconds,
            "seed": seed,
            "lifted": lifted,
            "parallel": parallel,
        }
        if expected_starts and seconds is not None and SEARCH_POLICY in policies:
            raise TraceError(
                "--expected-starts runs everything twice, and with --seconds runs differ: give --moves"
            )
        searches = parse_searches(kind, (every, patience, newcomers, pause), bounds, weights)
        slacks = parse_slacks(slack or "0")
        runs = [run for name in policies for run in expand_runs(name, slacks, searches, hold or 0)]
        site = load_site_run(policy_file, bounds)
        if recommend:
            named = bool(policy) or len(paths) < len(logs or ())
            _check_recommend_options(named, slack, kind, site, stops)
            if hold is not None and site is not None:
                raise TraceError("--recommend takes the hold from --policy-file: give it without --hold")
            _recommend_mode(
                wanted,
                searches[0],
                site,
                (slacks[0] if slack else None, hold),
                (json, plot),
                expected_starts=expected_starts,
                validate=validate,
            )
            return
        if stops is not None:
            runs = [_site_run(site)] if site is not None and not policy else runs
            if len(runs) > 1 or (site is not None and policy):
                raise TraceError("--until and --step need a single policy: name one, or only --policy-file")
            _run_stepped(wanted, runs[0], stops, json, validate=validate, site=site)
            return
        _run_replays(wanted, runs, site, results, expected_starts=expected_starts, validate=validate)
    except (TraceError, OSError) as error:
        _exit_with_error(str(error), 2)
    except ReplayDefectError as defect:
        _exit_with_error(f"a defect of the engine: {defect}", 3)
    except KeyboardInterrupt:
        if results:
            _write_results(results, json, plot)
        _exit_with_error(f"interrupted; {len(results)} complete", 130)
    _write_results(results, json, plot)


def _parse_stop_options(
    until: list[str] | None, step: str | None, *, expected_starts: bool, plot: Path | None
) -> "ReplayStops | None":
    """Where to stop and show the plan; None: nowhere. Raises TraceError."""
    from schedd.cli.replay_steps import parse_stops  # noqa: PLC0415
    from schedd.replay.workload import TraceError  # noqa: PLC0415

    if until is None and step is None:
        return None
    if expected_starts or plot is not None:
        raise TraceError("--until and --step show the plan at a time: without --expected-starts and --plot")
    return parse_stops(until or [], step)


def _site_run(site: "SiteRun") -> tuple[str, str, dict[str, Any]]:
    """The run of a site's settings: its name, the engine's policy, other arguments."""
    from schedd.replay.driver import PLANNING_POLICY  # noqa: PLC0415

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
    from schedd.cli.replay_steps import step_through  # noqa: PLC0415
    from schedd.replay.comparison import warm_up  # noqa: PLC0415
    from schedd.replay.limits import jobs_within_limits  # noqa: PLC0415
    from schedd.replay.workload import TraceError  # noqa: PLC0415

    warm_up(search=run[2].get("searching") is not None)
    made = list(wanted.ready())
    if len(made) > 1:
        raise TraceError("--until and --step go through one log: name one")
    (ready,) = made
    for note in ready.notes:
        print(f"schedd replay: {note}", file=sys.stderr)
    prepared = ready.prepared
    if site is not None:
        prepared, left_out = jobs_within_limits(prepared, site.settings.site)
        if left_out:
            note = f"{prepared.name}: {left_out:,} jobs left out: the limits never allow them"
            print(f"schedd replay: {note}", file=sys.stderr)
    name, policy, how = run
    run = (name, policy, {**how, "outages": ready.outages})
    step_through(prepared, run, stops, asked=sys.stdin, to_json=json, validate=validate)


def _check_recommend_options(
    named: bool, slack: str | None, kind: str, site: "SiteRun | None", stops: "ReplayStops | None"
) -> None:
    """Raise TraceError for options that have no meaning with --recommend."""
    from schedd.replay.workload import TraceError  # noqa: PLC0415

    if named:
        raise TraceError("--recommend chooses the policies that it compares: give it without --policy")
    if stops is not None:
        raise TraceError("--recommend runs logs to their ends: give it without --until and --step")
    if "," in kind or "," in (slack or ""):
        raise TraceError("--recommend makes one comparison: give one --kind and one --slack")
    if site is not None and slack:
        raise TraceError("--recommend takes the slack from --policy-file: give it without --slack")


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
    from schedd.cli.replay_recommend import (  # noqa: PLC0415
        compare_modes,
        print_recommendation,
        recommendation_json,
    )

    if site is not None:
        print(f"schedd replay: site: {site.summary}", file=sys.stderr)
        searching = site.searching or searching
    logs = compare_modes(
        wanted,
        searching,
        site,
        *promises,
        expected_starts=expected_starts,
        validate=validate,
        note=lambda remark: print(f"schedd replay: {remark}", file=sys.stderr),
    )
    chosen = print_recommendation(logs, searching.every)
    _write_files(
        [result for of in logs for result in of.values()], recommendation_json(logs, chosen), *outputs
    )


def _check_outputs(json: Path | None, plot: Path | None) -> None:
    """Fail before hours of work, not after."""
    from schedd.cli.plot_support import missing_plot_library  # noqa: PLC0415
    from schedd.replay.workload import TraceError  # noqa: PLC0415

    for path in (json, plot):
        if path is not None and not path.parent.is_dir():
            raise TraceError(f"{path}: there is no directory {path.parent}")
        if path is not None and path.is_dir():
            raise TraceError(f"{path} is a directory; a file is needed")
    if plot is not None and (missing := missing_plot_library()) is not None:
        raise TraceError(f"--plot {plot}: {missing}")
    if plot is not None and plot.suffix.lower() not in _PICTURES:
        raise TraceError(f"--plot {plot}: its name must end in {', '.join(_PICTURES)}")


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
    from schedd.replay.comparison import warm_up  # noqa: PLC0415
    from schedd.replay.driver import replay  # noqa: PLC0415
    from schedd.replay.limits import jobs_within_limits  # noqa: PLC0415

    with ReplayDisplay() as watch:
        watch.show_status("loading the planner's kernels (compiled at the first use)")
        searched = any("searching" in how for _, _, how in chosen)
        warm_up(search=searched or (site is not None and site.searching is not None))
        if site is not None:
            print(f"schedd replay: site: {site.summary}", file=sys.stderr)
        watch.show_status("reading")
        for ready in wanted.ready():
            for note in ready.notes:
                print(f"schedd replay: {note}", file=sys.stderr)
            prepared = ready.prepared
            runs = list(chosen)
            if site is not None:
                # All policies run the same jobs, or they could not be compared.
                prepared, left_out = jobs_within_limits(prepared, site.settings.site)
                if left_out:
                    note = f"{prepared.name}: {left_out:,} jobs left out: the limits never allow them"
                    print(f"schedd replay: {note}", file=sys.stderr)
                runs.append(_site_run(site))
            for name, policy, how in runs:
                with watch.replay(f"{prepared.name} {name}", prepared.unix_start_time) as on_progress:
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


def _write_results(results: "list[ReplayResult]", json: Path | None, plot: Path | None) -> None:
    """The tables on standard output, and the files."""
    from schedd.replay.report import (  # noqa: PLC0415
        coverage_parts_table,
        limits_table,
        promises_table,
        quality_table,
        speed_table,
        start_estimate_table,
        to_json,
    )

    # Cut to a terminal's width a table is readable; in a file or a pipe no column may be lost.
    console = Console() if sys.stdout.isatty() else Console(width=200)
    console.print(quality_table(results))
    if any(result.limits for result in results):
        console.print(limits_table(results))
    promises = promises_table(results)
    if promises is not None:
        console.print(promises)
    for table in (start_estimate_table(results), coverage_parts_table(results)):
        if table is not None:
            console.print(table)
    console.print(speed_table(results))
    _write_files(results, to_json(results), json, plot)


def _write_files(results: "list[ReplayResult]", text: str, json: Path | None, plot: Path | None) -> None:
    """Write the JSON ``text`` and the picture of ``results``."""
    try:
        if json is not None:
            json.write_text(text, encoding="utf-8")
        if plot is not None:
            from schedd.replay.plot import save  # noqa: PLC0415  (Matplotlib is slow to import)

            save(results, plot)
    except OSError as error:
        _exit_with_error(str(error), 2)


def _exit_with_error(message: str, status: int) -> None:
    print(f"schedd replay: {message}", file=sys.stderr)
    raise typer.Exit(status)
