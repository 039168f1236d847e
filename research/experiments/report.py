"""What an experiment found, as a page in Markdown."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean
from typing import Any, Final

from research.experiments.cells import Workload
from research.experiments.named import Experiment, Figure
from research.experiments.results import Found


@dataclass(frozen=True, slots=True)
class Told:
    """A figure of a row: its heading, its field, and its factor."""

    title: str
    field: str
    factor: float = 1.0
    less_is_better: bool = True


FIGURES: Final[Mapping[Figure, Told]] = {
    "wait": Told("mean wait s", "avg_wait_s"),
    "slowdown": Told("bounded slowdown (10 s)", "avg_bounded_slowdown_10s"),
    "p999": Told("p99.9 wait s", "p999_wait_s"),
    "longest": Told("longest wait s", "max_wait_s"),
    "held": Told("held %", "held_share", 100, less_is_better=False),
    "late": Told("late jobs", "late_jobs"),
    "tardiness": Told("tardiness s", "tardiness_s"),
    "utilisation": Told("util. %", "utilisation", 100, less_is_better=False),
    "weighted": Told("weighted util. %", "weighted_utilisation", 100, less_is_better=False),
    "fairness": Told("fairness", "fairness_nuwt_stddev"),
    "killed": Told("killed jobs", "killed_jobs"),
}
_TOLD_LATE: Final = Told("late s", "start_delay_s")


@dataclass(frozen=True, slots=True)
class ReportLine:
    """One workload under one policy and slack: the rows of its seeds."""

    workload: Workload
    name: str
    slack: str
    rows: tuple[dict[str, Any], ...]

    @property
    def label(self) -> str:
        """The policy, with its slack where it has one."""
        return f"{self.name}, slack {self.slack}" if self.slack else self.name

    def values(self, told: Told) -> list[float]:
        """Of all seeds; none where the policy has no such figure."""
        return [told.factor * row[told.field] for row in self.rows if row.get(told.field) is not None]

    def mean(self, told: Told) -> float | None:
        values = self.values(told)
        return fmean(values) if values else None


def lines_of(found: Iterable[Found]) -> list[ReportLine]:
    """Groups of rows that differ only in their seed."""
    groups: dict[tuple[Workload, str, str], list[dict[str, Any]]] = {}
    for each in found:
        cell = each.cell
        slack = str(each.row["slack"]) if cell.search is not None or cell.slack != "0" else ""
        key = (one_seed(cell.workload), cell.name, slack if each.row["slack"] else "")
        groups.setdefault(key, []).append(each.row)
    return [ReportLine(*key, tuple(rows)) for key, rows in groups.items()]


def one_seed(workload: Workload) -> Workload:
    """The workload that stands for all of its seeds."""
    return Workload(**{**{f: getattr(workload, f) for f in workload.__slots__}, "stream_seed": 1})


def label_of(workload: Workload) -> str:
    """What tables call a workload."""
    if workload.every_s:
        return f"a job every {workload.every_s} s" + (", three speeds" if workload.paced else "")
    parts = [workload.title]
    if workload.skip:
        parts.append(f"from job {workload.skip + 1:,} on")
    if workload.machines:
        parts.append("requirements" if workload.requirements else "no requirements")
        parts.append("failures" if workload.failures else "no failures")
    elif workload.estimates != "exact":
        parts.append(workload.estimates)
    return ", ".join(parts)


def page(
    experiment: Experiment, found: Sequence[Found], command: str, picture: str, notes: Iterable[str] = ()
) -> str:
    """The page of an experiment. It names missing runs; ``notes`` on versions follow."""
    lines = lines_of(found)
    parts = [
        f"# Experiment: {experiment.name}",
        experiment.about,
        f"```\n{command}\n```",
        " ".join((*_what_was_run(experiment, found), *notes)),
        *([f"![{experiment.name}]({picture})"] if picture else []),
        "\n".join(_table(experiment, lines)),
        *(
            ["\n".join(_promises(experiment, lines))]
            if "held" in experiment.figures or _broken(lines)
            else []
        ),
        *(["## Ratios to EASY", "\n".join(_ratios(experiment, lines))] if experiment.ratios else []),
        *(
            ["## The search against each other policy", "\n".join(_against(lines))]
            if experiment.against
            else []
        ),
    ]
    return "\n\n".join(parts) + "\n"


def command_line(words: Sequence[str]) -> str:
    """Return the command line of an experiment, quoted for a shell."""
    return " ".join(["python", "-m", "research", "experiment", *map(shlex.quote, words)])


def _what_was_run(experiment: Experiment, found: Sequence[Found]) -> Iterator[str]:
    """Return the number of replays, the program's version, the part of the logs, and the missing runs."""
    codes: dict[str, int] = {}
    for each in found:
        codes[each.code] = codes.get(each.code, 0) + 1
    told = ", ".join(f"{code} ({number})" for code, number in codes.items())
    yield f"{len(found)} replays by programs with the sources {told}."
    left = len(experiment.cells) - len(found)
    if left:
        yield f"**{left} more were not run yet.**"
    busiest = [each.row["jobs"] for each in found if each.cell.workload.part == "busiest"]
    if busiest:
        yield (
            f"Of each log the {max(busiest):,} jobs in a row that need most of the machine (all, where there "
            "are fewer), none of them in the first third, on which the search was tuned."
        )


