"""Job arrays: of the queued subjobs the server tells their indices alone; each is a job for the plan."""

from collections.abc import Iterable, Iterator

from server_adapter.batch.described import Described

_MOST = 1_000_000  # subjobs of one array


def indices(text: str) -> Iterator[int]:
    """The numbers of `1,3-5,7-11:2`. Raises ValueError."""
    for part in text.split(","):
        bounds, colon, step = part.partition(":")
        first, dash, last = bounds.partition("-")
        low = int(first)
        high = int(last) if dash else low
        if high - low > _MOST:
            raise ValueError(f"not a list of indices: {text!r}")
        yield from range(low, high + 1, int(step) if colon else 1)


def subjob(array: str, index: int) -> str:
    """`5018[3].vm` of `5018[].vm`."""
    return array.replace("[]", f"[{index}]", 1)


def parent(job: str) -> str:
    """`5018[].vm` of `5018[3].vm`; the same of a job that is in no array."""
    head, bracket, rest = job.partition("[")
    return f"{head}[]{rest.partition(']')[2]}" if bracket else job


def expanded(jobs: Iterable[Described]) -> list[Described]:
    """The jobs with each array in the place of which stand its queued subjobs; those that run are listed."""
    found: list[Described] = []
    for job in jobs:
        if job.values.get("array") != "True":
            found.append(job)
            continue
        remaining = job.values.get("array_indices_remaining", "-")
        if job.values.get("job_state") not in ("Q", "B", "H", "W") or remaining in ("", "-"):
            continue
        state = "Q" if job.values["job_state"] == "B" else job.values["job_state"]
        # One dictionary for all of them: what they say is the same.
        values = {**job.values, "job_state": state, "array_id": job.name}
        for name in ("array", "array_indices_remaining", "run_count", "stime", "exec_vnode"):
            values.pop(name, None)
        found += [Described(job.object_type, subjob(job.name, one), values) for one in indices(remaining)]
    return found
