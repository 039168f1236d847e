"""The three answers to "when will my job start": known, waiting for something, never."""

from dataclasses import dataclass

from schedd.model.placement import Placement
from schedd.start_sentence import NEVER


@dataclass(frozen=True, slots=True)
class StartKnown:
    """The plan holds a start for the job."""

    placement: Placement


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """An event with unknown time must happen first.

    ``kind`` is one of ``hold``, ``time``, ``node``, ``queue``, ``dependency``, ``server``, ``pool``; ``what``
    describes it.
    """

    kind: str
    what: str


@dataclass(frozen=True, slots=True)
class Never:
    """No start on this cluster as configured, whatever the state of its nodes.

    ``requirement`` is the first requirement that nothing can meet, in the user's words.
    """

    requirement: str

    def __str__(self) -> str:
        """The answer as a separate line, as in a job's comment."""
        return f"{NEVER}: {self.requirement}"


Answer = StartKnown | WaitingFor | Never
