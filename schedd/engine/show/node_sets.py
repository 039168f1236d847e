"""Node sets of a job, for views."""

from collections.abc import Collection, Mapping

from schedd.engine.facts.records import JobRecord
from schedd.model import NodeSets, Place
from schedd.wire import NodeFacts


def required_node_sets(record: JobRecord, site: NodeSets | None) -> NodeSets | None:
    """Return the request's node sets, else the site's; None if the job cannot be spread."""
    request = record.understood.request
    if request is None or request.units == 1 or request.place is Place.PACK:
        return None
    return request.together or site


def find_node_sets(
    together: NodeSets, nodes: Mapping[str, NodeFacts], names: Collection[str]
) -> tuple[str, ...]:
    """The sets that nodes of these names are in: one where it has all of them, else all that have any."""
    mine = {name: {name, *nodes[name].properties} if name in nodes else {name} for name in names}
    if together.by:
        prefix = f"{together.by.lower()}="
        named = {
            feature: frozenset({feature})
            for features in mine.values()
            for feature in sorted(features)
            if feature.lower().startswith(prefix)
        }
    else:
        named = dict(together.named)
    for name, features in named.items():
        if all(features & has for has in mine.values()):
            return (name,)
    return tuple(name for name, features in named.items() if any(features & has for has in mine.values()))
