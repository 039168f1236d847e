"""Compares orders of replanning the existing bookings."""

from dataclasses import asdict, dataclass
from typing import Final

from fastapi import Request, Response

from schedd.api.access import Cluster, Operator
from schedd.api.planner_calls import await_planner
from schedd.api.problems import problem_responses
from schedd.api.question_runner import run_question
from schedd.api.replies import documented, reply
from schedd.api.routes import RouteTable
from schedd.api.views import SnapshotAnswer, snapshot_fields
from schedd.engine import Engine
from schedd.policy.bookings import Order
from schedd.service.questions.booking_orders import booking_order_figures

__all__ = ["BookingOrderView", "BookingOrdersView", "router"]

router = RouteTable(prefix="/v1/clusters/{cluster}", tags=["bookings"])
_PLANNER_TIMEOUT_S: Final = 10.0


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class BookingOrderView:
    """The same bookings, booked anew in one order."""

    order: Order
    asked: int
    """Bookings that may still move, and those refused in the last hour that are still possible."""
    taken: int
    """Of these, how many find a place."""
    lost: int
    """Bookings that would lose their placement."""
    won: int
    """Of the refused, how many would have a place."""
    moved: int
    """Placed bookings that would begin at another time."""
    core_hours: float
    """Total of the placed bookings."""
    used: float
    """Share of all cores' time from now to `until` that jobs and bookings would hold."""
    until: int
    """The latest deadline of those asked."""


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class BookingOrdersView(SnapshotAnswer):
    """What would be made of the bookings by each order of replanning."""

    order: Order
    """The site's."""
    orders: tuple[BookingOrderView, ...]


@router.get(
    "/plan/booking-orders",
    response_model=BookingOrdersView,
    responses=problem_responses("no-token", "not-allowed", "unknown-cluster", "not-ready", "too-hard"),
)
async def compare_booking_orders(request: Request, cluster: Cluster, _: Operator) -> Response:
    """Which order of replanning bookings would use the cluster best? Needs the role `operator` or `admin`.

    On forks of the plan, all bookings that may still move, and those refused lately, are booked anew in each
    order. Jobs and frozen bookings stay where they are, and nothing is changed.
    """
    engine = await await_planner(
        cluster.call_between_batches(Engine.fork), _PLANNER_TIMEOUT_S, "ask again in a moment"
    )
    found = await run_question(request, booking_order_figures, engine, cluster.now())
    published = cluster.published
    rows = tuple(BookingOrderView(**asdict(one)) for one in found)
    view = BookingOrdersView(
        order=engine.state.site.bookings.order, orders=rows, **snapshot_fields(published)
    )
    return reply(request, view, published)
