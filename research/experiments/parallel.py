"""Cells run in parallel by dask: on all cores of this host, or on a cluster that runs already."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from research.experiments.cells import Cell, code_version, run_cell
from schedd.replay.workload import TraceError

_ANSWER_S: Final = 10  # a scheduler without an answer for this time counts as absent


class NoDask(RuntimeError):
    """dask is not installed; the message says what to do."""


def run_cells(
    cells: Sequence[Cell],
    logs: str,
    done: Callable[[Cell, dict[str, Any]], None],
    *,
    address: str = "",
    workers: int | None = None,
) -> list[tuple[Cell, Exception]]:
    """Run all ``cells``; call ``done`` with each row as it comes; return failed cells with the reasons.

    ``address`` belongs to a dask scheduler; its workers have this program and the same directory of ``logs``.
    Without one, ``workers`` processes (None: one for each core) are started here, on loopback. Raises NoDask,
    TraceError, OSError.
    """
    try:
        from dask.distributed import as_completed  # noqa: PLC0415  (an extra: a scheduler's host needs none)
    except ImportError:
        raise NoDask(
            "experiments run on dask, which is not installed: pip install 'schedd[experiments]'"
        ) from None
    failed: list[tuple[Cell, Exception]] = []
    with _client(address, workers) as client:
        # One after another in the order of the cells: then a worker reads a log once for many of them.
        futures = {client.submit(run_cell, cell, logs, pure=False): cell for cell in cells}
        for future in as_completed(list(futures)):
            try:
                row = future.result()
            except Exception as error:  # of the replay, or that the scheduler, or a worker, is gone
                failed.append((futures[future], error))
            else:
                done(futures[future], row)
    return failed


@contextmanager
def _client(address: str, workers: int | None) -> Iterator[Any]:
    from dask.distributed import Client, LocalCluster  # noqa: PLC0415

    if address:
        with Client(address, timeout=_ANSWER_S) as client:
            versions = set(client.run(code_version).values())
            if versions != {code_version()}:
                raise TraceError(f"{address}: its workers run another version of schedd, or there are none")
            yield client
        return
    with (
        LocalCluster(
            host="127.0.0.1",
            n_workers=workers or os.cpu_count() or 1,
            threads_per_worker=1,
            memory_limit=None,
            dashboard_address="127.0.0.1:0",  # only for health checks; None would take a fixed port
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.ERROR,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client
