"""Names in a TORQUE request: tables of obeyed, refused, and harmless names.

Sources: the server's resource table (``resc_def_all.c``) and the resource manager extensions of Maui and Moab
(``qsub -W x=``). A name is in exactly one table.
"""

from collections.abc import Mapping
from typing import Final

from schedd.dialect.errors import RequestError
from schedd.dialect.requested_resources import RequestedResources
from schedd.dialect.span import Span

_CORES: Final = "nodes=N:ppn=P, procs=N or ncpus=N"
_PROPERTY: Final = "a property of the nodes, nodes=N:PROPERTY or feature=PROPERTY"
_DEVICE: Final = "a resource that the nodes report as gres"
_MEMORY: Final = "mem=SIZE for the job or pmem=SIZE for each core"

OBEYED: Final = frozenset(
    {
        *(
            "tasks",
            "nodes",
            "procs",
            "ncpus",
            "mem",
            "pmem",
            "vmem",
            "pvmem",
            "gpus",
            "mics",
            "gres",
            "walltime",
        ),
        *("naccesspolicy", "feature", "partition", "topology", "host", "nodeset", "excludenodes"),
        *("advres", "flags", "jobflags", "deadline", "cost_limit", "work_units", "work_rate", "work_app"),
        *("qos", "minwclimit"),
    }
)
"""Names with an effect on the plan; invalid values are refused."""

ADDED_BY_THE_SERVER: Final = frozenset(
    {"nodect", "neednodes", "procct", "mppnodect", "energy_used", "cpaalloccookie", "cpaadmincookie"}
)

_ELSEWHERE: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            *("geometry", "procs_bitmap", "hostlist", "select", "size", "subnode", "subnode_list"),
            *("taskspn", "tpn", "vcores", "mppe", "nmatchpolicy", "maxproc"),
            *("mppwidth", "mppdepth", "mppnppn", "mppnodes", "mpplabel", "mpplabels", "mpphost", "mpparch"),
        ),
        _CORES,
    ),
    **dict.fromkeys(
        (
            *("arch", "opsys", "os", "image", "minprocspeed", "reqattr", "gmetric", "template", "vc"),
            *("nodemask", "pe_mask", "cpapartitionid", "latency", "bandwidth"),
        ),
        _PROPERTY,
    ),
    "nodesetcount": "nodeset=ONEOF:FEATURE:PROPERTY:PROPERTY",
    "dmem": _MEMORY,
    "trl": "TASKS@SECONDS:TASKS@SECONDS…, at most 16",
    "ddisk": _DEVICE,
    **dict.fromkeys(("mta", "mtb", "mtc", "mtd", "mte", "mtf", "mtg", "mth"), _DEVICE),
}
_OTHERWISE: Final[Mapping[str, str]] = {
    "depend": "qsub -W depend=TYPE:JOB",
    "queuejob": "qdel, for a job that is not to wait",
}

REFUSED: Final[Mapping[str, str]] = {**_ELSEWHERE, **_OTHERWISE}
"""Names of restrictions that the plan cannot follow, and what to use instead."""

_LIMIT: Final = "a limit that the server or the node daemon enforces"
_LAUNCH: Final = "how the job's processes are started on its nodes"
_AFTER: Final = "what happens to the job after its start"
_DESCRIPTION: Final = "a description"
_GRANT: Final = "it asks for preference and keeps the job from no node"

