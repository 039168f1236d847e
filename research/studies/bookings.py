"""Experiment `bookings`: flexible bookings by order of replanning, after Netto's thesis (2009), 3.6."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from time import process_time
from typing import Any, Final

from research.experiments.bookings import DAYS, PROCS, asked_of, book_all
from research.studies.pool import at_once, how_often
from research.studies.results import Results, present
from schedd.cli import plot_support
from schedd.policy.bookings import Order
from schedd.replay.trace_reader import read_traces
from schedd.replay.workload import TraceError, TraceJob

NAME: Final = "bookings"
ABOUT: Final = (
    "How much of a machine is used if every job books its cores, by the order in which bookings are "
    "replanned, how far they may be moved and for how long, and by counter-offers: the set-up of Netto, "
    "Adaptive co-allocation of distributed resources (2009), 3.6 (SDSC SP2)."
)
_LOG: Final = "SDSC-SP2-1998-4.2-cln.swf.gz"
_MORE: Final = (0, 25, 50)
_FLEX: Final = {25: "short, 25 %", 50: "medium, 50 %", 100: "long, 100 %"}
_FREEZE: Final = (0, 25, 50, 75, 100)
_ACCEPT: Final = (0.25, 0.5, 1.0)
_ORDERS: Final = tuple(one.value for one in Order)
_PRINTED: Final = {0: "46.8 ± 3.3", 25: "50.9 ± 3.5", 50: "54.7 ± 3.7"}
_WINDOWS: Final = 8  # windows that lie evenly over the log; repetitions are the first of them
_QUICK: Final = 120  # number of requests of each window in a trial
Row = Mapping[str, Any]


def run_bookings(
    logs: Path,
    out: Path,
    *,
    quick: bool,
    only: Sequence[str],
    workers: int | None = None,
    repetitions: int | None = None,
) -> None:
    """Write page, figures and picture. Raises TraceError and OSError."""
    del only
    if (missing := plot_support.missing_plot_library()) is not None:
        raise TraceError(missing)
    present((_LOG,), logs)
    times = how_often(repetitions, 3, quick=quick)
    if times > _WINDOWS:
        raise TraceError(f"--repetitions {times}: at most {_WINDOWS}")
    todo = [(str(logs), window, quick, *run) for window in range(times) for run in _runs()]
    options = [f"--repetitions {repetitions}"] if repetitions else []
    results = Results.of(NAME, ABOUT, out, *options, "--logs LOGS", quick=quick)
    rows = sorted(at_once(_one, todo, workers), key=_key)
    _picture(rows, results.picture)
    figures = {"days": DAYS, "repetitions": times, "results": rows}
    results.write(figures, _page(rows, times, results.picture.name), f"{len(rows)} runs")


def _runs() -> list[tuple[int, bool, int, str, int, float | None]]:
    """(denser by %, estimates exact, interval longer by %, order, freeze %, counter-offers taken up to)."""
    found: list[tuple[int, bool, int, str, int, float | None]] = []
    for more in _MORE:
        for exact in (True, False):
            found.append((more, exact, 0, "fifo", 100, None))
            found += [(more, exact, flex, order, 100, None) for flex in _FLEX for order in _ORDERS]
            found += [(more, exact, 100, "edf", freeze, None) for freeze in _FREEZE[:-1]]
        found += [(more, True, 0, "fifo", 100, accept) for accept in _ACCEPT]
    return found


def _key(row: Row) -> tuple[Any, ...]:
    return (
        *(row["more"], not row["exact"], row["flex"], row["accept"] or 0, row["freeze"], row["order"]),
        row["window"],
    )


def _one(
    logs: str,
    window: int,
    quick: bool,
    more: int,
    exact: bool,
    flex: int,
    order: str,
    freeze: int,
    accept: float | None,
) -> dict[str, Any]:
    wishes = asked_of(_jobs_of(Path(logs) / _LOG), window, _WINDOWS, more, flex, window + 1, exact=exact)
    began = process_time()
    found = book_all(wishes[:_QUICK] if quick else wishes, order, freeze, accept)
    how = {"window": window, "more": more, "exact": exact, "flex": flex, "order": order, "freeze": freeze}
    return how | {"accept": accept, **asdict(found), "cpu_s": process_time() - began}


@cache
def _jobs_of(path: Path) -> Sequence[TraceJob]:
    (trace,) = read_traces([path])
    return trace.jobs


# ---- the page --------------------------------------------------------------------------------------------


def _page(rows: Sequence[Row], times: int, picture: str) -> str:
    asked = [mean(row["asked"] for row in _of(rows, more=more, exact=True, flex=0)) for more in _MORE]
    about = (
        f"{times} windows of {DAYS} days, the first of {_WINDOWS} that lie evenly over the log, on {PROCS} "
        "processors; in the mean "
        f"{', '.join(f'{one:,.0f}' for one in asked)} jobs of a minute or more, as submitted and 25 and 50 % "
        "denser. Each books its processors for its run time *Te*; its deadline lies *p* times that behind "
        "the submission (*p*: Poisson, mean 5, at least 1), and its interval is *Te* long: it has one "
        "place. Half of them are given intervals that are longer by 25, 50 or 100 % in the mean (Poisson). "
        "*Estimates too long*: a job ends after 80 % of its booking in the mean (Poisson, at most 100 %) and "
        "gives it back. A booking takes a gap; where there is none, those behind it in the order are planned "
        "again after it (algorithm 1); where that does not help, it is refused. *Used* is the share of all "
        f"processors' time on which jobs ran within the {DAYS} days. ± is the standard deviation between "
        "windows, of gains that of the differences within each. All is the production code: the engine's "
        f"bookings, one after the other. Promises broken in all {len(rows):,} runs: "
        f"{sum(row['breaches'] for row in rows)} (bookings that began outside of their window, or elsewhere "
        "than where they were frozen)."
    )
    differs = (
        "What differs from the thesis: its log is version 3.1, of which all two years are cut into pieces; "
        "others are planned again where a new booking finds no gap alone, and not at each that comes; its "
        "order *shuffle* is not offered; it does not say whether a longer interval grows at its end: here it "
        "does; a job whose deadline would lie at its submission (*p* = 0) is given *p* = 1."
    )
    lines = [about, "", differs, ""]
    lines += [f"![What longer intervals add to the use of the machine]({picture})", ""]
    return "\n".join((*lines, *_fixed(rows), *_by_order(rows), *_frozen(rows), *_offers(rows), *_said(rows)))


def _of(rows: Sequence[Row], **how: Any) -> list[Row]:
    """Of each window the run that is so; else FIFO, kept flexible, no counter-offers."""
    want = {"order": "fifo", "freeze": 100, "accept": None, **how}
    return [row for row in rows if all(row[name] == value for name, value in want.items())]


def _used(rows: Sequence[Row], **how: Any) -> list[float]:
    return [100 * row["used"] for row in _of(rows, **how)]


def _gain(rows: Sequence[Row], more: int, *, exact: bool, **how: Any) -> list[float]:
    """By how many points more is used than with fixed intervals, in each window."""
    fixed = _used(rows, more=more, exact=exact, flex=0)
    found = _used(rows, more=more, exact=exact, **how)
    return [one - other for one, other in zip(found, fixed, strict=True)]


def _told(values: Sequence[float], digits: int = 1, sign: str = "") -> str:
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):{sign}.{digits}f}{spread}"


def _denser(more: int) -> str:
    return f"{more} % denser" if more else "as submitted"


def _fixed(rows: Sequence[Row]) -> list[str]:
    lines = [
        "## Fixed intervals",
        "",
        "| submissions | printed, used % | used, % | taken, % | used with estimates too long, % |",
        "|---|--:|--:|--:|--:|",
    ]
    for more in _MORE:
        taken = [100 * row["taken"] / row["asked"] for row in _of(rows, more=more, exact=True, flex=0)]
        early = _used(rows, more=more, exact=False, flex=0)
        cells = (
            _PRINTED[more],
            _told(_used(rows, more=more, exact=True, flex=0)),
            _told(taken),
            _told(early),
        )
        lines.append(f"| {_denser(more)} | {' | '.join(cells)} |")
    return [*lines, ""]


def _by_order(rows: Sequence[Row]) -> list[str]:
    lines = [
        "## By order of replanning",
        "",
        "Points of use gained over fixed intervals; in brackets moves for each hundred bookings taken.",
        "",
        f"| submissions | estimates | interval | {' | '.join(one.upper() for one in _ORDERS)} |",
        f"|---|---|---|{'--:|' * len(_ORDERS)}",
    ]
    for more in _MORE:
        for exact in (True, False):
            for flex, name in _FLEX.items():
                cells = [_ordered(rows, more, order, flex, exact=exact) for order in _ORDERS]
                known = "exact" if exact else "too long"
                lines.append(f"| {_denser(more)} | {known} | {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _ordered(rows: Sequence[Row], more: int, order: str, flex: int, *, exact: bool) -> str:
    some = _of(rows, more=more, exact=exact, flex=flex, order=order)
    moves = 100 * sum(row["moves"] for row in some) / sum(row["taken"] for row in some)
    return f"{_told(_gain(rows, more, exact=exact, flex=flex, order=order), sign='+')} ({moves:.0f})"


def _frozen(rows: Sequence[Row]) -> list[str]:
    head = " | ".join("until it begins" if one == 100 else f"{one} % of its wait" for one in _FREEZE)
    lines = [
        "## How long they may be moved",
        "",
        "Points of use gained over fixed intervals, long intervals, EDF, by how long a booking may be moved.",
        "",
        f"| submissions | estimates | {head} |",
        f"|---|---|{'--:|' * len(_FREEZE)}",
    ]
    for more in _MORE:
        for exact in (True, False):
            cells = [
                _told(_gain(rows, more, exact=exact, flex=100, order="edf", freeze=freeze), 2, "+")
                for freeze in _FREEZE
            ]
            lines.append(f"| {_denser(more)} | {'exact' if exact else 'too long'} | {' | '.join(cells)} |")
    return [*lines, ""]


def _offers(rows: Sequence[Row]) -> list[str]:
    words = (
        "Fixed intervals, exact estimates; a refused job takes the nearest counter-offer, if it is off by at "
        "most this share of the booking's length."
    )
    head = (
        "| submissions | off by at most | used, points gained | took one, of 100 that asked | off by, mean |"
    )
    lines = ["## Counter-offers", "", words, "", head, "|---|--:|--:|--:|--:|"]
    for more in _MORE:
        for accept in _ACCEPT:
            some = _of(rows, more=more, exact=True, flex=0, accept=accept)
            took = [100 * row["offered"] / row["asked"] for row in some]
            off = [100 * row["stretch"] for row in some if row["stretch"] is not None]
            gain = _told(_gain(rows, more, exact=True, flex=0, accept=accept), sign="+")
            cells = (f"{100 * accept:.0f} %", gain, _told(took), f"{_told(off)} %" if off else "-")
            lines.append(f"| {_denser(more)} | {' | '.join(cells)} |")
    return [*lines, ""]


def _said(rows: Sequence[Row]) -> list[str]:
    """The thesis's statements about its pictures, and the results here."""
    table = (
        (
            "EDF with flexible intervals uses most, at every load",
            _each(lambda more, exact: _best(rows, more, exact=exact)),
        ),
        (
            "Longer intervals, more use",
            _each(lambda more, exact: _row(rows, more, exact=exact, order="edf")),
        ),
        (
            "The later a booking is fixed, the more use",
            "see the table above: kept until it begins against fixed as it is taken, "
            + _each(lambda more, exact: _later(rows, more, exact=exact)),
        ),
        (
            "The effect is larger where estimates are too long",
            "long intervals, EDF, exact against too long: "
            + "; ".join(
                f"{_denser(more)} {_long(rows, more, exact=True)} and {_long(rows, more, exact=False)}"
                for more in _MORE
            ),
        ),
        (
            "Counter-offers add use, but less than flexible intervals",
            "off by at most 100 %, against long intervals with EDF: "
            + "; ".join(
                f"{_denser(more)} {_told(_gain(rows, more, exact=True, flex=0, accept=1.0), sign='+')} and "
                f"{_long(rows, more, exact=True)}"
                for more in _MORE
            ),
        ),
    )
    lines = [
        "## Beside what the thesis says",
        "",
        "But for the use with fixed intervals its figures are bars.",
    ]
    lines += ["", "| the thesis | here, points over fixed intervals |", "|---|---|"]
    return [*lines, *(f"| {said} | {found} |" for said, found in table), ""]