def _promises(experiment: Experiment, lines: Sequence[ReportLine]) -> Iterator[str]:
    """What the columns about them mean, and whether promises were kept."""
    if "held" in experiment.figures:
        yield (
            "*Held*: jobs that started by their first published start; *late*: mean delay of the others "
            "after it. The promise is that start plus the slack."
        )
    broken = _broken(lines)
    if not broken:
        yield "No promise was broken."
    for line, number in broken:
        yield f"Promises broken by nodes that failed, {label_of(line.workload)}: {line.label}, {number}."


def _broken(lines: Sequence[ReportLine]) -> list[tuple[ReportLine, int]]:
    """Number of broken promises by policy, all seeds together."""
    found = [(line, sum(row["promise_breaches"] for row in line.rows)) for line in lines]
    return [(line, number) for line, number in found if number]


def _table(experiment: Experiment, lines: Sequence[ReportLine]) -> Iterator[str]:
    told = [each for name in experiment.figures for each in _with_late(name)]
    bounds = any(_bound(line) is not None for line in lines)
    seeds = any(len(line.rows) > 1 for line in lines)
    if seeds:
        yield "Means over the seeds; in brackets the least and the largest.\n"
    if bounds:
        yield "Below the *lower bound* no schedule can come, and in general none comes near it.\n"
    head = ["log", "policy", *(["seeds"] if seeds else []), *(each.title for each in told)]
    yield _row(head)
    yield "|---|---|" + "--:|" * (len(head) - 2)
    before = None
    for line in lines:
        if line.workload != before:
            before = line.workload
            name = f"{label_of(before)} ({line.rows[0]['jobs']:,} jobs)"
            bound = _bound(line)
            if bound is not None:
                empty = [""] * (len(head) - 2)
                empty[int(seeds) + [each.field for each in told].index("avg_wait_s")] = f"≥ {_number(bound)}"
                yield _row([name, "*lower bound*", *empty])
                name = ""
        else:
            name = ""
        cells = [name, line.label, *([str(len(line.rows))] if seeds else [])]
        yield _row([*cells, *(_spread(line.values(each)) for each in told)])


def _with_late(name: Figure) -> Iterator[Told]:
    yield FIGURES[name]
    if name == "held":
        yield _TOLD_LATE


def _bound(line: ReportLine) -> float | None:
    bounds = [row["bound_wait_s"] for row in line.rows if row["bound_wait_s"] is not None]
    return fmean(bounds) if bounds else None


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    if min(values) == max(values):
        return _number(values[0])
    return f"{_number(fmean(values))} ({_number(min(values))}-{_number(max(values))})"


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if not value % 1:
        return f"{value:.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


# ---- comparison of policies -----------------------------------------------------------------------

_COMPARED: Final[tuple[Figure, ...]] = ("wait", "slowdown", "p999", "longest")


@dataclass(frozen=True, slots=True)
class Ratios:
    """What the search makes of one workload, over what EASY makes of it, by figure; below 1 is better."""

    workload: Workload
    values: Mapping[Figure, float]


def ratios_of(lines: Sequence[ReportLine], policy: str = "") -> list[Ratios]:
    """Ratios of the workloads that were run under ``policy`` (default: the search) and EASY, except for
    workloads with 0 under EASY.
    """
    own = {
        line.workload: line
        for line in lines
        if (line.name == policy if policy else any(row["searches"] for row in line.rows))
    }
    found = []
    for easy in lines:
        one = own.get(easy.workload)
        if easy.name != "easy" or one is None:
            continue
        pairs = {name: (one.mean(FIGURES[name]), easy.mean(FIGURES[name])) for name in _COMPARED}
        values = {
            name: ours / theirs for name, (ours, theirs) in pairs.items() if ours is not None and theirs
        }
        if len(values) == len(_COMPARED):
            found.append(Ratios(easy.workload, values))
    return found


