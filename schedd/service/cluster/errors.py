"""What can go wrong between a request and the planner."""

__all__ = ["EventsNotStorable", "Overloaded", "PlannerStopped", "StandingBy", "UnknownCluster"]


class PlannerStopped(RuntimeError):
    """The planner of this cluster does not work any more, or the daemon is shutting down."""


class StandingBy(PlannerStopped):
    """Another daemon leads; this one follows, and answers what can be read."""


class EventsNotStorable(RuntimeError):
    """Events that cannot be written down, by a defect of ours: they are refused, and the planner goes on."""


class Overloaded(RuntimeError):
    """More events wait than can be kept; try again later."""


class UnknownCluster(LookupError):
    """No cluster of this name is configured."""
