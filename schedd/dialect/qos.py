"""Requests for a quality of service (QOS): ``qsub -l qos=NAME`` and ``qsub -W x=QOS:NAME``."""

from collections.abc import Mapping
from typing import Final

from schedd.dialect.resource_names import find_spellings
from schedd.wire.job_extensions import extension_resources

_NAMES: Final = ("qos", "x.qos")
QOS_NAMES: Final = frozenset(_NAMES)
"""Resources with the name, in lower case: a resource of the server, or an extension of Maui and Moab."""


def read_qos(resources: Mapping[str, str]) -> str:
    """Return the name of the requested QOS; empty: the job requests none.

    Names of resources are compared without regard to case. A request that contradicts itself is refused
    elsewhere; here the resource of the server counts.
    """
    found = ""
    for name in find_spellings(tuple(resources), QOS_NAMES):
        text = resources[name].strip()
        if text and (name.strip().lower() == _NAMES[0] or not found):
            found = text
    return found


def qos_option(resources: Mapping[str, str]) -> str:
    """Return the option of qalter that replaces a job's requested QOS by the QOS ``NAME``."""
    extension = any(name.strip().lower() == _NAMES[1] and text.strip() for name, text in resources.items())
    return "-W x=QOS:NAME" if extension else "-l qos=NAME"


def qos_names(resources: Mapping[str, str]) -> set[str]:
    return {name for name in _NAMES if name in resources}


def logged_qos(values: Mapping[str, str]) -> str:
    """Return the requested QOS of a run in an accounting log, by its keys; empty: none.

    TORQUE and OpenPBS log the resource and TORQUE the extensions; Slurm has its own column.
    """
    found = values.get("Resource_List.qos") or values.get("qos", "")
    return found.strip() or extension_resources(values.get("x", "")).get("x.qos", "")
