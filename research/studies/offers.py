"""Experiment `offers`: bags with deadlines distributed by offers, after Netto's thesis (2009), 6.4."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev
from time import process_time
from typing import Any, Final, Literal

from research.federations.bag_measures import delays
from research.federations.bags import Sharing, simulate_bags
from research.federations.worlds import EXTERNAL, LOCAL, LOGS, SCHEMAS, five_clusters
from research.studies.pool import at_once, how_often
from research.studies.results import Results, present

NAME: Final = "offers"
ABOUT: Final = (
    "How bags of tasks with deadlines are best shared out over clusters with jobs of their own, by what each "
    "cluster discloses: the set-up of Netto, Adaptive co-allocation of distributed resources (2009), 6.4 "
    "(five clusters, real logs)."
)
_WAYS: Final[Mapping[str, Sharing]] = {
    "no balance": "none",
    "by offers": "offers",
    "by power": "power",
    "by power and load": "load",
    "free slots": "free slots",
}
_THEIRS: Final = ("OffersNoLB", "OffersWithPLB", "OffersWithDPLB", "OffersWithDPLBV2", "FreeTimeSlots")
_EDF_WAYS: Final = ("by power and load", "free slots")
"""Ways that are also run with clusters that plan by earliest deadline, which takes many times as long."""
_DAYS: Final = 10.0


def run_offers(
    logs: Path,
    out: Path,
    *,
    quick: bool,
    only: Sequence[str],
    workers: int | None = None,
    repetitions: int | None = None,
) -> None:
    """Write page and figures. Raises TraceError and OSError."""
    del only
    present(LOGS, logs)
    times, days = how_often(repetitions, 3, quick=quick), 1.0 if quick else _DAYS
    todo = [
        (way, schema, str(logs), days, seed, edf)
        for seed in range(1, times + 1)
        for schema in SCHEMAS
        for edf, ways in ((True, _EDF_WAYS), (False, tuple(_WAYS)))
        for way in ways
    ]
    options = [f"--repetitions {repetitions}"] if repetitions else []
    results = Results.of(NAME, ABOUT, out, *options, "--logs LOGS", quick=quick)
    rows = sorted(
        at_once(_one, todo, workers), key=lambda row: (row["edf"], row["schema"], row["way"], row["seed"])
    )
    figures = {"days": days, "repetitions": times, "results": rows}
    results.write(figures, _page(rows, days, times), f"{len(rows)} runs")


def _one(
    way: str, schema: Literal["relaxed", "tight"], logs: str, days: float, seed: int, edf: bool
) -> dict[str, Any]:
    clusters, jobs = five_clusters(Path(logs), days, schema, seed)
    began = process_time()
    ran = simulate_bags(clusters, jobs, _WAYS[way], edf=edf)
    local, bags, each, used = delays(clusters, jobs, ran)
    return {
        "way": way,
        "edf": edf,
        "schema": schema,
        "seed": seed,
        "tasks": sum(bool(job.array) for job in jobs),
        "local": asdict(local),
        "bags": asdict(bags),
        "clusters": each,
        "utilisation": used,
        "cpu_s": process_time() - began,
    }


# ---- the page --------------------------------------------------------------------------------------------


def _page(rows: Sequence[Mapping[str, Any]], days: float, times: int) -> str:
    count = {kind: mean(row[kind]["jobs"] for row in rows) for kind in ("local", "bags")}
    tasks = mean(row["tasks"] for row in rows)
    about = (
        f"{days:g} days, {times} repetitions, each with other windows of the logs and other deadlines: "
        f"{count['local']:,.0f} jobs at their own clusters and {count['bags']:,.0f} bags of {tasks:,.0f} "
        "tasks in the mean. Deadlines lie behind submission and run time by 18 or 36 hours or 10 days "
        "(*relaxed*), or by 12 hours, a day or a week (*tight*), at random. As a bag comes, each cluster's "
        "plan says when it would have ended 10, 25, 50, 75 and 100 % of the tasks; the federation's "
        "composing makes the split. *Free slots*: all places of all plans are known, and the earliest are "
        "taken."
    )
    differs = (
        "What differs from the thesis: it has 60 days and 30 workloads; an offer's sizes are ends of single "
        "tasks and no search for a deadline; what the thesis does not print of the balance by load is *power "
        "/ (waiting jobs + 1)*; times are run times, known exactly, where the thesis does not say."
    )
    planning = (
        "The thesis' clusters plan by earliest deadline. Here they do so in the tables with *earliest "
        "deadline first*: they accept or refuse each deadline, keep accepted ones, and place a job that "
        'would be late before planned jobs with later deadlines (`placement = "best_gap_edf"`, by late jobs '
        "and a tenth of tardiness, without promised starts); offers contain that time. Bags by free slots "
        "tell no deadline. In the other tables a job keeps its place (conservative, gaps filled), and jobs "
        "come in the order of their arrival."
    )
    lines = [about, "", differs, "", planning, ""]
    lines += _sources()
    for edf in (True, False):
        for schema in SCHEMAS:
            some = [row for row in rows if (row["schema"], row["edf"]) == (schema, edf)]
            lines += _of_schema(some, schema, edf=edf)
    return "\n".join((*lines, *_beside(rows), ""))


def _sources() -> list[str]:
    lines = [
        "| cluster | log here | log there | processors | load, % | processors of a job | hours of a job |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for source in (*LOCAL, EXTERNAL):
        sizes, hours = source.sizes, [second // 3600 for second in source.times]
        lines.append(
            f"| {source.name} | {source.log.removesuffix('.swf.gz')} | {source.there} | {source.procs:,} "
            f"| {100 * source.load:.0f} | {sizes[0]} to {sizes[1]} | {hours[0]} to {hours[1]} |"
        )
    words = (
        "LPC-EGEE cannot be had here: jobs of one processor of MetaCentrum's log stand in its place. The "
        "versions of the other logs are newer. Windows of a log are drawn, and stretched to the load."
    )
    return [*lines, "", words, ""]


def _of_schema(rows: Sequence[Mapping[str, Any]], schema: str, *, edf: bool) -> list[str]:
    head = (
        "| sharing | in the thesis | local jobs late, % | work of these, % | TWDelay of these, 1,000 "
        "| bags late, % | work of these, % | TWDelay of these, 1,000 | clusters for each bag "
        "| utilisation, % |"
    )
    lines = [
        f"## Deadlines {schema}, {'earliest deadline first' if edf else 'places kept'}",
        "",
        head,
        f"|---|---|{'--:|' * 8}",
    ]
    for (way, _), name in zip(_WAYS.items(), _THEIRS, strict=True):
        some = [row for row in rows if row["way"] == way]
        if not some:
            continue
        cells = [way, name]
        for kind in ("local", "bags"):
            cells += [
                _told([100 * row[kind]["delayed"] / row[kind]["jobs"] for row in some]),
                _told([100 * row[kind]["work_delayed"] for row in some]),
                _told([row[kind]["tw_delay"] / 1_000 for row in some], 0),
            ]
        cells += [_told([row["clusters"] for row in some], 2)]
        cells += [_told([100 * row["utilisation"] for row in some])]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _told(values: Sequence[float], digits: int = 1) -> str:
    spread = f" ± {stdev(values):,.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):,.{digits}f}{spread}"


def _beside(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The thesis's statements, and the results here."""

    def of(way: str, *where: str, schema: str = "relaxed", edf: bool = False) -> float:
        found = []
        for row in rows:
            if (row["way"], row["schema"], row["edf"]) == (way, schema, edf):
                value: Any = row
                for name in where:
                    value = value[name]
                found.append(float(value))
        return mean(found)

    def all_ways(*where: str, schema: str = "relaxed", scale: float = 1.0) -> str:
        return ", ".join(f"{way} {of(way, *where, schema=schema) / scale:,.1f}" for way in _WAYS)

    def by_deadline(kind: str) -> str:
        """Return the weighted delays of clusters that plan by earliest deadline, in thousands."""
        return "; ".join(
            f"{schema}: "
            + ", ".join(
                f"{way} {of(way, kind, 'tw_delay', schema=schema, edf=True) / 1_000:,.0f}"
                for way in _EDF_WAYS
            )
            for schema in SCHEMAS
        )

    bags, local = (all_ways(kind, "tw_delay", scale=1_000) for kind in ("bags", "local"))
    both = ", ".join(
        f"{way} {(of(way, 'bags', 'tw_delay') + of(way, 'local', 'tw_delay')) / 1_000:,.0f}" for way in _WAYS
    )
    used = [100 * of(way, "utilisation", schema=schema) for way in _WAYS for schema in SCHEMAS]
    table = (
        (
            "TWDelay of bags is far larger with FreeTimeSlots, by offers in some cases 50 % lower",
            f"in thousands, earliest deadline first, {by_deadline('bags')}; places kept, relaxed: {bags}",
        ),
        (
            "TWDelay of local jobs is equal or lower with FreeTimeSlots",
            f"in thousands, earliest deadline first, {by_deadline('local')}; places kept, relaxed: {local}",
        ),
        (
            "Published total power (DPLB) is as good as FreeTimeSlots overall; V2 a little better",
            f"TWDelay of bags and local jobs in thousands, places kept, relaxed: {both}",
        ),
        (
            "Tighter deadlines, fewer clusters for each bag; DPLB spreads best",
            f"relaxed: {all_ways('clusters')}; tight: {all_ways('clusters', schema='tight')}",
        ),
        ("Utilisation differs by less than 1 %", f"{min(used):.1f} to {max(used):.1f} %"),
    )
    lines = ["## Beside what the thesis says", "", "Its figures are bars without numbers.", ""]
    return [*lines, "| the thesis | here |", "|---|---|", *(f"| {said} | {found} |" for said, found in table)]
