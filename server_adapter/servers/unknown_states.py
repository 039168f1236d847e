"""States of nodes and jobs that this version does not know."""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

from server_adapter.batch.status_objects import DescribedObject

_NAMED = 3


def unknown_jobs(jobs: Iterable[DescribedObject], is_known: Callable[[str], bool]) -> dict[str, str]:
    """Return the jobs whose state is not known, with the state."""
    states = ((job.name, job.values.get("job_state", "")) for job in jobs)
    return {name: state for name, state in states if not is_known(state)}


def describe_unknown_states(nodes: Mapping[str, AbstractSet[str]], jobs: Mapping[str, str]) -> str:
    """Return which nodes and jobs have unknown states, in words; empty if none has.

    Such a node gets no new jobs. Such a job keeps its nodes, or waits without a start if it has none.
    """
    found = [f"node {name}: {'+'.join(sorted(states))}" for name, states in nodes.items() if states]
    found += [f"job {name}: {letter or 'none'}" for name, letter in jobs.items()]
    if not found:
        return ""
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"unknown states, so nothing is started there: {', '.join(found[:_NAMED])}{more}"
