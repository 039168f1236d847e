"""Validity of views that several run decisions share."""

from typing import Final

VIEW_AGE_S: Final = 0.25


def view_expiry(began: float, ended: float) -> float:
    """Return until when a view may be used that was read from ``began`` to ``ended``, in seconds.

    On a slow server this is as long as the reading took: with a fixed age each decision would read all nodes
    again, so that more decisions wait and the server becomes even slower.
    """
    return ended + max(VIEW_AGE_S, ended - began)
