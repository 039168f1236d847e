"""Client of a federation: jobs, clusters and what-if questions."""

from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

from schedd.client.answers import (
    AuditRecord,
    BagOfferView,
    BagView,
    BalanceView,
    ClusterWhatIf,
    CoAllocationView,
    FederatedBookingView,
    FederatedClusterView,
    FederatedJobView,
    FederationReport,
)
from schedd.client.endpoint import Endpoint
from schedd.client.http import HttpConnection
from schedd.client.http_stream import quote_segment


class FederationClient:
    """Client of a federation. Methods raise ``Unreachable``, or ``Refused`` for an error response."""

    def __init__(self, endpoint: Endpoint, *, timeout: float = 30.0) -> None:
        self._http = HttpConnection(endpoint, timeout)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def clusters(self) -> Sequence[FederatedClusterView]:
        return cast(
            "Sequence[FederatedClusterView]", self._http.request("GET", "/v1/federation/clusters")["clusters"]
        )

    def now(self) -> int:
        """The time by the federation's clock, in epoch seconds."""
        return int(self._http.request("GET", "/v1/federation/clusters")["now"])

    def report(self) -> FederationReport:
        """Outcomes of jobs, co-allocations and bags."""
        return cast("FederationReport", self._http.request("GET", "/v1/federation/report"))

    def audit(self, *, since: int = 0, limit: int = 1_000) -> Sequence[AuditRecord]:
        """Actions and refused attempts, newest first. For admins."""
        query = {"since": since, "limit": limit}
        return cast(
            "Sequence[AuditRecord]", self._http.request("GET", "/v1/federation/audit", query)["entries"]
        )

    def balance(self, *, since: int | None = None, until: int | None = None) -> BalanceView:
        """Return each cluster's performance in ``[since, until)`` and its share of the work; by default of
        the last day.
        """
        query = {"since": since, "until": until}
        return cast("BalanceView", self._http.request("GET", "/v1/federation/balance", query))

    def jobs(self, *, over: bool = True) -> Sequence[FederatedJobView]:
        """Jobs that the caller may see."""
        query = {"state": "all" if over else "open"}
        return cast(
            "Sequence[FederatedJobView]", self._http.request("GET", "/v1/federation/jobs", query)["jobs"]
        )

    def job(self, name: str) -> FederatedJobView:
        return cast(
            "FederatedJobView", self._http.request("GET", f"/v1/federation/jobs/{quote_segment(name)}")
        )

    def submit(self, body: Mapping[str, Any], wait: float = 0) -> FederatedJobView:
        """Submit a job: ``script``, ``request`` or ``resources``, and further fields.

        Wait up to ``wait`` seconds until a cluster is chosen, or none can run the job.
        """
        query = {"wait": f"{wait:g}"} if wait else None
        return cast(
            "FederatedJobView", self._http.request("POST", "/v1/federation/jobs", query, body=dict(body))
        )

    def cancel(self, name: str) -> FederatedJobView:
        """Cancel a job."""
        return cast(
            "FederatedJobView", self._http.request("DELETE", f"/v1/federation/jobs/{quote_segment(name)}")
        )

    def coallocations(self, *, over: bool = True) -> Sequence[CoAllocationView]:
        """Return the co-allocations that the caller may see."""
        query = {"state": "all" if over else "open"}
        return cast(
            "Sequence[CoAllocationView]",
            self._http.request("GET", "/v1/federation/coallocations", query)["coallocations"],
        )

    def coallocation(self, name: str) -> CoAllocationView:
        return cast(
            "CoAllocationView",
            self._http.request("GET", f"/v1/federation/coallocations/{quote_segment(name)}"),
        )

    def submit_coallocation(self, body: Mapping[str, Any]) -> CoAllocationView:
        """Submit a co-allocation: ``components`` and further fields of the request."""
        return cast(
            "CoAllocationView", self._http.request("POST", "/v1/federation/coallocations", body=dict(body))
        )

    def cancel_coallocation(self, name: str) -> CoAllocationView:
        return cast(
            "CoAllocationView",
            self._http.request("DELETE", f"/v1/federation/coallocations/{quote_segment(name)}"),
        )

    def edit_component(
        self,
        name: str,
        component: Mapping[str, Any] | None,
        number: int | None = None,
        *,
        later: bool = False,
    ) -> CoAllocationView:
        """Add a component, substitute the one with this number, or delete it (``component`` is None)."""
        path = f"/v1/federation/coallocations/{quote_segment(name)}/components"
        if component is None:
            return cast("CoAllocationView", self._http.request("DELETE", f"{path}/{number}"))
        body = {"component": dict(component), "later": later}
        if number is None:
            return cast("CoAllocationView", self._http.request("POST", path, body=body))
        return cast("CoAllocationView", self._http.request("PUT", f"{path}/{number}", body=body))

    def offer_bag(self, body: Mapping[str, Any]) -> BagOfferView:
        """Return the offer of the clusters' plans for a bag: ``request``, ``tasks``, ``deadline`` and further
        fields.
        """
        return cast("BagOfferView", self._http.request("POST", "/v1/federation/bag-offers", body=dict(body)))

    def bags(self, *, over: bool = True) -> Sequence[BagView]:
        """Bags that the caller may see."""
        query = {"state": "all" if over else "open"}
        return cast("Sequence[BagView]", self._http.request("GET", "/v1/federation/bags", query)["bags"])

    def bag(self, name: str) -> BagView:
        return cast("BagView", self._http.request("GET", f"/v1/federation/bags/{quote_segment(name)}"))

    def submit_bag(self, body: Mapping[str, Any]) -> BagView:
        """Submit a bag: a ``script``, and an ``offer`` or the terms of the bag."""
        return cast("BagView", self._http.request("POST", "/v1/federation/bags", body=dict(body)))

    def cancel_bag(self, name: str) -> BagView:
        """Cancel the waiting tasks of a bag."""
        return cast("BagView", self._http.request("DELETE", f"/v1/federation/bags/{quote_segment(name)}"))

    def bookings(self, *, over: bool = True) -> Sequence[FederatedBookingView]:
        """Bookings that the caller may see."""
        query = {"state": "all" if over else "open"}
        found = self._http.request("GET", "/v1/federation/bookings", query)
        return cast("Sequence[FederatedBookingView]", found["bookings"])

    def booking(self, name: str) -> FederatedBookingView:
        return self._booking("GET", name, "")

    def book(self, name: str, what: Mapping[str, Any]) -> FederatedBookingView:
        """Book cores: ``request`` or ``resources``, ``duration``, ``start`` or ``ready`` and ``deadline``,
        and so on. ``Refused`` of kind ``no-room`` has ``options``.
        """
        return self._booking("PUT", name, "", dict(what))

    def accept_option(self, name: str, option: int) -> FederatedBookingView:
        """Accept a counter-offer of a refused booking."""
        return self._booking("POST", name, "/accept", {"option": option})

    def freeze_booking(self, name: str) -> FederatedBookingView:
        """Fix the planned start of a booking."""
        return self._booking("POST", name, "/freeze")

    def cancel_booking(self, name: str) -> FederatedBookingView:
        """Cancel a booking."""
        return self._booking("DELETE", name, "")

    def _booking(self, method: str, name: str, what: str, body: object = None) -> FederatedBookingView:
        path = f"/v1/federation/bookings/{quote_segment(name)}{what}"
        return cast("FederatedBookingView", self._http.request(method, path, body=body))

    def what_if(
        self,
        request: str,
        clusters: Sequence[str] = (),
        array: str = "",
        deadline: int | None = None,
    ) -> Sequence[ClusterWhatIf]:
        """Return where a job would start, earliest end first. For an ``array`` the end of its last task
        counts.
        """
        body = {"request": request, "clusters": list(clusters), "array": array, "deadline": deadline}
        found = self._http.request("POST", "/v1/federation/what-if", body=body)
        return cast("Sequence[ClusterWhatIf]", found["clusters"])
