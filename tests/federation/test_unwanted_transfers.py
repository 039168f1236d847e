"""Copies that a cluster has though the log wants none of them there: they are asked back."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.federation.coallocation.coallocations import CoAllocations
from schedd.federation.events import JobSubmitted
from schedd.federation.routing.cluster_status import TransferStatus
from schedd.federation.routing.decisions import TransferAction
from schedd.federation.routing.jobs import FederationJobs
from schedd.federation.state.federation_state import ClusterPollResult
from schedd.federation.unwanted_transfers import find_unwanted, is_unwanted
from schedd.wire import SubmissionFacts, TransferRelease, TransferRequest
from tests.federation.cluster_model import RandomCluster
from tests.federation.federation_harness import HERE, FederationHarness, released
from tests.federation.federation_harness import JOB as JOB_BODY
from tests.federation.simulated_federation import SimulatedFederation
from tests.federation.test_routing_decisions import JOB, RULES, RoutingModel
from tests.property_examples import examples

ON_HOLD = ("submitting", "held", "releasing")
WHOLE = {"nodes": "2:ppn=4"}


class LyingCluster(RandomCluster):
    """Cluster that temporarily reports held transfers as refused or withdrawn."""

    lies = False

    def misreport(self) -> dict[str, TransferStatus]:
        found = dict(self.transfers)
        for name, seen in found.items() if self.lies else ():
            if seen.phase == "held" and not seen.end:
                found[name] = replace(seen, phase=self.chance.choice(("refused", "withdrawn")))
        return found


class ReconcilingModel(RoutingModel):
    """Model that compares the cluster's transfers with the log at every poll."""

    def round(self, name: str) -> None:
        cluster = self.clusters[name]
        assert isinstance(cluster, LyingCluster)
        truth, cluster.transfers = cluster.transfers, cluster.misreport()
        told = dict(cluster.transfers)
        try:
            super().round(name)
        finally:
            asked = {one: seen for one, seen in cluster.transfers.items() if told.get(one) != seen}
            cluster.transfers = {**truth, **asked}
        if not cluster.cut:
            for transfer in list(find_unwanted(self.jobs, CoAllocations(), RULES.name, cluster.misreport())):
                cluster.handle(TransferAction(name, "withdraw", transfer, "", 0))


@given(st.integers(0, 1 << 32))
@settings(max_examples=examples(60))
def test_no_transfer_stays_held_after_wrong_phase_reports(seed: int) -> None:
    chance = random.Random(seed)
    ran: Counter[str] = Counter()
    clusters = {name: LyingCluster(name, chance, ran) for name in "abc"}
    fed = ReconcilingModel(dict(clusters), chance)
    for step in range(300):
        fed.now += chance.randrange(4)
        if step < 150 and len(fed.jobs.by_id) < 8 and chance.random() < 0.1:
            number = str(len(fed.jobs.by_id) + 1)
            fed.commit([JobSubmitted(job=number, time=fed.now, owner="ann@org", submission=JOB)])
        liar = chance.choice("abc")
        clusters[liar].lies = chance.random() < 0.5
        fed.round(chance.choice("abc"))
        for cluster in clusters.values():
            cluster.live()
        assert not ran or max(ran.values()) == 1
    for cluster in clusters.values():
        cluster.lies = False
    for _ in range(600):
        fed.now += 1
        fed.round(chance.choice("abc"))
        for cluster in clusters.values():
            cluster.live()
    for name, cluster in clusters.items():
        left = {
            one: seen for one, seen in cluster.transfers.items() if seen.phase in ON_HOLD and not seen.end
        }
        assert not left, (seed, name, left)


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[SimulatedFederation]:
    made = SimulatedFederation(tmp_path)
    yield made
    made.close()


def lying(simulation: SimulatedFederation, name: str, phase: str) -> Any:
    """The cluster reports this phase for all held transfers. Return a function that ends the false
    reports.
    """
    provider = simulation.clusters[name]
    honest = provider.report

    def report() -> ClusterPollResult:
        found = honest()
        assert found.transfers is not None
        told = {
            one: replace(seen, phase=phase) if seen.phase in ON_HOLD else seen
            for one, seen in found.transfers.items()
        }
        return replace(found, transfers=told)

    provider.report = report  # type: ignore[method-assign]
    return lambda: setattr(provider, "report", honest)


