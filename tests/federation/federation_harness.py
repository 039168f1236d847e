"""A federation over a real database, and its HTTP interface; its clusters are away."""

import hashlib
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from schedd.federation.api import bags, bookings, coallocations
from schedd.federation.api.app import create_app
from schedd.federation.api.pages.routes import add_pages
from schedd.federation.event_log import FederationLog
from schedd.federation.routing.cluster_status import PlanOffer, TransferStatus
from schedd.federation.settings import FederationSettings
from schedd.federation.state.federation_state import ClusterPollResult, FederationState
from schedd.service.access.roles import Bearer
from schedd.service.access.tokens import Tokens

__all__ = ["HERE", "JOB", "FederationHarness", "released"]

JOB = {"script": "sleep 1", "request": "nodes=2:ppn=4,walltime=100", "key": "k1"}
HERE = "/v1/federation/jobs"


def bearer(name: str, role: Any) -> tuple[Bearer, bytes]:
    return Bearer(name, role), hashlib.sha256(f"token-of-{name}".encode()).digest()


def settings(path: Path) -> FederationSettings:
    cluster = {"url": "http://127.0.0.1:9", "token_file": str(path), "realms": ["org"], "timeout": 0.2}
    return FederationSettings.model_validate(
        {
            "licences": {"matlab": 10},
            "clusters": {
                "north": {**cluster, "disclosure": "plan"},
                "south": {**cluster, "cluster": "other", "disclosure": "offers"},
            },
        }
    )


class FederationHarness:
    """A federation over a real database, and its application."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 1_700_000_000
        self.app = create_app(
            Tokens(
                [
                    bearer("ann@org", "user"),
                    bearer("bob@org", "user"),
                    bearer("root", "admin"),
                    bearer("eyes", "reader"),
                ]
            )
        )
        coallocations.router.add_to(self.app)
        bags.router.add_to(self.app)
        bookings.router.add_to(self.app)
        add_pages(self.app)
        self.begin()

    def begin(self, chosen: FederationSettings | None = None) -> None:
        self.log = FederationLog(f"sqlite:///{self.path}/fed.sqlite", "here", 6.0)
        assert self.log.leadership.try_acquire()
        chosen = chosen or settings(self.path)
        self.federation = FederationState(chosen, self.log, {"north": "x", "south": "x"}, lambda: self.now)
        self.app.state.federation = self.federation

    def report(self, cluster: str, end: int | None = None, **transfers: TransferStatus) -> None:
        """Report a poll of the cluster. With ``end``, its plan ends every job that many seconds from now."""
        if end is not None:
            offer = PlanOffer(self.now, self.now + end)
            self.federation.store_answers(
                cluster, dict.fromkeys(self.federation.due_questions(cluster), (offer, 1))
            )
        seen = {name.replace("_", "."): one for name, one in transfers.items()}
        self.federation.apply_report(cluster, ClusterPollResult(transfers=seen, cpus=8, generation=1))

    def client(self, name: str) -> TestClient:
        return TestClient(self.app, headers={"Authorization": f"Bearer token-of-{name}"})


def released(harness: FederationHarness, cluster: str, *jobs: str) -> None:
    """The first attempts of these jobs are held there, then released: they wait."""
    for phase in ("held", "released"):
        found: dict[str, Any] = {
            f"fed_{job}_1": TransferStatus(
                phase, job=f"{job}.{cluster}", state="planned", planned_start=harness.now
            )
            for job in jobs
        }
        harness.report(cluster, **found)
