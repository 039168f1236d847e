"""Measure the size of a SQLite database by jobs: python docs/scripts/database_size.py [JOBS [ESTIMATES]].

Each job is queued, gets ESTIMATES published starts, is decided, accepted, started and ended; a batch has 20
jobs. Checkpoints of the plan and events of nodes are not included.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from schedd.store import Promise, Store
from schedd.wire import (
    Decision,
    Event,
    JobEnded,
    JobFacts,
    JobQueued,
    JobStarted,
    Run,
    RunAccepted,
    ShareFacts,
    WriteAttributes,
)

JOBS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
TELLINGS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
TOGETHER = 20
NOW = 1_700_000_000
ASKED = {"nodes": "2:ppn=8", "walltime": "12:00:00", "mem": "64gb"}
SHARES = (ShareFacts("node17", 8, 32 << 20), ShareFacts("node18", 8, 32 << 20))


def batches(ids: list[str], first: int) -> Iterator[tuple[list[Event], list[Decision]]]:
    """Yield the events and decisions of these jobs, batch by batch."""
    time, number = NOW + first, first * 10

    def tells(turn: int) -> list[Decision]:
        return [
            WriteAttributes(
                id=f"d{number + i + turn * TOGETHER:012d}", cause="e1:1", time=time, job_id=job,
                planned_start=time + 3600 - turn, planned_end=time + 7200, planned_nodes=("node17", "node18"),
                text="",
            )
            for i, job in enumerate(ids)
        ]  # fmt: skip

    facts = [
        JobFacts(
            id=job, owner="ann@login1.example.org", queue="batch", submitted=time, resources=ASKED,
            name="relax.sh", group="chem", version="a1b2c3d4",
        )
        for job in ids
    ]  # fmt: skip
    yield (
        [JobQueued(id=f"e1:{job}:q", time=time, job=one) for job, one in zip(ids, facts, strict=True)],
        tells(0),
    )
    for turn in range(1, TELLINGS):
        # Their starts move by what happens to others: nothing of these jobs.
        yield [JobEnded(id=f"e1:{first}:{turn}", time=time, job_id="gone.server", exit_status=0)], tells(turn)
    runs: list[Decision] = [
        Run(
            id=f"d{number + i + TELLINGS * TOGETHER:012d}", cause="e1:2", time=time + 9, job_id=job,
            shares=SHARES, version="a1b2c3d4", expires=time + 69,
        )
        for i, job in enumerate(ids)
    ]  # fmt: skip
    yield [JobEnded(id=f"e1:{first}:r", time=time + 9, job_id="gone.server", exit_status=0)], runs
    yield (
        [
            RunAccepted(id=f"e1:{run.job_id}:a", time=time + 9, decision_id=run.id, job_id=run.job_id)
            for run in runs
            if isinstance(run, Run)
        ],
        [],
    )
    yield [JobStarted(id=f"e1:{job}:s", time=time + 10, job_id=job, shares=SHARES) for job in ids], []
    yield [JobEnded(id=f"e1:{job}:e", time=time + 3600, job_id=job, exit_status=0) for job in ids], []


def main() -> None:
    """Prints what the files take."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "schedd.sqlite"
        store = Store.open(f"sqlite:///{file}")
        cluster = store.register_cluster("main", NOW)
        wal = 0
        for first in range(0, JOBS, TOGETHER):
            ids = [f"{100_000 + first + i}.server.example.org" for i in range(TOGETHER)]
            promises = [Promise(job, NOW + first, NOW + first + 5400, weak=False) for job in ids]
            for events, decisions in batches(ids, first):
                batch = store.append_events(cluster, store.last_position(cluster), events, NOW + first)
                assert batch is not None
                store.record_decisions(cluster, batch, decisions, promises=promises)
                promises = []
            wal = max(wal, file.with_name(file.name + "-wal").stat().st_size)
        for _ in store.record_history(cluster):
            pass
        store.close()
        size = file.stat().st_size
        print(f"{JOBS:,} jobs, {TELLINGS} tellings each: {size / 2**20:.0f} MiB")
        print(
            f"100,000 such jobs: {size / JOBS * 100_000 / 2**20:.0f} MiB; WAL at most {wal / 2**20:.1f} MiB"
        )


if __name__ == "__main__":
    main()