def _each(words: Callable[[int, bool], str]) -> str:
    cases = [(more, exact) for exact in (True, False) for more in _MORE]
    return "; ".join(
        f"{_denser(more)}, {'exact' if exact else 'too long'}: {words(more, exact)}" for more, exact in cases
    )


def _best(rows: Sequence[Row], more: int, *, exact: bool) -> str:
    gains = {order: mean(_gain(rows, more, exact=exact, flex=100, order=order)) for order in _ORDERS}
    order = max(gains, key=lambda one: gains[one])
    return f"{order.upper()} {gains[order]:+.1f}"


def _row(rows: Sequence[Row], more: int, *, exact: bool, order: str) -> str:
    return ", ".join(f"{mean(_gain(rows, more, exact=exact, flex=flex, order=order)):+.1f}" for flex in _FLEX)


def _later(rows: Sequence[Row], more: int, *, exact: bool) -> str:
    kept, fixed = (
        mean(_gain(rows, more, exact=exact, flex=100, order="edf", freeze=freeze)) for freeze in (100, 0)
    )
    return f"{kept:+.2f} and {fixed:+.2f}"


def _long(rows: Sequence[Row], more: int, *, exact: bool) -> str:
    return _told(_gain(rows, more, exact=exact, flex=100, order="edf"), sign="+")


