"""Attempts at a cluster that was removed from the settings are closed, with a reason."""

from typing import Any

from schedd.federation.routing.cluster_status import TransferStatus
from tests.federation.federation_harness import HERE, JOB, FederationHarness, released, settings

_WORDS = "north is no longer a cluster of the federation"


def _submit(harness: FederationHarness) -> str:
    """Submit a job, which goes to north."""
    job: str = harness.client("ann@org").post(HERE, json=JOB).json()["id"]
    for name, end in (("north", 500), ("south", 900)):
        harness.report(name, end)
    return job


def _without_north(harness: FederationHarness) -> None:
    """Restart the federation with settings that have no cluster north."""
    harness.log.close()
    known = settings(harness.path)
    left = {name: one for name, one in known.clusters.items() if name != "north"}
    harness.begin(known.model_copy(update={"clusters": left}))


def test_a_job_that_may_run_at_a_removed_cluster_is_lost(harness: FederationHarness) -> None:
    ann, root = harness.client("ann@org"), harness.client("root")
    job = _submit(harness)
    released(harness, "north", job)
    assert ann.get(f"{HERE}/{job}").json()["over"] == ""
    _without_north(harness)
    found = ann.get(f"{HERE}/{job}").json()
    assert (found["over"], found["text"]) == ("lost", f"{_WORDS}: check there whether it runs")
    harness.report("south")
    there, move = harness.federation.jobs[job].attempts
    assert (there.phase, move.phase) == ("ended", "withdrawing"), "it must not run twice"
    entry = root.get("/v1/federation/audit").json()["entries"][0]
    assert (entry["who"], entry["act"]) == ("the settings", "remove cluster")
    assert entry["detail"] == "1 attempts at north closed: it is no longer in the settings"


def test_a_job_that_cannot_run_at_a_removed_cluster_goes_elsewhere(harness: FederationHarness) -> None:
    job = _submit(harness)
    (attempt,) = harness.federation.jobs[job].attempts
    assert (attempt.cluster, attempt.phase) == ("north", "submitting")
    _without_north(harness)
    for _ in range(3):
        harness.report("south", 900)
    first, second = harness.federation.jobs[job].attempts
    assert (first.phase, first.text) == ("refused", _WORDS)
    assert second.cluster == "south"


def test_a_withdrawal_from_a_removed_cluster_is_complete(harness: FederationHarness) -> None:
    ann = harness.client("ann@org")
    job = _submit(harness)
    held: dict[str, Any] = {f"fed_{job}_1": TransferStatus("held", job="1.north")}
    harness.report("north", **held)
    ann.delete(f"{HERE}/{job}")
    assert harness.federation.jobs[job].attempts[0].phase == "withdrawing"
    _without_north(harness)
    assert harness.federation.jobs[job].settled
