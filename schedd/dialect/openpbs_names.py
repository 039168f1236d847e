"""Names in an OpenPBS request: which of them the plan obeys, which it refuses, and which restrict nothing.

The names are those of the server's resource table (``master_resc_def_all.xml``). Resources that a site adds
are obeyed by their type and flags: those of hosts in chunks, those of the server as amounts that all jobs
share. A resource that has no amount anywhere is no limit.
"""

from collections.abc import Mapping
from typing import Final

from schedd.dialect.asked import Asked

__all__ = ["ADDED_BY_THE_SERVER", "HARMLESS", "OBEYED", "REFUSED", "refuse_unplanned"]

OBEYED: Final = frozenset(
    {
        *("select", "place", "nodes", "ncpus", "mem", "vmem", "ngpus", "naccelerators", "hbmem"),
        *("accelerator", "accelerator_memory", "accelerator_model", "accelerator_group"),
        *("arch", "vntype", "host", "vnode", "aoe", "eoe"),
        *("walltime", "soft_walltime", "min_walltime", "max_walltime"),
    }
)
"""Names that the plan follows, or else refuses by their value."""

ADDED_BY_THE_SERVER: Final = frozenset(
    {
        *("schedselect", "nodect", "nchunk", "cpupercent", "energy", "nodemask", "pe_mask"),
        *("partition", "exec_vnode", "start_time"),
    }
)
"""Names that no user can set."""

_SELECT: Final = "select=N:ncpus=C with the resources of each chunk"

REFUSED: Final[Mapping[str, str]] = {"resc": _SELECT, "ssinodes": _SELECT}
"""Names that say which nodes or how many cores in a way that the plan cannot follow; what to use instead."""

HARMLESS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("cput", "pcput", "pmem", "pvmem", "file", "nice"),
        "a limit that the server or the node daemon enforces",
    ),
    **dict.fromkeys(("mpiprocs", "ompthreads"), "how the job's processes are started on its nodes"),
    **dict.fromkeys(
        ("hpm", "pstate", "pgov", "pcap_node", "pcap_accelerator"), "how the job's nodes are run"
    ),
    "software": "a description, unless the site counts a licence of that name: then it is obeyed",
    "site": "a description",
    "preempt_targets": "which running jobs it may stop: no job stops others here",
}
"""Names that restrict neither where nor when a job runs, with the reason; the job's notes name most."""


def refuse_unplanned(asked: Asked) -> None:
    """Raise RequestError for a request that the plan cannot follow and that restricts where a job runs."""
    for name in REFUSED.keys() & set(asked.names):
        raise asked.whole(name).error(
            f"{name}= is not planned, and without it the job would run elsewhere", REFUSED[name]
        )
