"""The client: one method for each question, and for each act."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack, cast

from schedd.client.answers import (
    AccountsView,
    AlternativesView,
    AppliedPlan,
    BookingResult,
    BookingView,
    DispatchState,
    HoldsView,
    HoldView,
    LicenceLeaseView,
    NoticesView,
    PolicyPreview,
    PolicyView,
    PowerView,
    PreviewView,
    ReservationResult,
    SearchResult,
    SearchStopped,
    SearchView,
    TransferResult,
    TransferView,
)
from schedd.client.http_stream import quote_segment
from schedd.client.read_client import ReadClient


class Reserved(TypedDict, total=False):
    """What a reservation keeps free over ``[start, end)``, in seconds since the epoch.

    Without a start it begins now, without an end it lasts until it is lifted. ``access`` lets some in: names
    by ``users``, ``groups``, ``accounts`` and ``queues``; so does a walltime that is ``shorter`` or equal.
    With ``cores``, ``gpus`` or ``mem`` (KiB) it keeps this amount of each node, or with ``total`` of all
    together.
    """

    nodes: Sequence[str]
    features: Sequence[str]
    everywhere: bool
    start: int | None
    end: int | None
    reason: str
    access: Mapping[str, Sequence[str]]
    shorter: int
    cores: int
    gpus: int
    mem: int
    total: bool


class Client(ReadClient):
    """A client for one cluster of a daemon; without a name, for its only one.

    Every method raises ``Unreachable`` if no daemon answers and ``Refused`` for an error response. Not to be
    shared between threads.
    """

    def pause(self, reason: str) -> DispatchState:
        """Start no jobs of the cluster until ``resume``."""
        return cast(
            "DispatchState", self._http.request("POST", self._path("/pause"), body={"reason": reason})
        )

    def resume(self) -> DispatchState:
        """Start jobs again."""
        return cast("DispatchState", self._http.request("POST", self._path("/resume")))

    def optimise(self) -> SearchView | None:
        """Search for a better plan now and take it over; None when there was nothing to search."""
        found: SearchResult = self._http.request("POST", self._path("/searches"))
        return found.search

    # ---- alternative plans -----------------------------------------------------------------------

    def search_alternatives(
        self,
        *,
        seconds: float = 10.0,
        evaluations: int | None = None,
        population: int = 24,
        seed: int = 0,
        weights: Mapping[str, float] | None = None,
    ) -> AlternativesView:
        """Search for alternatives to the live plan for ``seconds``; the plan stays unchanged."""
        how = {
            "seconds": seconds,
            "evaluations": evaluations,
            "population": population,
            "seed": seed,
            "weights": dict(weights) if weights is not None else None,
        }
        body = {name: value for name, value in how.items() if value is not None}
        return cast("AlternativesView", self._http.request("POST", self._path("/alternatives"), body=body))

    def stop_alternatives(self) -> bool:
        """Let the run under way end at once; whether there was one."""
        found: SearchStopped = self._http.request("DELETE", self._path("/alternatives"))
        return found.stopped

    def apply_alternative(self, number: int, plan: int, *, tolerance: float | None = None) -> AppliedPlan:
        """Put a plan of the set ``number`` in force, unless more than this share of jobs moved since."""
        path = self._path(f"/alternatives/{number}/plans/{plan}/apply")
        return cast("AppliedPlan", self._http.request("POST", path, body={"tolerance": tolerance}))

    # ---- notices ---------------------------------------------------------------------------------

    def notices(self) -> NoticesView:
        """The caller's notices, and the ways of notifying that the site offers."""
        return cast("NoticesView", self._http.request("GET", self._path("/notices")))

    def add_notice(
        self,
        *,
        job: str = "",
        moved: int | None = None,
        ahead: int | None = None,
        lost: bool = False,
        tighter: bool = False,
        way: Literal["mail", "command"] = "mail",
        to: str = "",
    ) -> NoticesView:
        """Create a notice about a moved or near start of a job (or all), a ``lost`` deadline, or a
        ``tighter`` walltime that would start it sooner.
        """
        when = {"moved": moved, "ahead": ahead, "lost": lost, "tighter": tighter}
        body = {"job": job, **when, "way": way, "to": to}
        return cast("NoticesView", self._http.request("POST", self._path("/notices"), body=body))

    def remove_notice(self, number: int) -> NoticesView:
        """Delete a notice."""
        return cast("NoticesView", self._http.request("DELETE", self._path(f"/notices/{number}")))

    # ---- reservations ----------------------------------------------------------------------------

    def reserve(self, name: str, **what: Unpack[Reserved]) -> ReservationResult:
        """Make a reservation, or put another in its place."""
        path = self._path(f"/reservations/{quote_segment(name)}")
        return cast("ReservationResult", self._http.request("PUT", path, body=_reservation(what)))

    def preview_reservation(self, name: str, **what: Unpack[Reserved]) -> PreviewView:
        """What would follow if it was made."""
        path = self._path(f"/reservations/{quote_segment(name)}/preview")
        return cast("PreviewView", self._http.request("POST", path, body=_reservation(what)))

    def unreserve(self, name: str) -> ReservationResult:
        """Lift a reservation."""
        path = self._path(f"/reservations/{quote_segment(name)}")
        return cast("ReservationResult", self._http.request("DELETE", path))

    # ---- bookings --------------------------------------------------------------------------------

    def book(self, name: str, what: Mapping[str, Any]) -> BookingView:
        """Book cores: ``request`` or ``resources``, ``duration``, ``start`` or ``ready`` and ``deadline``,
        and so on. ``Refused`` of kind ``no-room`` has ``options``.
        """
        return self._booking("PUT", name, "", dict(what))

    def booking(self, name: str) -> BookingView:
        """One booking."""
        return self._booking("GET", name, "")

    def accept_option(self, name: str, option: int) -> BookingView:
        """Accept a counter-offer of a refused booking."""
        return self._booking("POST", name, "/accept", {"option": option})

    def do_with_booking(self, name: str, act: Literal["freeze", "confirm", "arm", "keep"]) -> BookingView:
        """Let it stay where it is; let it not be given up; let its job start; keep its job."""
        return self._booking("POST", name, f"/{act}")

    def cancel_booking(self, name: str) -> BookingView:
        """Give it back."""
        return self._booking("DELETE", name, "")

    def _booking(self, method: str, name: str, what: str, body: object = None) -> BookingView:
        path = self._path(f"/bookings/{quote_segment(name)}{what}")
        found: BookingResult = self._http.request(method, path, body=body)
        return found.booking

    # ---- jobs handed over ------------------------------------------------------------------------

    def submit_held(self, name: str, submission: Mapping[str, Any]) -> TransferView:
        """Have a job submitted on hold, in its user's name: ``user``, ``script``, ``resources`` and so on."""
        return self._transfer("PUT", name, "", dict(submission))

    def release_transfer(self, name: str) -> TransferView:
        """Release its hold."""
        return self._transfer("POST", name, "/release")

    def report_bag_end(self, name: str, end: int) -> TransferView:
        """Report the end of the bag to which the array belongs."""
        return self._transfer("POST", name, "/bag-end", {"end": end})

    def withdraw_transfer(self, name: str, *, forced: bool = False) -> TransferView:
        """Withdraw a transfer unless it runs (``forced``: even then); one yet to come is not submitted."""
        return self._transfer("DELETE", name, "?forced=true" if forced else "")

    def lend(self, licence: str, copies: int, number: int) -> LicenceLeaseView:
        """Lease copies of a licence, replacing leases with a lower ``number``."""
        path = self._path(f"/licences/{quote_segment(licence)}")
        return cast(
            "LicenceLeaseView", self._http.request("PUT", path, body={"copies": copies, "number": number})
        )

    def _transfer(self, method: str, name: str, what: str, body: object = None) -> TransferView:
        path = self._path(f"/transfers/{quote_segment(name)}{what}")
        found: TransferResult = self._http.request(method, path, body=body)
        return found.transfer

    # ---- policy ----------------------------------------------------------------------------------

    def preview_policy(self, site: Mapping[str, Any]) -> PolicyPreview:
        """What would follow if this policy was put in force."""
        path = self._path("/policy/preview")
        return cast("PolicyPreview", self._http.request("POST", path, body=dict(site)))

    def set_policy(
        self, site: Mapping[str, Any], *, break_promises: bool = False, instead: int | None = None
    ) -> PolicyView:
        """Put another policy in force, as a whole; with ``instead`` only in place of that version. Without
        ``break_promises`` it is refused if promises would be put at risk; the error names their owners.
        """
        query = {"break_promises": "true" if break_promises else None, "instead": instead}
        return cast("PolicyView", self._http.request("PUT", self._path("/policy"), query, dict(site)))

    def withdraw_policy(self, *, break_promises: bool = False) -> PolicyView:
        """Let the configuration's policy be in force again; ``break_promises`` as in ``set_policy``."""
        path = self._path("/policy") + ("?break_promises=true" if break_promises else "")
        return cast("PolicyView", self._http.request("DELETE", path))

    # ---- power -----------------------------------------------------------------------------------

    def set_power(self, node: str, wish: Literal["on", "off", "hold", "auto"], reason: str = "") -> PowerView:
        """Set the mode of a node: on, off, hold or auto; returns the power state afterwards."""
        path = self._path(f"/power/{quote_segment(node)}")
        return cast("PowerView", self._http.request("PUT", path, body={"wish": wish, "reason": reason}))

    def record_power(self, watts: Mapping[str, float]) -> PowerView:
        """Record measured power of nodes, in watts; returns the power state afterwards."""
        body = {"watts": dict(watts)}
        return cast("PowerView", self._http.request("POST", self._path("/power/readings"), body=body))

    # ---- accounts --------------------------------------------------------------------------------

    def set_account(self, account: str, what: Mapping[str, Any]) -> AccountsView:
        """Create or change an account; returns all accounts. ``what``: ``amount``, ``unit``, ``period``,
        ``overdraft``, ``users``, ``closed``, ``reason``.
        """
        path = self._path(f"/accounts/{quote_segment(account)}")
        return cast("AccountsView", self._http.request("PUT", path, body=dict(what)))

    def transfer_amount(self, source: str, target: str, amount: float, reason: str = "") -> AccountsView:
        """Move an amount between accounts, or from or to outside (empty); all accounts then."""
        body = {"source": source, "target": target, "amount": amount, "reason": reason}
        return cast("AccountsView", self._http.request("POST", self._path("/accounts/transfers"), body=body))

    # ---- holds -----------------------------------------------------------------------------------

    def hold(self, kind: Literal["node", "queue"], name: str, reason: str) -> Sequence[HoldView]:
        """Hold the planning of a node or queue; all that are held then."""
        path = self._path(f"/holds/{kind}/{quote_segment(name)}")
        found: HoldsView = self._http.request("PUT", path, body={"reason": reason})
        return found.holds

    def preview_hold(self, kind: Literal["node", "queue"], name: str, reason: str) -> PreviewView:
        """What would follow if it was held."""
        path = self._path(f"/holds/{kind}/{quote_segment(name)}/preview")
        return cast("PreviewView", self._http.request("POST", path, body={"reason": reason}))

    def release(self, kind: Literal["node", "queue"], name: str) -> Sequence[HoldView]:
        """Plan for a node or queue again; all that are held still."""
        found: HoldsView = self._http.request("DELETE", self._path(f"/holds/{kind}/{quote_segment(name)}"))
        return found.holds


def _reservation(what: Reserved) -> dict[str, Any]:
    plain: dict[str, Any] = {name: value for name, value in what.items() if name != "access"}
    return plain | dict(what.get("access", {}))