def _ratios(experiment: Experiment, lines: Sequence[ReportLine]) -> Iterator[str]:
    """The ratios of each workload, and all of them together: of the search, then of each other policy."""
    yield from _ratios_of(experiment, lines, "")
    for policy in dict.fromkeys(cell.name for cell in experiment.cells if not cell.search):
        if policy != "easy" and any(line.name == policy for line in lines):
            yield f"\n### {policy}\n"
            yield from _ratios_of(experiment, lines, policy)


def _ratios_of(experiment: Experiment, lines: Sequence[ReportLine], policy: str) -> Iterator[str]:
    found = ratios_of(lines, policy)
    windows = len({cell.workload for cell in experiment.cells})
    if not found:
        yield "None was run under both yet."
        return
    yield f"Below 1 {policy or 'the search'} is better.\n"
    yield _row(["", *(FIGURES[name].title.removesuffix(" s") for name in _COMPARED), "no worse in all four"])
    yield "|---|" + "--:|" * (len(_COMPARED) + 1)
    better = [all(value <= 1 for value in one.values.values()) for one in found]
    for one, throughout in zip(found, better, strict=True):
        values = [f"{one.values[name]:.2f}" for name in _COMPARED]
        yield _row([label_of(one.workload), *values, "yes" if throughout else ""])
    mean = [f"{geometric_mean(one.values[name] for one in found):.3f}" for name in _COMPARED]
    worst = [f"{max(one.values[name] for one in found):.2f}" for name in _COMPARED]
    yield _row(["**geometric mean**", *mean, f"{sum(better)} of {len(found)}"])
    yield _row(["**worst**", *worst, ""])
    if len(found) < windows:
        yield f"\n{windows - len(found)} of {windows} windows are left out, since they were not run yet."


def _against(lines: Sequence[ReportLine]) -> Iterator[str]:
    """For each rival: on how many workloads the search is better throughout, and where it is not."""
    yield (
        "One *dominates* the other where none of mean wait, bounded slowdown, p99.9 and longest wait is "
        "worse, and one is better; figures are means over the seeds.\n"
    )
    yield "| policy | the search dominates | is dominated | on |"
    yield "|---|--:|--:|--:|"
    searched = {line.workload: line for line in lines if any(row["searches"] for row in line.rows)}
    losses: list[str] = []
    for name in dict.fromkeys(line.name for line in lines):
        rivals = [line for line in lines if line.name == name and line.workload in searched]
        rivals = [line for line in rivals if line is not searched[line.workload]]
        if not rivals:
            continue
        worse = [(line, _lost(searched[line.workload], line)) for line in rivals]
        won = sum(not lost for _, lost in worse)
        beaten = sum(not _lost(line, searched[line.workload]) and bool(lost) for line, lost in worse)
        yield f"| {name} | {won} | {beaten} | {len(rivals)} |"
        losses += [_loss(searched[line.workload], line, figure) for line, lost in worse for figure in lost]
    yield from _longest(lines, searched)
    yield "\n## Where the search loses\n"
    if not losses:
        yield "Nowhere."
        return
    yield "| log | policy | figure | search | policy's |"
    yield "|---|---|---|--:|--:|"
    yield from losses


def _longest(lines: Sequence[ReportLine], searched: Mapping[Workload, ReportLine]) -> Iterator[str]:
    """The longest waits next to EASY's: no job starves for the sake of means."""
    told = FIGURES["longest"]
    pairs = [
        (line.mean(told) or 0, searched[line.workload].mean(told) or 0)
        for line in lines
        if line.name == "easy" and line.workload in searched
    ]
    if pairs:
        near = sum(ours <= 1.1 * easy for easy, ours in pairs)
        share = f"{near} of {len(pairs)}"
        yield f"\nThe search's longest wait is at most a tenth above that of `easy` on {share}."


def _lost(one: ReportLine, other: ReportLine) -> list[Figure]:
    """The figures where ``one`` is worse than ``other``."""
    return [name for name in _COMPARED if (one.mean(FIGURES[name]) or 0) > (other.mean(FIGURES[name]) or 0)]


def _loss(search: ReportLine, rival: ReportLine, figure: Figure) -> str:
    told = FIGURES[figure]
    values = [line.mean(told) or 0 for line in (search, rival)]
    ours, theirs = (_number(value) for value in values)
    if ours == theirs:  # the loss is in a digit that tables do not have
        ours, theirs = (f"{value:.5g}" for value in values)
    return _row([label_of(rival.workload), rival.name, told.title, ours, theirs])
