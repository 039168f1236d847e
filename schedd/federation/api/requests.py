"""Request bodies of a federation: a job, a bag of tasks, a component of a co-allocation."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from schedd.dialect import (
    RequestError,
    format_walltime,
    parse_openpbs,
    parse_torque,
    parse_walltime,
    request_family,
    resource_list,
)
from schedd.dialect.moldable import read_alternatives
from schedd.federation.bags.offers import SharingRule
from schedd.federation.routing.jobs import count_array_tasks
from schedd.model import Request
from schedd.wire import TRANSFER_ATTRIBUTES

_DEFAULT_WALLTIME_S: Final = 3600
_MAX_ARRAY_TASKS: Final = 100_000
TextMap = Annotated[dict[str, str], Field(max_length=500)]


class FederatedRequest(BaseModel):
    """Requested resources of a job, as in `qsub -l` or by name."""

    model_config = ConfigDict(extra="forbid")

    request: Annotated[str | None, Field(min_length=1, max_length=10_000)] = None
    resources: TextMap | None = None
    queues: Annotated[TextMap, Field(description="Queue of each cluster.")] = {}
    clusters: Annotated[
        tuple[str, ...], Field(description="Only these clusters may be used.", max_length=1_000)
    ] = ()
    owner: Annotated[str, Field(description="Only an admin may name another user.", max_length=200)] = ""

    @model_validator(mode="after")
    def _check_request(self) -> "FederatedRequest":
        if (self.request is None) == (self.resources is None):
            raise ValueError("give either request or resources")
        try:
            parse_request(self.requested_resources)
        except RequestError as error:
            raise ValueError(error.comment) from None
        return self

    @property
    def requested_resources(self) -> dict[str, str]:
        """Return the resources by name, with the walltime in a form that every server accepts
        (not ``90m``).
        """
        found = resource_list(self.request) if self.request is not None else dict(self.resources or {})
        for name in found:
            if name.lower() == "walltime":
                with suppress(RequestError):  # raised again, with its place, when the request is parsed
                    found[name] = format_walltime(parse_walltime(found[name]))
        return found

    @property
    def walltime(self) -> int:
        """Walltime in seconds; an hour if the request has none."""
        return parse_request(self.requested_resources).walltime or _DEFAULT_WALLTIME_S

    @property
    def cpu_seconds(self) -> int:
        """Requested cores multiplied by the walltime."""
        return parse_request(self.requested_resources).cpus * self.walltime


class FederatedJobRequest(FederatedRequest):
    """A job, or with ``array`` a job array; the request is for one task."""

    array: Annotated[
        str,
        Field(
            description="First and last index of a job array. The array runs as a whole on one cluster and "
            "does not move; its end is that of its last task.",
            pattern=r"^([0-9]{1,9}-[0-9]{1,9})?$",
            examples=["0-99"],
        ),
    ] = ""

    @model_validator(mode="after")
    def _check_array(self) -> "FederatedJobRequest":
        if self.array and not 0 < count_array_tasks(self.array) <= _MAX_ARRAY_TASKS:
            raise ValueError(
                f"array {self.array}: the last index must not be before the first, and an array has at "
                f"most {_MAX_ARRAY_TASKS} tasks"
            )
        return self

    @property
    def cpu_seconds(self) -> int:
        return super().cpu_seconds * max(1, count_array_tasks(self.array))


class FederatedWhatIf(FederatedJobRequest):
    """A job that is not submitted yet."""

    deadline: Annotated[
        int | None, Field(description="Deadline of its end, in seconds since the epoch.", ge=0, lt=1 << 36)
    ] = None


class BagRequest(FederatedRequest):
    """A bag of equal tasks that should all end by ``deadline``; the request is for one task."""

    tasks: Annotated[int, Field(ge=1, le=100_000)]
    deadline: Annotated[int, Field(ge=0, lt=1 << 36)]
    balance: SharingRule = SharingRule.NONE


class JobScript(BaseModel):
    """Script of a job, and the options of its submission."""

    model_config = ConfigDict(extra="forbid")

    script: Annotated[str, Field(min_length=1, max_length=1 << 20, pattern=r"^[^\x00]+$")]
    attributes: TextMap = {}
    variables: TextMap = {}
    key: Annotated[
        str,
        Field(
            description="Idempotency key, chosen by the sender: a request with the same key is the same job.",
            max_length=200,
        ),
    ] = ""

    @field_validator("attributes")
    @classmethod
    def _check_attributes(cls, words: dict[str, str]) -> dict[str, str]:
        for name in words:
            if name not in TRANSFER_ATTRIBUTES:
                known = ", ".join(sorted(TRANSFER_ATTRIBUTES))
                raise ValueError(f"{name} cannot be transferred; these can: {known}")
        return words


class NewFederatedJob(FederatedJobRequest, JobScript):
    """A job for the federation."""

    data: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=200)], ...],
        Field(
            description="Data sets that it reads: a cluster without them gets a penalty (`routing.fetch`).",
            max_length=100,
        ),
    ] = ()
    deadline: Annotated[
        int | None,
        Field(
            description="Deadline, in seconds since the epoch; it raises the priority under policy `load`.",
            ge=0,
            lt=1 << 36,
        ),
    ] = None
    booking: Annotated[
        str,
        Field(
            description="It runs in this booking of its owner, at the booking's cluster.",
            max_length=63,
            pattern=r"^[A-Za-z0-9._-]*$",
        ),
    ] = ""

    @model_validator(mode="after")
    def _check_booking(self) -> "NewFederatedJob":
        if self.booking and self.clusters:
            raise ValueError("a job in a booking runs at the booking's cluster: leave clusters out")
        if self.booking and self.array:
            raise ValueError("an array cannot run in a booking: leave array or booking out")
        return self


def parse_request(resources: Mapping[str, str]) -> Request:
    """Parse a request in TORQUE's notation, or in OpenPBS's if it has a select; of alternatives, the longest
    one. Raises RequestError.
    """
    if alternatives := read_alternatives(resources):
        return max((parse_request(one) for one in alternatives), key=lambda request: request.walltime or 0)
    return parse_openpbs(resources) if request_family(resources) == "openpbs" else parse_torque(resources)
