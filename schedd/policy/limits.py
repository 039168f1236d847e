"""Limits on what may run at once: what they say, and which of them concern a job."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Limit", "Who"]

Who = Literal["all", "user", "group", "account", "project"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """At most ``amount`` of ``what`` in use at once by the jobs of one ``who``.

    ``what`` is ``jobs``, ``cpus``, ``nodes``, ``gpus``, ``mem`` (KiB), or a generic resource. ``queue`` is
    where it counts, empty: on the whole cluster. ``name`` is of which user, group and so on; empty: of each
    by itself, save those that a limit of the same sort names.
    """

    amount: int
    what: str = "jobs"
    who: Who = "all"
    name: str = ""
    queue: str = ""
