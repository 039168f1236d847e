"""Experiment `flexco`: co-allocations with a fixed and a flexible start; Netto's thesis (2009), 4.5."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev
from time import process_time
from typing import Any, Final

import structlog

from research.federations.group_measures import busy, fates, group_waits, local_waits, losses
from research.federations.groups import Moving, simulate_groups
from research.federations.worlds import GROUP_LOGS, GROUPS, SITES, three_clusters
from research.studies.pool import at_once, how_often
from research.studies.results import Results, present

NAME: Final = "flexco"
ABOUT: Final = (
    "What co-allocations gain, and what local jobs gain or lose, if a co-allocation keeps its first "
    "published start (*rigid*), is shifted to an earlier one (*shift*), or may change its "
    "clusters as well (*remap*): the set-up of Netto, Adaptive co-allocation of distributed resources "
    "(2009), 4.5 (three clusters, real logs)."
)
_WAYS: Final[tuple[Moving, ...]] = ("rigid", "shift", "remap")
_PRECISIONS: Final = (0, 25, 50)
_ASKED_THERE: Final = (192, 107, 288, 55, 91)
"""Loads by the users' requests, %: of the thesis' clusters, and of its jobs from outside."""
_COMPARED: Final = (
    "response of local jobs",
    "slowdown of these",
    "response of groups",
    "slowdown of these",
    "utilisation",
)
_DAYS: Final = 5.0
_AGAIN: Final = 600
_DAY: Final = 86_400


def run_flexco(
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
    present(GROUP_LOGS, logs)
    times, days = how_often(repetitions, 2, quick=quick), 1.0 if quick else _DAYS
    todo = [
        (str(logs), days, outside, precision, seed)
        for seed in range(1, times + 1)
        for outside in sorted(GROUPS, reverse=True)  # the longest runs first
        for precision in _PRECISIONS
    ]
    options = [f"--repetitions {repetitions}"] if repetitions else []
    results = Results.of(NAME, ABOUT, out, *options, "--logs LOGS", quick=quick)
    found = [row for done in at_once(_one, todo, workers) for row in done["rows"]]
    rows = sorted(found, key=lambda row: (row["outside"], row["precision"], row["seed"], _order(row["way"])))
    figures = {"days": days, "repetitions": times, "results": rows}
    results.write(figures, _page(rows, days, times), f"{len(rows)} runs")


def _order(way: str) -> int:
    return ("alone", *_WAYS).index(way)


def _one(logs: str, days: float, outside: int, precision: int, seed: int) -> dict[str, Any]:
    """The same jobs without groups, and with them in each way."""
    # A federation logs each step of each group.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    clusters, jobs, groups = three_clusters(Path(logs), days, outside, precision, seed)
    seconds = int(days * _DAY)
    about: dict[str, Any] = {"outside": outside, "precision": precision, "seed": seed}
    load, asked = (
        {
            spec.name: sum(one.cpus * time for one, time in of if one.home == spec.name) / seconds / spec.cpus
            for spec in clusters
        }
        for of in ([(one, one.run) for one in jobs], [(one, one.walltime) for one in jobs])
    )
    about |= {"load": load, "load_asked": asked}
    rows: list[dict[str, Any]] = []
    began = process_time()
    alone, _ = simulate_groups(clusters, jobs, [], "rigid")
    local = asdict(local_waits(jobs, alone))
    used = busy(clusters, jobs, alone, [], [], seconds)
    rows.append(
        about | {"way": "alone", "local": local, "utilisation": used, "cpu_s": process_time() - began}
    )
    rigid = alone
    for way in _WAYS:
        began = process_time()
        ran, of_groups = simulate_groups(clusters, jobs, groups, way, again=_AGAIN)
        rigid = ran if way == "rigid" else rigid
        rows.append(
            about
            | {
                "way": way,
                "local": asdict(local_waits(jobs, ran)),
                "groups": asdict(group_waits(groups, of_groups)),
                "fates": asdict(fates(of_groups)),
                "against_alone": asdict(losses(ran, alone)),
                "against_rigid": asdict(losses(ran, rigid)),
                "utilisation": busy(clusters, jobs, ran, groups, of_groups, seconds),
                "cpu_s": process_time() - began,
            }
        )
    return {"rows": rows}


# ---- the page --------------------------------------------------------------------------------------------


def _page(rows: Sequence[Mapping[str, Any]], days: float, times: int) -> str:
    local = mean(row["local"]["jobs"] for row in rows)
    windows = "one window of each log"
    if times > 1:
        windows = f"{times} repetitions, each with other windows of the logs"
    about = (
        f"{days:g} days, {windows}: {local:,.0f} jobs at their own clusters in the mean. A job from outside "
        "is a group of parts of at most 64 processors, each of which may go to any cluster; on more than one "
        "cluster it runs longer by a percentage that is drawn (Poisson, mean 20, at most 25). All is the "
        "production code: the clusters' engines, and the federation's state and worker for co-allocations, "
        "which asks copies of the plans, books in two phases, hands parts over on hold, and moves a group "
        "only where that ends it earlier by a minute at least, into room that is left when each cluster has "
        "repaired "
        f"its plan. Plans are asked again after a job ended early, every {_AGAIN // 60} minutes at most, for "
        "groups in the order of their starts. "
        "*Alone*: the same local jobs without groups."
    )
    differs = (
        "What differs from the thesis: it has 30 days; it divides a job's processors over clusters as it "
        "likes, here a part is one job at one cluster, and 64 processors stay together; versions of the logs "
        "are newer, and windows of them are drawn and stretched to the load, so that what users ask for is "
        "other than there (*asked for*); plans are not asked at each early end; waiting local jobs are "
        "repaired oldest first, there in the order of planned starts; a start is planned a "
        "minute ahead, and bookings are a minute longer than their jobs, as in production. How its precision "
        "is meant it does not say: here what users ask for above the run time is less by 25 or 50 %."
    )
    lines = [about, "", differs, ""]
    lines += _sources(rows)
    for outside in GROUPS:
        lines += _of_load([row for row in rows if row["outside"] == outside], outside)
    return "\n".join((*lines, *_against(rows), *_beside(rows), ""))


def _sources(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "| jobs | log here | log there | processors | load, % | asked for, % | asked for there, % |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    plain = [row for row in rows if not row["precision"]]
    for source, there in zip(SITES, _ASKED_THERE, strict=False):
        load, asked = (100 * mean(row[what][source.name] for row in plain) for what in ("load", "load_asked"))
        lines.append(
            f"| {source.name} | {source.log.removesuffix('.swf.gz')} | {source.there} | {source.procs:,} "
            f"| {load:.0f} | {asked:.0f} | {there} |"
        )
    for source, there in zip(GROUPS.values(), _ASKED_THERE[len(SITES) :], strict=True):
        low, high = source.sizes
        lines.append(
            f"| from outside, {low} to {high} processors | {source.log.removesuffix('.swf.gz')} "
            f"| {source.there} | {source.procs:,} | {100 * source.load:.0f} | | {there} |"
        )
    return [*lines, ""]


def _of_load(rows: Sequence[Mapping[str, Any]], outside: int) -> list[str]:
    groups = mean(row["groups"]["jobs"] for row in rows if row["way"] != "alone")
    waits = (
        "| precision, % | moving | response of local jobs, s | slowdown | later than rigid, % of jobs "
        "| by, s | earlier, % | response of groups, s | slowdown | utilisation, % |"
    )
    moves = (
        "| precision, % | moving | groups first on several clusters, % | of these on one at last, % "
        "| on more than at first, % | clusters for each | earlier than published first, % | later, % "
        "| earlier by, s | shifts | remaps |"
    )
    title = f"## Load from outside {outside} % (so the thesis calls it): {groups:,.0f} groups in the mean"
    lines = [title, "", waits, f"|--:|---|{'--:|' * 8}"]
    for precision in _PRECISIONS:
        for way in ("alone", *_WAYS):
            some = _of(rows, precision, way)
            cells = [_told(some, "local", "response"), _told(some, "local", "slowdown", 2)]
            if way in ("alone", "rigid"):
                cells += [""] * 3
            else:
                cells += [_percent(some, "against_rigid", "later"), _told(some, "against_rigid", "lost")]
                cells += [_percent(some, "against_rigid", "earlier")]
            if way == "alone":
                cells += [""] * 2
            else:
                cells += [_told(some, "groups", "response"), _told(some, "groups", "slowdown", 2)]
            cells += [_percent(some, "utilisation")]
            lines.append(f"| {precision} | {way} | {' | '.join(cells)} |")
    lines += ["", moves, f"|--:|---|{'--:|' * 9}"]
    for precision in _PRECISIONS:
        for way in _WAYS:
            some = _of(rows, precision, way)
            cells = [_percent(some, "fates", name) for name in ("several", "to_one", "spread")]
            cells += [_told(some, "fates", "clusters", 2)]
            cells += [_percent(some, "fates", name) for name in ("earlier", "later")]
            cells += [_told(some, "fates", name) for name in ("gained", "shifts", "remaps")]
            lines.append(f"| {precision} | {way} | {' | '.join(cells)} |")
    return [*lines, ""]


def _of(rows: Sequence[Mapping[str, Any]], precision: int, way: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if (row["precision"], row["way"]) == (precision, way)]


def _values(rows: Sequence[Mapping[str, Any]], *where: str) -> list[float]:
    found = []
    for row in rows:
        value: Any = row
        for name in where:
            value = value[name]
        found.append(float(value))
    return found


def _told(rows: Sequence[Mapping[str, Any]], kind: str, what: str, digits: int = 0) -> str:
    return _spread(_values(rows, kind, what), digits)


def _percent(rows: Sequence[Mapping[str, Any]], *where: str) -> str:
    return _spread([100 * one for one in _values(rows, *where)], 1)


def _spread(values: Sequence[float], digits: int) -> str:
    spread = f" ± {stdev(values):,.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):,.{digits}f}{spread}"


def _against(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """By how much moves make times shorter than rigid's."""
    lines = [
        "## Against rigid",
        "",
        "By how many percent times are shorter than rigid's in the mean; utilisation in points.",
        "",
        f"| load, % | precision, % | moving | {' | '.join(_COMPARED)} |",
        f"|--:|--:|---|{'--:|' * len(_COMPARED)}",
    ]
    for outside in GROUPS:
        for precision in _PRECISIONS:
            for way in _WAYS[1:]:
                cells = [
                    _spread(_less(rows, outside, precision, way, kind, what), 1)
                    for kind in ("local", "groups")
                    for what in ("response", "slowdown")
                ]
                cells.append(_spread(_more_used(rows, outside, precision, way), 1))
                lines.append(f"| {outside} | {precision} | {way} | {' | '.join(cells)} |")
    return [*lines, ""]


