"""Bookkeeping: accounts, fair shares, learned run times, and node statistics.

It follows the allocation or release of a job's resources. An error in it is reported and has no other effect.
"""

from types import TracebackType
from typing import TYPE_CHECKING

from schedd.error_text import describe_error

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState


class Bookkeeping:
    """``with Bookkeeping(state, job_id, "its charge"):`` one step of bookkeeping about a job.

    An error in the step raises an alert that names the step, the job and the error; execution
    continues after the block. Exceptions that are no ``Exception`` (KeyboardInterrupt) pass through.
    """

    __slots__ = ("_job", "_state", "_what")

    def __init__(self, state: "EngineState", job: str, what: str) -> None:
        self._state, self._job, self._what = state, job, what

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return isinstance(error, Exception) and note_failed_bookkeeping(
            self._state, self._job, self._what, error
        )


def note_failed_bookkeeping(state: "EngineState", job: str, what: str, error: Exception) -> bool:
    """Raise an alert about a failed step of bookkeeping. Return whether execution continues."""
    if state.settings.validate_ and isinstance(error, AssertionError):
        return False
    state.diverged[job] = None
    words = f"job {job}: {what} could not be noted: {describe_error(error)}"
    state.alert(state.at_event, "bookkeeping", words, job)
    return True
