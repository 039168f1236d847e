"""The reservation that a job is to run in, as its owner names it."""

import re
from collections.abc import Mapping

__all__ = ["advres_names", "read_advres"]

_NAMES = ("advres", "x.advres", "x.flags")
"""Where it stands among a job's resources: a resource of the site, ``qsub -W x=advres:NAME``, or, as Maui and
Moab have it, ``-W x=FLAGS:ADVRES:NAME``.
"""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def read_advres(resources: Mapping[str, str]) -> str:
    """The name of a booking; empty: none, or what is no name."""
    for name in _NAMES:
        if name in resources:
            flag, _, named = resources[name].rpartition(":")
            wanted = "ADVRES" if name == "x.flags" else ""
            if flag.upper() == wanted and _NAME.fullmatch(named):
                return named
    return ""


def advres_names(resources: Mapping[str, str]) -> set[str]:
    """The names under which one stands that is understood."""
    return {name for name in _NAMES if read_advres({name: resources.get(name, "")})}
