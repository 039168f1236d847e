"""Job arrays: for waiting subjobs the server returns only indices; in the plan each is a job."""

from collections.abc import Iterable

from server_adapter.batch.status_objects import DescribedObject
from server_adapter.openpbs.notation import indices, subjob


def expand_arrays(jobs: Iterable[DescribedObject]) -> list[DescribedObject]:
    """Return the jobs, arrays replaced by their waiting subjobs; running ones are listed."""
    found: list[DescribedObject] = []
    for job in jobs:
        if job.values.get("array") != "True":
            found.append(job)
            continue
        remaining = job.values.get("array_indices_remaining", "-")
        if job.values.get("job_state") not in ("Q", "B", "H", "W") or remaining in ("", "-"):
            continue
        state = "Q" if job.values["job_state"] == "B" else job.values["job_state"]
        # One shared dictionary: the attributes of all waiting subjobs are equal.
        values = {**job.values, "job_state": state, "array_id": job.name}
        for name in ("array", "array_indices_remaining", "run_count", "stime", "exec_vnode"):
            values.pop(name, None)
        found += [
            DescribedObject(job.object_type, subjob(job.name, one), values) for one in indices(remaining)
        ]
    return found
