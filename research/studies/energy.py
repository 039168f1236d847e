"""Experiment `energy`: energy saved by switching idle nodes off, by the plan and by an idle time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from research.experiments.energy import BOOT, OFF, RULES, STOP, WATTS, Saved, saved
from research.studies.results import Results, chosen
from schedd.cli import plot_support
from schedd.replay.prepared import prepare
from schedd.replay.site import equal_node_site
from schedd.replay.trace_reader import read_traces
from schedd.replay.workload import TraceError, select

NAME: Final = "energy"
ABOUT: Final = (
    "What is saved by switching idle nodes off: by the plan, where jobs may be delayed by nothing, 5 and "
    "30 minutes for it, and by time idle alone, as other schedulers do it. Three logs, from the end of "
    "their first third on, with users' estimates and the default slack."
)
_LOGS: Final = {
    "KTH-SP2-1996-2.swf.gz": (100, 1),
    "SDSC-SP2-1998-4.2-cln.swf.gz": (128, 1),
    "HPC2N-2002-2.1-cln.swf.gz": (120, 2),
}
"""With nodes, and cpus of each."""
_JOBS: Final = 500
_QUICK: Final = 100


def run_energy(logs: Path, out: Path, *, quick: bool, only: Sequence[str]) -> None:
    """Write page, figures and picture. Raises TraceError and OSError for logs that cannot be read, Defect."""
    names = chosen(_LOGS, only, logs)
    if (missing := plot_support.missing_plot_library()) is not None:
        raise TraceError(missing)
    results = Results.of(NAME, ABOUT, out, *(f"--only {log}" for log in only), "--logs LOGS", quick=quick)
    found: list[Saved] = []
    with Console(stderr=True).status("reading") as status:
        for name in names:
            (trace,) = read_traces([logs / name])
            ran = sum(job.run > 0 and job.procs > 0 for job in trace.jobs)
            nodes, cpus = _LOGS[name]
            part = select(
                trace,
                estimates="user",
                skip=ran // 3,
                jobs=_QUICK if quick else _JOBS,
                procs=nodes * cpus,
                kill=True,
            )
            prepared = prepare(part, equal_node_site(nodes, cpus), trace.unix_start_time)
            for one in saved(prepared):
                found.append(one)
                status.update(f"{one.log}: {one.rule}")
    _picture(found, results.picture)
    page = _page(found, results.picture.name)
    results.write({"results": [one.as_row() for one in found]}, page, f"{len(found)} results")


def _page(found: Sequence[Saved], picture: str) -> str:
    words = (
        f"Every node draws {WATTS:g} W idle, twice that with all cores busy, {OFF:g} W off. It is up {BOOT} "
        f"s after the order, and down after {STOP} s; meanwhile it draws as if idle. *Planned*: the "
        "daemon's own power saving: nodes idle for the given time go off unless the plan needs them soon, "
        "and are switched on before; *delay*: a job may wait this much longer for nodes that are on. *EASY*: "
        "a node idle for the given time goes off, and a job with nodes that are off waits until they are up. "
        "*Saved* is against the same policy with all nodes on: of all energy, and of idle nodes' energy. "
        "*Longer* is the added mean wait. *Offs* counts orders to switch a node off, for each "
        "node and day. No promise was broken unless the table says so."
    )
    columns = (
        *("log", "rule", "kWh", "saved %", "of idle %", "offs", "mean wait s", "longer s"),
        *("99 % wait s", "longest s", "broken"),
    )
    lines = [words, ""]
    lines += [f"| {' | '.join(columns)} |", "|---|---|" + "--:|" * (len(columns) - 2)]
    for at, one in enumerate(found):
        base = _base(found, one)
        on = one is base
        log = one.log if not at or found[at - 1].log != one.log else ""
        cells = (
            log,
            one.rule,
            f"{one.kwh:,.0f}",
            "" if on else f"{100 * (base.kwh - one.kwh) / base.kwh:.1f}",
            "" if on else f"{100 * (base.idle_kwh - one.idle_kwh) / base.idle_kwh:.1f}",
            f"{one.offs / one.nodes / one.days:.2f}",
            f"{one.wait_s:,.0f}",
            "" if on else f"{one.wait_s - base.wait_s:,.0f}",
            f"{one.wait_p99_s:,.0f}",
            f"{one.wait_max_s:,.0f}",
            f"{one.breaches}" if one.rule.startswith("planned") else "-",
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *(_about(found, log) for log in dict.fromkeys(one.log for one in found)), ""]
    return "\n".join((*lines, f"![Energy saved against waits]({picture})", ""))


def _about(found: Sequence[Saved], log: str) -> str:
    one = next(one for one in found if one.log == log)
    idle = 100 * one.idle_kwh / one.kwh
    size = f"{one.jobs:,} jobs on {one.nodes} nodes in {one.days:.0f} days"
    return f"- {log}: {size}; with all nodes on, idle ones draw {idle:.0f} %."


def _base(found: Sequence[Saved], one: Saved) -> Saved:
    """The same log and policy with all nodes on."""
    policy = {rule.name: rule.policy for rule in RULES}
    always = {rule.policy: rule.name for rule in RULES if rule.idle is None}
    name = always[policy[one.rule]]
    return next(other for other in found if (other.log, other.rule) == (one.log, name))


def _picture(found: Sequence[Saved], path: Path) -> None:
    """Saved share of the energy of idle nodes, against the increase of the jobs' waits."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import)

    logs = list(dict.fromkeys(one.log for one in found))
    figure = Figure(figsize=(4.6 * len(logs), 4.2), layout="constrained")
    for axes, log in zip(figure.subplots(1, len(logs), squeeze=False)[0], logs, strict=True):
        for one in found:
            base = _base(found, one)
            if one.log != log or one is base:
                continue
            saves = 100 * (base.idle_kwh - one.idle_kwh) / base.idle_kwh
            marker = "o" if one.rule.startswith("planned") else "s"
            axes.scatter(one.wait_s - base.wait_s, saves, marker=marker, s=60, label=one.rule)
        axes.set_title(log, fontsize="medium")
        axes.set_xlabel("mean wait, longer by s")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("saved of what idle nodes draw, %")
    figure.axes[-1].legend(fontsize="small")
    figure.savefig(path, dpi=110)
