"""Parsers of PBS strings and codes: requests, holds, dependencies, return codes, accounting records.

Both families of servers. The meaning of requests is specified in ``docs/reference/requests.md``.
"""

from schedd.dialect.depend import Condition, Until, conditions, depend_fault, own_conditions
from schedd.dialect.errors import RequestError
from schedd.dialect.family import (
    DIALECTS,
    KILLED,
    DescribedRequest,
    Dialect,
    Family,
    Site,
    find_dialect,
    request_family,
)
from schedd.dialect.holds import Hold, holds_in
from schedd.dialect.openpbs import is_shrinkable, parse_openpbs
from schedd.dialect.render import canonical, openpbs_select, request_words, torque_nodes
from schedd.dialect.requested_resources import resource_list
from schedd.dialect.sharing import NodeKind, node_kinds
from schedd.dialect.torque import parse_torque
from schedd.dialect.units import format_size, format_walltime, parse_size, parse_walltime

__all__ = [
    "DIALECTS",
    "KILLED",
    "Condition",
    "DescribedRequest",
    "Dialect",
    "Family",
    "Hold",
    "NodeKind",
    "RequestError",
    "Site",
    "Until",
    "canonical",
    "conditions",
    "depend_fault",
    "find_dialect",
    "format_size",
    "format_walltime",
    "holds_in",
    "is_shrinkable",
    "node_kinds",
    "openpbs_select",
    "own_conditions",
    "parse_openpbs",
    "parse_size",
    "parse_torque",
    "parse_walltime",
    "request_family",
    "request_words",
    "resource_list",
    "torque_nodes",
]