@pytest.mark.parametrize("phase", ["refused", "withdrawn"])
@pytest.mark.parametrize("killed", [True, False])
def test_wrongly_reported_transfers_are_withdrawn(
    simulation: SimulatedFederation, phase: str, killed: bool
) -> None:
    tell_the_truth = lying(simulation, "a", phase)
    job = simulation.federation.submit(
        "ann@org", {"script": "x", "resources": {"nodes": "1"}}, clusters=("a",)
    )
    simulation.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    simulation.go(30)
    assert simulation.clusters["a"].server.jobs, "it has copies on hold"
    tell_the_truth()
    simulation.federation.cancel(job.id, "ann@org")
    if killed:
        simulation.begin()
    simulation.go(5)
    on_hold = [one for one in simulation.clusters["a"].server.jobs.values() if one.state == "H"]
    wanted = [
        c
        for g in simulation.federation.coallocations.by_id.values()
        for c in g.attempts
        if c.phase in ("submitting", "held")
    ]
    assert len(on_hold) <= len([one for one in wanted if one.cluster == "a"]), on_hold
    for name in list(simulation.federation.coallocations.open):
        simulation.federation.coallocation_operations.cancel(name, "ann@org")
    simulation.go(10)
    assert not simulation.clusters["a"].server.jobs


def test_unknown_held_transfer_is_withdrawn(
    simulation: SimulatedFederation,
) -> None:
    """The log was restored from an older copy, or lost."""
    provider = simulation.clusters["a"]
    script = SubmissionFacts("ann", "x", resources={"nodes": "2:ppn=4", "walltime": "500"})
    now = provider.server.now
    for number, name in enumerate(("fed.7.1", "fed.8.1", "other.9.1")):
        provider.send(
            TransferRequest(id=f"y:{number}", time=now, by="ours", transfer=name, submission=script)
        )
    assert len(provider.server.jobs) == 3
    provider.send(TransferRelease(id="x:2", time=provider.server.now, transfer="fed.8.1"))
    simulation.go(5)
    left = {provider.handed[one] for one in ("fed.8.1", "other.9.1")}
    assert set(provider.server.jobs) == left


@pytest.mark.parametrize("name", ["", "fed", "fed.", "fed.x", "fed.1", "fed.1.x", "fed..1", "fed.1.0"])
def test_foreign_transfer_names_cause_no_error(name: str) -> None:
    seen = TransferStatus("released", job="1.s")
    assert is_unwanted(FederationJobs(), CoAllocations(), "fed", name, seen) is False


def test_lost_job_is_reported_until_its_cluster_knows_it_again_or_it_is_cancelled(
    harness: FederationHarness,
) -> None:
    ann = harness.client("ann@org")
    job = ann.post(HERE, json={**JOB_BODY, "clusters": ["north"]}).json()["id"]
    harness.report("north", 100)
    released(harness, "north", job)

    def said() -> tuple[str, str]:
        trouble = ann.get("/v1/federation/clusters").json()["clusters"][0]["trouble"]
        return trouble, ann.get(f"{HERE}/{job}").json()["attempts"][0]["refusal"]

    assert said() == ("", "")
    harness.report("north")  # its database was lost
    trouble, refusal = said()
    assert "it no longer knows a job of the federation" in trouble
    assert "north no longer knows the job" in refusal
    assert "it no longer knows a job" in ann.get("/readyz").json()["trouble"]["north"]
    released(harness, "north", job)
    assert said() == ("", "")
    harness.report("north")
    assert ann.delete(f"{HERE}/{job}").status_code == 200
    (action,) = harness.federation.pending_actions("north")
    assert action.transfer == f"fed.{job}.1"
    harness.report("north", fed_1_1=TransferStatus("withdrawn"))
    assert said() == ("", "")
    assert harness.federation.jobs[job].over == "cancelled"
