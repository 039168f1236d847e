"""Errors of requests to the planner."""


class PlannerStopped(RuntimeError):
    """The planner of this cluster has stopped, or the daemon is shutting down."""


class StandingBy(PlannerStopped):
    """Another daemon leads; this one follows and only answers reads."""


class EventsNotStorable(RuntimeError):
    """Events that cannot be stored, because of a defect; they are rejected, and the planner continues."""


class Overloaded(RuntimeError):
    """Too many events are pending; try again later."""


class UnknownCluster(LookupError):
    """There is no cluster of this name."""
