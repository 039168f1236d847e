"""Time since a moment in the log. The clock may have been set back since, or another host wrote
the moment.
"""

from typing import Final

_MAX_LEAD_S: Final = 60  # a moment that is further in the future is from before a setback of the clock


def has_waited(since: int, now: int, seconds: int) -> bool:
    """Return whether ``seconds`` have passed since a logged moment. They count as passed if the moment is in
    the future: its age is unknown then, and a wait must end.
    """
    return not -_MAX_LEAD_S <= now - since < seconds
