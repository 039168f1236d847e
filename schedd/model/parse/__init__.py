"""Readers of the servers' resource requests; their meaning is set out in ``docs/requests.md``."""

from schedd.model.parse.asked import resource_list
from schedd.model.parse.errors import RequestError
from schedd.model.parse.openpbs import parse_openpbs
from schedd.model.parse.render import canonical, openpbs_select, torque_nodes
from schedd.model.parse.torque import parse_torque
from schedd.model.parse.units import format_size, format_walltime, parse_size, parse_walltime

__all__ = [
    "RequestError",
    "canonical",
    "format_size",
    "format_walltime",
    "openpbs_select",
    "parse_openpbs",
    "parse_size",
    "parse_torque",
    "parse_walltime",
    "resource_list",
    "torque_nodes",
]
