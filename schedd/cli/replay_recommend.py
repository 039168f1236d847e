"""``schedd replay --recommend``: EASY and the planning modes on a site's own log, and the mode to use."""

import json
import sys
from collections.abc import Callable

from rich.console import Console

from schedd.cli.importing.result import to_toml
from schedd.cli.progress import ReplayDisplay
from schedd.cli.replay_options import SiteRun, print_note, within_site_limits
from schedd.engine import SITE_PUBLISH_HOLD
from schedd.policy.slack import Slack
from schedd.replay.comparison import Comparison, warm_up
from schedd.replay.recommendation import (
    MODES,
    REFERENCE,
    ModeResults,
    Recommendation,
    recommend_mode,
    replay_mode,
)
from schedd.replay.report import fit_table, modes_table
from schedd.replay.searches import SearchSchedule


def compare_modes(
    wanted: Comparison,
    searching: SearchSchedule,
    site: SiteRun | None,
    slack: Slack | None,
    hold: int | None = None,
    *,
    expected_starts: bool = False,
    validate: bool = False,
    note: Callable[[str], None] = print_note,
) -> list[ModeResults]:
    """Replay each log under EASY and in each mode. Raises TraceError, OSError and ReplayDefectError.

    ``site``: all runs have a site's policy and settings, except for backfilling and searches. ``note`` gets
    remarks about excluded jobs.
    """
    logs: list[ModeResults] = []
    with ReplayDisplay() as watch:
        watch.show_status("loading the planner's kernels (compiled at the first use)")
        warm_up(search=True)
        watch.show_status("reading")
        for ready in wanted.ready():
            for remark in ready.notes:
                note(remark)
            prepared = within_site_limits(ready.prepared, site, note)
            results = {}
            for mode in (REFERENCE, *MODES):
                with watch.replay(f"{prepared.name} {mode}", prepared.unix_start_time) as on_progress:
                    results[mode] = replay_mode(
                        prepared,
                        mode,
                        settings=site.settings if site is not None else None,
                        slack=slack,
                        hold=SITE_PUBLISH_HOLD if hold is None else hold,
                        searching=searching,
                        outages=ready.outages,
                        expected_starts=expected_starts,
                        validate=validate,
                        on_progress=on_progress,
                    )
            logs.append(results)
            watch.show_status("reading")
    return logs


def print_recommendation(logs: list[ModeResults], search_every: int) -> Recommendation:
    """Print the table, the mode with its reason, and its settings; return them."""
    chosen = recommend_mode(logs, search_every)
    console = Console() if sys.stdout.isatty() else Console(width=200)
    console.print(*fit_table(modes_table(logs, chosen.ratios, chosen.mode), console), sep="\n")
    print(f"Recommended mode: {chosen.reason}")
    for line in to_toml(("clusters", "NAME"), chosen.settings):
        print(line)
    return chosen


def recommendation_json(logs: list[ModeResults], chosen: Recommendation) -> str:
    results = [{"mode": mode, **result.as_row()} for of in logs for mode, result in of.items()]
    found = {"recommendation": chosen.as_row(), "results": results}
    return json.dumps(found, indent=2, allow_nan=False) + "\n"
