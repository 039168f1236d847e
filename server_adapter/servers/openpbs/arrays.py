"""Job arrays: for waiting subjobs the server returns only indices; in the plan each is a job."""

import logging
from collections.abc import Iterable
from dataclasses import replace

from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.facts import Values
from server_adapter.openpbs.notation import index_ranges, subjob

_log = logging.getLogger(__name__)

INDICES = ("array_indices_submitted", "array_indices_remaining")
"""Attributes from which the waiting subjobs of an array are read."""
_LIMIT = "max_run_subjobs"


def expand_arrays(
    jobs: Iterable[DescribedObject], unknown: dict[str, str] | None = None
) -> list[DescribedObject]:
    """Return the jobs, arrays replaced by their waiting subjobs; running ones are listed, and get the limit
    that only their array has.

    Arrays whose waiting subjobs cannot be read are left out, and put into ``unknown`` with the reason.
    """
    jobs = list(jobs)
    limits = {job.name: job.values[_LIMIT] for job in jobs if _LIMIT in job.values}
    found: list[DescribedObject] = []
    for job in jobs:
        if job.values.get("array") != "True":
            limit = limits.get(job.values.get("array_id", "")) if limits else None
            found.append(job if limit is None else replace(job, values={**job.values, _LIMIT: limit}))
            continue
        try:
            waiting = waiting_indices(job.values)
        except ValueError as error:
            if unknown is None:
                _log.warning("the waiting subjobs of %s are not known: %s", job.name, error)
            else:
                unknown[job.name] = str(error)
            continue
        if job.values.get("job_state") not in ("Q", "B", "H", "W") or not waiting:
            continue
        state = "Q" if job.values["job_state"] == "B" else job.values["job_state"]
        # One shared dictionary: the attributes of all waiting subjobs are equal.
        values = {**job.values, "job_state": state, "array_id": job.name}
        for name in ("array", *INDICES, "run_count", "stime", "exec_vnode"):
            values.pop(name, None)
        found += [DescribedObject(job.object_type, subjob(job.name, one), values) for one in waiting]
    return found


def waiting_indices(array: Values) -> list[int]:
    """Return the indices of the waiting subjobs of an array. Raises ValueError.

    A server (cd7ab5edaf) lists index 21 as waiting when the last subjob of `1-20:4` has started, so indices
    that were not submitted are left out.
    """
    remaining = array.get("array_indices_remaining", "-")
    if remaining in ("", "-"):
        return []
    submitted = list(index_ranges(array.get("array_indices_submitted", remaining).partition("%")[0]))
    found: list[int] = []
    for part in index_ranges(remaining):
        found += [one for one in part if any(one in whole for whole in submitted)]
    return found
