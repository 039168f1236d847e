"""Index of job ids by number, for ids without the server's name."""


class JobNumbers:
    """Ids in use by number: `123` finds `123.server` and `123[].server`.

    One thread writes; any thread may read.
    """

    def __init__(self) -> None:
        self._ids: dict[str, tuple[str, ...]] = {}

    def copy(self) -> "JobNumbers":
        """The same ids, for a copy of the engine."""
        new = JobNumbers()
        new._ids = dict(self._ids)
        return new

    def add(self, job_id: str) -> None:
        """An id is in use, perhaps known already."""
        number = _number(job_id)
        known = self._ids.get(number, ())
        if job_id not in known:
            self._ids[number] = (*known, job_id)

    def drop(self, job_id: str) -> None:
        """It is not in use any more."""
        number = _number(job_id)
        left = tuple(one for one in self._ids.get(number, ()) if one != job_id)
        if left:
            self._ids[number] = left
        else:
            self._ids.pop(number, None)

    def near(self, wanted: str) -> tuple[str, ...]:
        """The ids with the number of ``wanted``, those first that came first."""
        return self._ids.get(_number(wanted), ())

    @property
    def count(self) -> int:
        """How many ids are in use."""
        return sum(map(len, self._ids.values()))


def _number(job_id: str) -> str:
    return job_id.partition(".")[0].removesuffix("[]")
