"""Harness with real engines, a production booking worker, and the federation's application."""

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event as Flag

from fastapi.testclient import TestClient

from schedd.federation.api import bookings, coallocations
from schedd.federation.api.app import create_app
from schedd.federation.api.pages.routes import add_pages
from schedd.federation.workers.booking_worker import BookingWorker
from schedd.service.access.tokens import Tokens
from tests.engine.cluster import T
from tests.federation.federation_harness import bearer
from tests.federation.simulated_federation import SimulatedFederation
from tests.waits import WAIT_S

__all__ = ["HERE", "WIDE", "BookingHarness"]

HERE = "/v1/federation/bookings"
WIDE = {"request": "nodes=2:ppn=4", "duration": 600}
"""All of a cluster."""


class BookingHarness:
    """Ann and bob are users of both clusters; carol is an admin, eyes only reads."""

    def __init__(self, path: Path) -> None:
        self.simulation = SimulatedFederation(path)
        people = {"ann@org": "user", "bob@org": "user", "carol": "admin", "eyes": "reader"}
        self.app = create_app(Tokens([bearer(name, role) for name, role in people.items()]))
        bookings.router.add_to(self.app)
        coallocations.router.add_to(self.app)
        add_pages(self.app)
        self.begin()

    def begin(self) -> None:
        """Start a federation from its log only, with a running booking worker."""
        simulation = self.simulation
        simulation.begin()
        self.stopping = Flag()
        self.keeper = BookingWorker(
            simulation.federation, self.stopping, lambda: simulation.now, simulation.connect
        )
        self.keeper.start()
        self.app.state.federation = simulation.federation

    def stop(self) -> None:
        self.stopping.set()
        self.simulation.federation.booking_operations.wakeup.set()
        self.keeper.join(WAIT_S)
        assert not self.keeper.is_alive()

    def close(self) -> None:
        self.stop()
        self.simulation.close()

    def client(self, name: str) -> TestClient:
        return TestClient(self.app, headers={"Authorization": f"Bearer token-of-{name}"})

    def later(self, seconds: int) -> None:
        """Time passes at the clusters, and the federation looks at them."""
        for provider in self.simulation.clusters.values():
            with provider.turn:
                provider.at(provider.server.now - T + seconds)
        self.simulation.poll()
        self.simulation.federation.booking_operations.wakeup.set()

    def until(self, reached: Callable[[], bool]) -> None:
        """The thread does its rounds until it is so; its clock goes on meanwhile."""
        end = time.monotonic() + WAIT_S
        while not reached():
            assert time.monotonic() < end, "it did not come to that"
            self.later(1)
            time.sleep(0.02)
