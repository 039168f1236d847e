"""Experiment `thesis`: workloads and machines of D. Paul (2013), with the printed tables next to ours."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from research.experiments.thesis import MODELS, Batch, ThesisBatchResult, batch, front_of, ran
from research.experiments.thesis_printed import PRINTED, Printed
from research.studies.results import Results
from schedd.alternatives.objective_weights import Objective
from schedd.cli import plot_support
from schedd.replay.workload import TraceError

NAME: Final = "thesis"
ABOUT: Final = (
    "The workloads 1 to 8 and machines of D. Paul, Multi-objective evolution based dynamic job scheduler "
    "(2013), chapter 4: its utilisation tables beside ours, energy against performance, types, and the "
    "front in three dimensions. Needs no logs: jobs are drawn by its rules."
)
_EQUAL: Final = {
    Objective.COST_OVERRUN: 1.0,
    Objective.NON_UTILISATION: 1.0,
    Objective.LATENESS: 1.0,
    Objective.MAKESPAN: 1.0,
}
_SIX: Final = ("p4", "x6800", "qx6700", "i7-920", "i7x", "i7-2600")
_TWELVE: Final = tuple(model for model in _SIX for _ in range(2))
_MIXES: Final = (0.3, 0.5, 0.7)
_AIMS: Final = (Objective.MAKESPAN, Objective.ENERGY, Objective.LATENESS)
_LONGEST: Final = {"DAS-2": 20_000, "SHARCNET": 100_000}
_SIZES: Final = ((1_000, 10), (2_000, 25))


def run_thesis(_: Path, out: Path, *, quick: bool, only: Sequence[str]) -> None:
    """Write page, figures and picture. Raises TraceError for invalid options, and NoPymoo."""
    if only:
        raise TraceError("--only: the experiment draws its jobs and has no logs")
    if (missing := plot_support.missing_plot_library()) is not None:
        raise TraceError(missing)
    results = Results.of(NAME, ABOUT, out, quick=quick)
    jobs, tried, front_jobs, front_tried = (120, 12, 60, 60) if quick else (1_000, 24, 500, 300)
    sizes = ((120, 10),) if quick else _SIZES
    with Console(stderr=True).status("drawing jobs") as status:
        tables = [(one, _of_table(one, jobs, tried, status.update)) for one in PRINTED]
        alone = []
        for workload in (1, 2):
            for n, count in sizes:
                status.update(f"workload {workload}: {n:,} jobs on {count} machines")
                models = [_SIX[i % len(_SIX)] for i in range(count)]
                alone.append((workload, n, ran(batch(workload, n, models, [""] * count), "planned")))
        thrift = [(w, _energy(w, jobs, tried, status.update)) for w in (1, 2)]
        types = []
        for workload in (3, 4):
            for mix in _MIXES:
                status.update(f"workload {workload}: {mix:.0%} of the first type")
                kinds = [("cpu", "io")[i % 2] for i in range(12)]
                types.append(
                    (workload, mix, ran(batch(workload, jobs, _TWELVE, kinds, share=mix), "planned"))
                )
        fronts = []
        for workload in (1, 2):
            status.update(f"the front of workload {workload}")
            what = batch(workload, front_jobs, _TWELVE, [""] * 12)
            fronts.append((workload, *front_of(what, _AIMS, front_tried, 60)))
    figures: dict[str, Any] = {
        "jobs": jobs,
        "tables": [{"table": one.table, "ran": [asdict(r) for r in found]} for one, found in tables],
        "independent": [{"workload": w, "jobs": n, "ran": asdict(r)} for w, n, r in alone],
        "energy": [{"workload": w, "ran": [asdict(r) for r in found]} for w, found in thrift],
        "types": [{"workload": w, "first": mix, "ran": asdict(r)} for w, mix, r in types],
        "fronts": [{"workload": w, "live": live, "plans": plans} for w, live, plans in fronts],
    }
    _picture(fronts, results.picture)
    lines = [*_words(jobs, tried), ""]
    lines += [*_summary(tables), "", *_independent(alone), "", *_thrift(thrift), "", *_types(types), ""]
    lines += [*_front(fronts, front_jobs, front_tried, results.picture.name), ""]
    for one, found in tables:
        lines += [*_table(one, found[-1]), ""]
    results.write(figures, "\n".join(lines), f"{len(tables)} tables")


# ---- runs ---------------------------------------------------------------------------------------


def _kinds(printed: Printed) -> list[str]:
    """Which jobs run on each resource of a table, in the order of ids: odd and even, or the first half."""
    n = len(printed.rows)
    if not printed.typed:
        return [""] * n
    return [("cpu", "io")[i % 2 if n == 12 else i >= n // 2] for i in range(n)]


def _of_table(printed: Printed, jobs: int, tried: int, say: Callable[[str], None]) -> list[ThesisBatchResult]:
    models = [model for model, _, _ in printed.rows]
    what = batch(printed.workload, jobs, models, _kinds(printed))
    say(f"table {printed.table}: planned")
    planned = ran(what, "planned")
    say(f"table {printed.table}: chosen")
    return [planned, ran(what, "chosen", _EQUAL, every=_every(what), evaluations=tried)]


def _energy(workload: int, jobs: int, tried: int, say: Callable[[str], None]) -> list[ThesisBatchResult]:
    what = batch(workload, jobs, _TWELVE, [""] * 12)
    both = {Objective.MAKESPAN: 1.0, Objective.ENERGY: 1.0}
    say(f"workload {workload}, energy")
    return [
        ran(what, "planned"),
        ran(what, "planned, thrifty machines first", thrifty=True),
        ran(what, "chosen, makespan and energy alike", both, every=_every(what), evaluations=tried),
    ]


def _every(what: Batch) -> int:
    """Return the simulated seconds between two choices, for about five choices."""
    work = sum(job.run for job in what.prepared.jobs)
    return max(60, work // sum(int(MODELS[model].speed) or 1 for model in what.models) // 5)


# ---- the page -----------------------------------------------------------------------------------


def _words(jobs: int, tried: int) -> list[str]:
    return [
        (
            f"{jobs:,} jobs a batch, all there from the beginning, each for one core; seed 1. The thesis "
            "does not say how many jobs its tables are of, nor how run times, time limits and limits of "
            f"cost are distributed. Here run times are log-uniform, 1 to {_LONGEST['DAS-2']:,} s (DAS-2) "
            f"and 1 to {_LONGEST['SHARCNET']:,} s (SHARCNET) on the slowest machine. So seconds are not to "
            "be compared, shares are: the fewer the jobs and the longer the longest of them, the more the "
            "last one leaves idle at the end."
        ),
        "",
        (
            "*Planned*: the planner as it is, no search. It knows the walltime on the slowest machine, and "
            "repairs the plan when jobs end early. *Chosen*: beside that, about five times alternatives "
            f"are sought by NSGA-II ({tried} plans tried each time) and the best by equal weights on cost "
            "overrun, idle time, lateness and makespan is put in force, as `[choose]` does it. Nothing is "
            "promised. *Late* jobs end after their time limit, *dear* ones cost more than theirs."
        ),
    ]


def _summary(tables: Sequence[tuple[Printed, list[ThesisBatchResult]]]) -> list[str]:
    lines = [
        "## The tables in short",
        "",
        (
            "Util % is Used / Exec of a machine, Mk % its Exec / makespan. Whole is all Used / (machines "
            "times makespan)."
        ),
        "",
        (
            "| table | workload | machines | | mean util % | least | most | least Mk % | whole % | late | "
            "dear | choices |"
        ),
        "|---|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for one, found in tables:
        used = [used for _, _, used in one.rows]
        ends = [end for _, end, _ in one.rows]
        shares = [a / b for a, b in zip(used, ends, strict=True)]
        whole = sum(used) / len(used) / max(ends)
        lines.append(
            f"| {one.table} | {one.workload} | {len(used)} | printed | {_pct(sum(shares) / len(shares))} | "
            f"{_pct(min(shares))} | {_pct(max(shares))} | {_pct(min(ends) / max(ends))} | {_pct(whole)} | | "
            "| |"
        )
        lines += [f"| | | | {r.how} | {_util(r)} | {r.late:,} | {r.dear:,} | {r.choices} |" for r in found]
    return lines


def _util(one: ThesisBatchResult) -> str:
    mean, least, most = one.utilisation
    ends = [r.exec_s for r in one.resources]
    whole = sum(r.used_s for r in one.resources) / len(ends) / one.makespan
    return " | ".join(_pct(share) for share in (mean, least, most, min(ends) / one.makespan, whole))


def _pct(share: float) -> str:
    return f"{100 * share:.2f}"


def _independent(found: Sequence[tuple[int, int, ThesisBatchResult]]) -> list[str]:
    lines = [
        "## Independent jobs (4.4.1)",
        "",
        (
            "Workloads 1 and 2, planned. The thesis has 5,000 to 25,000 jobs on 10 to 25 machines, and 99 % "
            "and more on almost every resource (a figure only)."
        ),
        "",
        "| workload | jobs | machines | mean util % | least | most | least Mk % | whole % |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [f"| {w} | {n:,} | {len(r.resources)} | {_util(r)} |" for w, n, r in found]
    return lines


def _thrift(found: Sequence[tuple[int, list[ThesisBatchResult]]]) -> list[str]:
    names = [MODELS[model].name for model in _SIX]
    lines = [
        "## Energy against performance (4.4.2)",
        "",
        (
            "Twelve machines, two of each model. Energy is busy seconds times watts, 130 W being 1. Under "
            "each model: Used, as a share of all that its machines could be busy for until the makespan, "
            "in %. The thesis says that Pentium 4 is used least, X6800 before QX6700, 3960X before 920, "
            "and i7-2600 most (figures only)."
        ),
        "",
        f"| workload | | energy | makespan | late | {' | '.join(names)} |",
        "|--:|---|--:|--:|--:|" + "--:|" * len(names),
    ]
    for workload, runs in found:
        for one in runs:
            shares = []
            for model in _SIX:
                mine = [r.used_s for r in one.resources if r.model == model]
                shares.append(f"{100 * sum(mine) / len(mine) / one.makespan:.1f}")
            lines.append(
                f"| {workload} | {one.how} | {one.energy:,.0f} | {one.makespan:,.0f} | {one.late:,} | "
                f"{' | '.join(shares)} |"
            )
    return lines


def _types(found: Sequence[tuple[int, float, ThesisBatchResult]]) -> list[str]:
    lines = [
        "## Types of jobs (4.4.3)",
        "",
        (
            "Half of the twelve machines for each type, planned. Used of all machines of a type, as a "
            "share of what they could be busy for until its last end: the thesis says uniform within a "
            "type."
        ),
        "",
        "| workload | first type % | makespan | first: whole % | last end | second: whole % | last end |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for workload, mix, one in found:
        cells = []
        for kind in ("cpu", "io"):
            mine = [r for r in one.resources if r.kind == kind]
            end = max(r.exec_s for r in mine)
            cells += [_pct(sum(r.used_s for r in mine) / len(mine) / end), f"{end:,.0f}"]
        lines.append(f"| {workload} | {100 * mix:.0f} | {one.makespan:,.0f} | {' | '.join(cells)} |")
    return lines


_Fronts = Sequence[tuple[int, tuple[float, ...], list[tuple[float, ...]]]]


def _front(found: _Fronts, jobs: int, tried: int, picture: str) -> list[str]:
    lines = [
        "## The front in three dimensions",
        "",
        (
            f"{jobs:,} jobs of workload 1 and 2 planned on the twelve machines, {tried:,} plans tried by "
            "NSGA-II from there: makespan, energy and lateness of plans that are no worse than the live "
            "one by equal weights and of which none is better than another in all three. Makespans count "
            "walltimes on the slowest machine."
        ),
        "",
        "| workload | plans | | makespan s | energy kWh | lateness |",
        "|--:|--:|---|--:|--:|--:|",
    ]
    for workload, live, plans in found:
        lines.append(f"| {workload} | {len(plans)} | live plan | {_three(live)} |")
        for k, name in enumerate(("makespan", "energy", "lateness")):
            if plans:
                lines.append(f"| | | least {name} | {_three(min(plans, key=itemgetter(k)))} |")
    return [*lines, "", f"![The front: makespan, energy, lateness]({picture})"]


def _three(values: Sequence[float]) -> str:
    return f"{values[0]:,.0f} | {values[1]:,.1f} | {values[2]:.4g}"


def _table(printed: Printed, one: ThesisBatchResult) -> list[str]:
    trace = "DAS-2" if printed.workload % 2 else "SHARCNET"
    top = max(end for _, end, _ in printed.rows)
    lines = [
        f"## Table {printed.table}: workload {printed.workload}, {trace}, {len(printed.rows)} machines",
        "",
        f"Printed on the left, {one.how} on the right.",
        "",
        "| ID | Resource | $ | Exec | Mk % | Used | Util % | Exec | Mk % | Used | Util % |",
        "|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for (model, end, used), ours in zip(printed.rows, one.resources, strict=True):
        lines.append(
            f"| {ours.id} | {MODELS[model].name} | {MODELS[model].price:g} | {end:.2f} | {_pct(end / top)} | "
            f"{used:.2f} | {_pct(used / end)} | {ours.exec_s:.2f} | {_pct(ours.exec_s / one.makespan)} | "
            f"{ours.used_s:.2f} | {_pct(ours.used_s / ours.exec_s) if ours.exec_s else '-'} |"
        )
    return lines


def _picture(found: _Fronts, path: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import)

    figure = Figure(figsize=(6.2 * len(found), 5.2), layout="constrained")
    for at, (workload, live, plans) in enumerate(found, 1):
        axes: Any = figure.add_subplot(1, len(found), at, projection="3d")
        if plans:
            columns = list(zip(*plans, strict=True))
            axes.scatter(*columns, s=28, label=f"{len(plans)} alternatives")
        axes.scatter(*([value] for value in live), s=70, marker="^", label="live plan")
        axes.set_title(f"workload {workload}")
        axes.set_xlabel("makespan, s")
        axes.set_ylabel("energy, kWh")
        axes.set_zlabel("lateness")
        axes.legend(fontsize="small", loc="upper left")
    figure.savefig(path, dpi=110)
