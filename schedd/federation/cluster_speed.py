"""Requests in the time of one cluster: run times and walltimes divided by the cluster's speed.

A request names its walltime for a cluster of speed 1. Each question and each job goes to a cluster with the
walltime that it needs there. The cluster's plan then answers in its own time, also for several waves of
tasks.
"""

from collections.abc import Mapping

from schedd.dialect import RequestError, format_walltime, parse_walltime
from schedd.dialect.moldable import scale_alternatives
from schedd.dialect.units import TIME_RESOURCES
from schedd.dialect.walltime_scale import scale_seconds


def scale_resources(resources: Mapping[str, str], speed: float) -> dict[str, str]:
    """Return the resources with each time limit as it is needed at a cluster of this speed.

    A request without a walltime stays without one: the cluster's own default applies.
    """
    found = dict(resources)
    if speed == 1.0:
        return found
    for name, text in resources.items():
        if name.lower() in TIME_RESOURCES:
            try:
                found[name] = format_walltime(scale_seconds(parse_walltime(text), speed))
            except RequestError:
                continue  # the cluster reports the invalid value
    return scale_alternatives(found, lambda seconds: scale_seconds(seconds, speed))