def _picture(rows: Sequence[Row], path: Path) -> None:
    """Points gained by the length of intervals, a line for each order."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import)

    figure = Figure(figsize=(4.2 * len(_MORE), 6.4), layout="constrained")
    for axes_of, exact in zip(
        figure.subplots(2, len(_MORE), sharey=True, squeeze=False), (True, False), strict=True
    ):
        for axes, more in zip(axes_of, _MORE, strict=True):
            for shift, order in enumerate(_ORDERS):
                gains = [_gain(rows, more, exact=exact, flex=flex, order=order) for flex in _FLEX]
                spread = [stdev(one) if len(one) > 1 else 0.0 for one in gains]
                places = [flex + 1.5 * (shift - 1.5) for flex in _FLEX]
                axes.errorbar(
                    places, [mean(one) for one in gains], spread, marker="o", capsize=2, label=order.upper()
                )
            axes.set_title(
                f"{_denser(more)}, estimates {'exact' if exact else 'too long'}", fontsize="medium"
            )
            axes.set_xlabel("intervals of half the bookings longer by, %")
            axes.set_xticks(list(_FLEX))
            axes.grid(alpha=0.3)
        axes_of[0].set_ylabel("used more, points")
    figure.axes[0].legend(fontsize="small")
    figure.savefig(path, dpi=110)
