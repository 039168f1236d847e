"""QOS in replays of logs, in metrics, and in the price of jobs."""

import json
from pathlib import Path

import pytest
from prometheus_client.core import Metric

from schedd.cli.main import main
from schedd.dialect.qos import logged_qos
from schedd.engine import Engine
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.accounts.state import account_book
from schedd.features.qos.metrics import collect_metrics
from schedd.features.qos.state import QosState, WaitHistogram
from schedd.wire import AccountSet, JobStarted, RunFacts, RunsRead, ShareFacts
from tests.engine.cluster import T
from tests.features.qos.test_qos import LEVELS, QosSite


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"Resource_List.qos": "high"}, "high"),
        ({"qos": "normal"}, "normal"),
        ({"x": "FLAGS:RESTARTABLE;QOS:high"}, "high"),
        ({"x": "PARTITION:big"}, ""),
        ({}, ""),
    ],
)
def test_logs_name_the_qos_of_runs(values: dict[str, str], name: str) -> None:
    assert logged_qos(values) == name


def _record(job: int, queued: int, start: int, qos: str) -> str:
    return (
        f"11/23/2026 10:00:00;E;{job}.s;user=u{job % 2} group=g queue=batch ctime={queued} qtime={queued} "
        f"etime={queued} start={start} exec_host=n1/0-3 Resource_List.nodes=1:ppn=4 {qos} "
        f"Resource_List.walltime=00:10:00 end={start + 600} Exit_status=0 resources_used.walltime=00:10:00"
    )


def test_a_replay_follows_the_qos_of_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, file, out = tmp_path / "log", tmp_path / "schedd.toml", tmp_path / "rows.json"
    names = ["Resource_List.qos=low", "Resource_List.qos=closed", "x=QOS:low", "", "Resource_List.qos=other"]
    records = [_record(i, T, T + 600 * i, name) for i, name in enumerate(names)]
    log.write_text("\n".join(records) + "\n", encoding="utf-8")
    file.write_text(
        """
        [clusters.main]
        search_every = 0
        [clusters.main.site.qos.levels.low]
        [clusters.main.site.qos.levels.closed]
        users = ["nobody"]
        [[clusters.main.site.limits]]
        amount = 1
        qos = "low"
        """,
        encoding="utf-8",
    )
    assert main(["replay", str(log), "--procs", "16", "--policy-file", str(file), "--json", str(out)]) == 0
    row = json.loads(out.read_text(encoding="utf-8"))[-1]
    assert row["jobs"] == 4, "the job of the closed QOS is left out"
    (peak,) = row["limits"]
    assert (peak["limit"], peak["used"]) == ("at most 1 job in QOS low at once", 1)
    assert row["max_wait_s"] == 600
    capsys.readouterr()


def _samples(metrics: list[Metric]) -> dict[tuple[str, ...], float]:
    return {
        (one.name, one.labels["queue"], one.labels["qos"], one.labels.get("le", "")): one.value
        for metric in metrics
        for one in metric.samples
    }


def test_waits_are_counted_by_queue_and_qos_once_for_each_run() -> None:
    site = QosSite(default="normal", unknown="ignore")
    site.submit("1")
    site.submit("2", resources={"qos": "low"})
    site.submit("3")
    site.at(250)
    corrected = JobStarted(id="s", time=T + 202, job_id="2", shares=(ShareFacts("n1", 4),))
    site.send(corrected)
    restored = Engine.restore(site.engine.checkpoint(), site.engine.state.settings)
    for engine in (site.engine, restored):
        found = _samples(list(collect_metrics({"main": publish_snapshot(engine.state)})))
        name = "schedd_job_wait_seconds"
        assert found[f"{name}_count", "batch", "normal", ""] == 2
        assert found[f"{name}_sum", "batch", "normal", ""] == 100
        assert found[f"{name}_bucket", "batch", "normal", "60.0"] == 1
        assert found[f"{name}_bucket", "batch", "normal", "300.0"] == 2
        assert found[f"{name}_bucket", "batch", "low", "300.0"] == 1
        assert found[f"{name}_bucket", "batch", "low", "+Inf"] == 1


def test_a_requeued_run_waited_since_its_requeue() -> None:
    site = QosSite(default="normal", unknown="ignore")
    site.submit("1")
    site.at(90)
    site.send(*site.server.requeue("1"))
    site.at(250)
    assert [(sum(one.counts), one.sum) for one in site.engine.state.part(QosState).waits.values()] == [(2, 0)]


def test_a_bucket_includes_its_upper_bound() -> None:
    assert WaitHistogram().including(60).counts[0] == 1
    assert WaitHistogram().including(61).counts[:2] == (0, 1)
    assert WaitHistogram().including(10**9).counts[-1] == 1


def test_the_charge_factor_of_a_qos_multiplies_what_a_job_costs() -> None:
    site = QosSite({"accounts": {}})
    site.send(AccountSet(id="a", time=site.server.now, name="phys", amount=3 * 400))
    site.submit("1", account="phys", resources={"qos": "high"})
    site.submit("2", account="phys", resources={"qos": "low"})
    site.submit("3", account="phys", resources={"qos": "high"})
    book = account_book(site.engine.state)
    assert {job: amount for job, (_, amount) in book.holds.items()} == {"1": 800, "2": 200}
    assert site.start("3") is None, "400 of 1200 are left, and it may take 800"
    site.at(200)
    assert [line.amount for line in book.entries if line.kind == "charge"] == [-800, -200]
    shares = (ShareFacts("n1", 4),)
    run = RunFacts(
        id="9", owner="bob", start=T + 10, end=T + 20, account="phys", shares=shares, qos="low", queue="batch"
    )
    site.send(RunsRead(id="r", time=site.server.now, runs=(run,), until=site.server.now))
    assert book.entries[-1].amount == -20
    assert LEVELS["low"]["charge"] == 0.5