def _cell(
    rows: Sequence[Mapping[str, Any]], outside: int, precision: int, way: str, *where: str
) -> list[float]:
    return _values(_of([row for row in rows if row["outside"] == outside], precision, way), *where)


def _less(
    rows: Sequence[Mapping[str, Any]], outside: int, precision: int, way: str, kind: str, what: str,
    than: str = "rigid",
) -> list[float]:  # fmt: skip
    """By how many percent a time is shorter, each seed against itself."""
    now, before = (_cell(rows, outside, precision, one, kind, what) for one in (way, than))
    return [100 * (1 - one / other) for one, other in zip(now, before, strict=True)]


def _more_used(rows: Sequence[Mapping[str, Any]], outside: int, precision: int, way: str) -> list[float]:
    now, before = (_cell(rows, outside, precision, one, "utilisation") for one in (way, "rigid"))
    return [100 * (one - other) for one, other in zip(now, before, strict=True)]


def _beside(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The thesis's statements, and the results here."""

    def each(of: Callable[[int, int], float]) -> str:
        """By load, at each precision."""
        return "; ".join(
            f"{outside} %: {', '.join(f'{of(outside, one):.1f}' for one in _PRECISIONS)}"
            for outside in GROUPS
        )

    def less(kind: str, way: str, than: str = "rigid") -> str:
        return each(lambda load, one: mean(_less(rows, load, one, way, kind, "response", than)))

    def used(way: str) -> str:
        return each(lambda load, one: mean(_more_used(rows, load, one, way)))

    def share(way: str, what: str) -> str:
        return each(lambda load, one: 100 * mean(_cell(rows, load, one, way, "fates", what)))

    table = {
        "Both shorten responses, of local jobs": f"shift {less('local', 'shift')} %; remap "
        f"{less('local', 'remap')} %",
        "and of jobs from outside, of local ones more": f"shift {less('groups', 'shift')} %; remap "
        f"{less('groups', 'remap')} %",
        "Remap is as good as shift or better nearly everywhere": "its responses are shorter, of local jobs "
        f"{less('local', 'remap', 'shift')} %; of groups {less('groups', 'remap', 'shift')} %",
        "The worse the estimates, the greater the gain": "of each three figures the first is that of the "
        "worst estimates",
        "Utilisation is higher, by over 10 % at its peak; at 10 % load and 50 % precision remap's is below "
        "rigid's, since work for the network is gone": f"points: shift {used('shift')}; "
        f"remap {used('remap')}",
        "About 15 % of jobs on several clusters end on one, at 10 % load more than at 30 %": "remap "
        f"{share('remap', 'to_one')}",
        "At 30 % they may be spread over more clusters": f"remap {share('remap', 'spread')}",
        "Nearly all jobs from outside start earlier than promised": f"shift {share('shift', 'earlier')}; "
        f"remap {share('remap', 'earlier')}",
        "None starts later": f"later: shift {share('shift', 'later')}; remap {share('remap', 'later')}",
    }
    about = (
        "Its figures are bars without numbers. Behind each load are three figures, at a precision of 0, 25 "
        "and 50 %: by how much less than rigid's, unless it is said otherwise. ± above, where there are "
        "several windows, is the standard deviation between them."
    )
    lines = ["## Beside what the thesis says", "", about, "", "| the thesis | here |", "|---|---|"]
    return [*lines, *(f"| {said} | {found} |" for said, found in table.items())]
