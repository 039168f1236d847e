"""What replies of both families carry, as frozen values."""

from dataclasses import dataclass

from server_adapter.dis import Attribute


@dataclass(frozen=True, slots=True)
class SelectedJobs:
    """Ids of the jobs that were selected."""

    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StatusObject:
    """One object of a status reply; `object_type` is its family's `ObjectType`."""

    object_type: int
    name: str
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """The objects that a status request asked for, or one part of them."""

    objects: tuple[StatusObject, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A message; with a code other than 0 it explains the refusal."""

    message: str


@dataclass(frozen=True, slots=True)
class Location:
    """The server that has the job."""

    server: str
