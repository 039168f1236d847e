"""Accounting log of the demo's cluster: runs of its workload model that ended before the demo begins."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from schedd.cli.demo.steady import MAX_RUN_S, SteadyWorkload
from server_adapter.emulator import JobOrder


def write_past_runs(workload: SteadyWorkload, path: Path, begin: int) -> None:
    """Write E records of the workload's past jobs, which ended before ``begin``, to ``path``.

    The daemon learns run times from them (``predict_from``), as from a site's log.
    """
    path.write_text("".join(_records(workload, begin)), encoding="utf-8")


def _records(workload: SteadyWorkload, begin: int) -> Iterator[str]:
    orders = workload.past_orders()
    # The last job starts early enough to have ended: a log cut off at a time has too few of the long runs.
    first = begin - MAX_RUN_S - int(workload.gap * len(orders)) - 1
    for i, order in enumerate(orders):
        yield _record(i + 1, order, first + int(workload.gap * i))


def _record(number: int, order: JobOrder, start: int) -> str:
    assert order.outcome is not None
    end = start + max(1, round(order.outcome.runtime))
    resources = " ".join(f"Resource_List.{name}={value}" for name, value in order.resources.items())
    return (
        f"{datetime.fromtimestamp(end, UTC):%m/%d/%Y %H:%M:%S};E;{number}.past;user={order.user} "
        f"group={order.group} jobname={order.name} queue=batch ctime={start} qtime={start} etime={start} "
        f"start={start} end={end} Exit_status={order.outcome.exit_status} {resources}\n"
    )
