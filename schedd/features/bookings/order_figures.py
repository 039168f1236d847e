"""Comparison of the orders for planning bookings again, on copies of an engine."""

from schedd.engine import Engine
from schedd.features.bookings.orders import OrderFigures, ordered
from schedd.policy.bookings import Order
from schedd.service.questions.open_questions import cancellation_check


def booking_order_figures(engine: Engine, now: int) -> tuple[OrderFigures, ...]:
    """Return one row per order; ``engine`` is a copy and stays unchanged. Raises WorkSpent."""
    found = []
    for order in Order:
        copy = engine.fork()
        go_on = cancellation_check(copy.state.plan)
        copy.state.now = max(now, copy.state.now)
        copy.state.plan.limit_work()
        found.append(ordered(copy.state, order))
        go_on()
    return tuple(found)