HARMLESS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            *("cput", "pcput", "file", "nice", "maxmem", "cpupercent", "mppt", "pmppt", "mppmem", "mpptime"),
            *("pf", "ppf", "sds", "psds", "srfs_tmp", "srfs_big", "srfs_fast", "srfs_assist"),
        ),
        _LIMIT,
    ),
    **dict.fromkeys(("prologue", "epilogue", "cpuclock", "taskdistpolicy", "stagein"), _LAUNCH),
    **dict.fromkeys(
        (
            *("signal", "termsig", "termtime", "trig", "loglevel", "minpreempttime", "retrycount", "retrycc"),
            *("wcrequeue", "resfailpolicy", "jobrejectpolicy", "mstageout", "ttc"),
        ),
        _AFTER,
    ),
    **dict.fromkeys(
        ("jgroup", "gattr", "var", "tid", "sid", "rmtype", "other", "mstagein", "moabstagein"), _DESCRIPTION
    ),
    "software": "a description, unless the site counts a licence of that name: then it is obeyed",
    **dict.fromkeys(("spriority", "pref", "nallocpolicy"), _GRANT),
    **dict.fromkeys(
        ("nodesetdelay", "nodesetisoptional"), "the job waits for one set of nodes, which is stricter"
    ),
}
"""Names that restrict neither where nor when a job runs, with the reason: the job's notes name them."""

_READ_AS_EXTENSIONS: Final = frozenset(
    {"deadline", "cost_limit", "advres", "flags", "jobflags", "work_units", "work_rate", "work_app"}
)
"""Names that their parsers also accept as extensions."""


def plain_names(resources: Mapping[str, str]) -> Mapping[str, str]:
    """Return the resources, with known extensions (``x.feature``) under their plain names.

    Lists of generic resources are joined. Raises RequestError for any other name with two values.
    """
    if not any(name.startswith("x.") for name in resources):
        return resources
    found = {name: value for name, value in resources.items() if not _plain(name)}
    given = {name.lower(): name for name in found}
    for name, value in resources.items():
        plain = _plain(name)
        if not plain:
            continue
        own = given.get(plain)
        if own is None:
            found[plain] = value
        elif plain == "gres":
            found[own] = f"{found[own]}%{value}"
        elif found[own].strip().lower() != value.strip().lower():
            raise Span.from_text(f"x={plain}:{value}").error(
                f"-W x={plain} and -l {plain}={found[own]} contradict each other", "one of them"
            )
    return found


def _plain(name: str) -> str:
    """The plain name of a known extension; empty for all else."""
    plain = name[2:].lower() if name.startswith("x.") else ""
    known = plain in OBEYED or plain in REFUSED or plain in HARMLESS
    return plain if known and plain not in _READ_AS_EXTENSIONS else ""


def refuse_unplanned(requested: RequestedResources) -> None:
    """Raise RequestError for a request that the plan cannot follow and that restricts where or when."""
    for name in requested.names:
        if name in ("l_request", "lprocs") or name.startswith("req_information"):
            raise requested.span_with_name(name).error(
                "a request by tasks (qsub -L) has another form", "tasks=N:lprocs=C:memory=M:gpus=G"
            )
        if name in _OTHERWISE:
            raise _error(requested, name, "and without it the job would not wait for what it names")
        if name in _ELSEWHERE:
            raise _error(requested, name, "and without it the job would run elsewhere")


def _error(requested: RequestedResources, name: str, why: str) -> RequestError:
    default = requested.defaults.get(name)
    by_default = default is not None and requested.own.get(name, default) == default
    source = " (a default of its queue or of the server)" if by_default else ""
    remedy = _tasks_per_node(requested, name) if name in ("tpn", "taskspn") else REFUSED[name]
    return requested.span_with_name(name).error(f"{name}={source} is not planned, {why}", remedy)


def _tasks_per_node(requested: RequestedResources, name: str) -> str:
    """The form that says the same as ``procs=8,tpn=4``: ``nodes=2:ppn=4``."""
    tasks = requested.values[name].rstrip("+")
    procs = requested.values.get("procs", "")
    if tasks.isdecimal() and procs.isdecimal() and len(tasks + procs) < 12 and int(tasks):
        whole, rest = divmod(int(procs), int(tasks))
        parts = [f"{whole}:ppn={int(tasks)}"] if whole else []
        parts += [f"1:ppn={rest}"] if rest else []
        if parts:
            return f"nodes={'+'.join(parts)}"
    return f"nodes=N:ppn={tasks} for {tasks} tasks on each of N nodes" if tasks.isdecimal() else _CORES
