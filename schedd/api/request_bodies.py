"""Bodies of requests: events, questions, reservations, planning holds, a reason to pause."""

from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from schedd.api.event_bounds import MAX_NAME_LENGTH
from schedd.dialect import Family, RequestError, depend_fault, resource_list
from schedd.dialect.array_request import ArrayRequest, parse_array_request
from schedd.dialect.partition import replace_resource
from schedd.engine import BOOKING, HYPOTHETICAL
from schedd.wire import AdapterEvent, JobFacts
from schedd.wire.bounds import TIME_END
from schedd.wire.job_extensions import extension_resources


class DeliveryBody(BaseModel):
    """Events in the order in which they happened.

    Each has an ``id`` chosen by the sender, which stays the same in repeated deliveries: an event is handled
    once.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "events": [
                        {
                            "type": "node_changed",
                            "id": "e1:1",
                            "time": 1_700_000_000,
                            "node": {"name": "n1", "cpus": 16, "mem": 67_108_864},
                        },
                        {
                            "type": "job_queued",
                            "id": "e1:2",
                            "time": 1_700_000_000,
                            "job": {
                                "id": "123.server",
                                "owner": "ann@login1",
                                "queue": "batch",
                                "submitted": 1_700_000_000,
                                "resources": {"nodes": "1:ppn=4", "mem": "8gb", "walltime": "01:00:00"},
                            },
                        },
                    ]
                }
            ]
        }
    )

    events: Annotated[
        tuple[Annotated[AdapterEvent, Field(discriminator="type")], ...],
        Field(description="At most 100,000.", max_length=100_000),
    ]


_Reason = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]+$",
        description="Shown to all users, and in the log.",
        examples=["storage is being repaired"],
    ),
]


class HoldRequest(BaseModel):
    """Why nothing new is to be planned on a node, or of a queue."""

    model_config = ConfigDict(extra="forbid")

    reason: _Reason


class PauseRequest(BaseModel):
    """Why no jobs are to be started."""

    model_config = ConfigDict(extra="forbid")

    reason: _Reason


_NameList = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)], ...], Field(max_length=20_000)
]


class ReservationRequest(BaseModel):
    """Nodes to be kept free, or some of their cores: those named, those with all of these features, or all.

    Jobs of the users, groups, accounts and queues named here may use them as if they were not reserved.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"nodes": ["n1"], "end": 4_000_000_000, "reason": "new memory"},
                {"everywhere": True, "start": 3_999_990_000, "end": 4_000_000_000, "reason": "new switch"},
                {"features": ["lab"], "cores": 2, "shorter": 1800, "reason": "short jobs"},
            ]
        },
    )

    nodes: Annotated[
        _NameList, Field(description="By name, range `n[001-020]`, pattern `gpu*`, property or state.")
    ] = ()
    features: Annotated[_NameList, Field(description="Nodes that have all of these.")] = ()
    everywhere: Annotated[bool, Field(description="All nodes.")] = False
    start: Annotated[
        int | None, Field(description="Seconds since the epoch; without it, now.", ge=0, lt=TIME_END)
    ] = None
    end: Annotated[int | None, Field(description="Without it, until it is lifted.", ge=0, lt=TIME_END)] = None
    reason: Annotated[
        str,
        Field(
            description="Shown to all users.",
            max_length=200,
            pattern=r"^[^\x00-\x1f\x7f]*$",
            examples=["x"],
        ),
    ] = ""
    users: Annotated[_NameList, Field(description="May use the nodes.")] = ()
    groups: Annotated[_NameList, Field(description="May use the nodes.")] = ()
    accounts: Annotated[_NameList, Field(description="May use the nodes.")] = ()
    queues: Annotated[_NameList, Field(description="Their jobs may use the nodes.")] = ()
    shorter: Annotated[
        int,
        Field(
            description="Jobs with a walltime up to this, in seconds, may use the nodes; 0: no such "
            "exception.",
            ge=0,
            le=366 * 86_400,
        ),
    ] = 0
    cores: Annotated[
        int,
        Field(description="Only so many cores of each node; 0: the nodes.", ge=0, le=10_000_000),
    ] = 0
    gpus: Annotated[int, Field(description="Only so many gpus of each node.", ge=0, le=10_000_000)] = 0
    mem: Annotated[
        int, Field(description="Only so many KiB of the memory of each node.", ge=0, le=1 << 40)
    ] = 0
    total: Annotated[
        bool, Field(description="`cores`, `gpus` and `mem` are those of all these nodes together.")
    ] = False

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        if not (self.nodes or self.features or self.everywhere):
            raise ValueError("name nodes or features, or say everywhere")
        if self.total and not (self.cores or self.gpus or self.mem):
            raise ValueError("total is for a reservation of cores, gpus or memory: name an amount")
        return self


Resources = Annotated[
    dict[str, str] | None,
    Field(description="The same name by name, as in Resource_List.", min_length=1, max_length=200),
]
RequestText = Annotated[
    str | None, Field(description="As `qsub -l` takes it.", max_length=10_000, min_length=1)
]


class _ResourceRequest(BaseModel):
    """What a job asks for: in the words of `qsub -l`, or name by name."""

    request: RequestText = None
    resources: Resources = None

    @field_validator("request")
    @classmethod
    def _check_readable(cls, request: str | None) -> str | None:
        if request is not None:
            try:
                resource_list(request)
            except RequestError as error:
                raise ValueError(error.comment) from None
        return request

    @field_validator("resources")
    @classmethod
    def _check_lengths(cls, resources: dict[str, str] | None) -> dict[str, str] | None:
        for name, value in (resources or {}).items():
            if len(name) > 200 or len(value) > 10_000:
                raise ValueError(
                    f"{name[:40]!r} is too long: a name has at most 200, a value 10000 characters"
                )
        return resources

    @property
    def requested_resources(self) -> dict[str, str]:
        """Name by name, however it was given."""
        return resource_list(self.request) if self.request is not None else dict(self.resources or {})


class WhatIfVariant(_ResourceRequest):
    """The same job with parts of its request replaced; an empty value removes one."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="after")
    def _check_request_form(self) -> Self:
        if (self.request is None) == (self.resources is None):
            raise ValueError("give either request or resources")
        return self


class WhatIfRequest(_ResourceRequest):
    """A job that is not submitted yet, or one in the queue that might ask for something else."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"request": "nodes=2:ppn=4,mem=8gb,walltime=01:00:00"},
                {"request": "select=2:ncpus=4:mem=8gb,place=scatter,walltime=01:00:00"},
                {"resources": {"nodes": "1:ppn=4", "walltime": "3600"}, "queue": "batch"},
                {
                    "request": "nodes=1:ppn=4,walltime=01:00:00",
                    "variants": [{"request": "walltime=00:20:00"}, {"request": "nodes=1:ppn=2"}],
                    "windows": 5,
                    "changes": True,
                },
                {
                    "request": "nodes=1:ppn=4,walltime=01:00:00",
                    "queue": "batch",
                    "array": "1-100%10",
                    "depend": "afterok:123",
                    "start_by": 4_000_000_000,
                    "changes": True,
                },
            ]
        },
    )

    job: Annotated[
        str | None,
        Field(
            description="A queued job: the question is about its request.",
            max_length=512,
            min_length=1,
        ),
    ] = None
    family: Annotated[
        Family | None, Field(description="Syntax of the request; default: OpenPBS's if there is a `select`.")
    ] = None
    queue: Annotated[str, Field(description="Its defaults count.", max_length=200)] = ""
    not_before: Annotated[
        int | None, Field(description="As `qsub -a`: seconds since the epoch.", ge=0, lt=TIME_END)
    ] = None
    start_by: Annotated[
        int | None,
        Field(
            description="A wish: seconds since the epoch. The answer has `start_late_by`, and `changes` are "
            "those that let it start by then.",
            ge=0,
            lt=TIME_END,
        ),
    ] = None
    array: Annotated[
        str,
        Field(
            description="As `qsub -t` or `qsub -J`: a job array of such jobs, `1-100` or `1-100%5` with a "
            "slot limit.",
            max_length=2_000,
        ),
    ] = ""
    depend: Annotated[
        str,
        Field(description="As `qsub -W depend=`: `afterok:123:124`.", max_length=10_000),
    ] = ""
    rerunnable: Annotated[bool, Field(description="False: as `qsub -r n`.")] = True
    owner: Annotated[
        str,
        Field(
            description="Owner of the hypothetical job, whose limits and permissions apply: by default the "
            "caller, if it is a user. Only callers that see all jobs may name other users.",
            max_length=200,
        ),
    ] = ""
    group: Annotated[
        str,
        Field(
            description="As `qsub -W group_list=`; by default the group of the owner's latest job.",
            max_length=200,
        ),
    ] = ""
    account: Annotated[str, Field(description="As `qsub -A`.", max_length=200)] = ""
    project: Annotated[str, Field(description="As `qsub -P` of OpenPBS.", max_length=200)] = ""
    extensions: Annotated[
        str, Field(description="As `qsub -W x=` of TORQUE: `QOS:high;PARTITION:a`.", max_length=2_000)
    ] = ""
    bookings: Annotated[
        tuple[str, ...],
        Field(description="Bookings of the caller whose cores count as free.", max_length=100),
    ] = ()
    for_booking: Annotated[
        bool, Field(description="The question is about cores to book: the walltime holds on all nodes.")
    ] = False
    variants: Annotated[
        tuple[WhatIfVariant, ...], Field(description="Each is answered, too.", max_length=20)
    ] = ()
    expected: Annotated[
        bool, Field(description="Whether the expected start is wanted: without it the answer comes sooner.")
    ] = True
    windows: Annotated[int, Field(description="Maximum number of start windows.", ge=0, le=100)] = 0
    changes: Annotated[
        bool,
        Field(
            description="Whether the smallest changes are wanted that let it start at once, or by `start_by`."
        ),
    ] = False
    sooner: Annotated[
        bool,
        Field(
            description="Whether `sooner_changes` are wanted: the smallest for a start before the planned."
        ),
    ] = False
    cheapest_by: Annotated[
        int | None,
        Field(
            description="Where it would cost least by the site's prices, if it is to end by this second.",
            ge=0,
            lt=TIME_END,
        ),
    ] = None
    tasks: Annotated[
        tuple[Annotated[int, Field(ge=1, le=100_000)], ...],
        Field(
            description="Numbers of such jobs, ascending: for each number, when all of them would "
            "have ended.",
            max_length=100,
        ),
    ] = ()

    @field_validator("tasks")
    @classmethod
    def _check_ascending(cls, tasks: tuple[int, ...]) -> tuple[int, ...]:
        if any(one >= other for one, other in pairwise(tasks)):
            raise ValueError("the numbers must ascend")
        return tasks

    @field_validator("array")
    @classmethod
    def _check_array(cls, array: str) -> str:
        if array:
            try:
                parse_array_request(array)
            except RequestError as error:
                raise ValueError(error.comment) from None
        return array

    @field_validator("depend")
    @classmethod
    def _check_depend(cls, depend: str) -> str:
        if depend and (wrong := depend_fault(depend)):
            raise ValueError(wrong)
        return depend

    @model_validator(mode="after")
    def _check_subject(self) -> Self:
        if sum(one is not None for one in (self.request, self.resources, self.job)) != 1:
            raise ValueError("give exactly one of request, resources and job")
        if self.job is not None and (
            self.family is not None
            or self.queue
            or self.owner
            or self.not_before is not None
            or self.array
            or self.depend
            or self.group
            or self.account
            or self.project
            or self.extensions
            or not self.rerunnable
            or self.for_booking
        ):
            raise ValueError(
                "family, queue, owner, group, account, project, extensions, not_before, array, depend and "
                "rerunnable are taken from the job, and for_booking is about no job"
            )
        return self

    def facts(self, now: int, job: JobFacts | None, variant: WhatIfVariant | None = None) -> JobFacts:
        """The job, or this variant of it, as if it came at ``now``; ``job`` is the one in the queue."""
        resources = dict(job.resources) if job is not None else self.requested_resources
        if self.extensions:
            resources = {**extension_resources(self.extensions), **resources}
        for name, value in (variant.requested_resources if variant is not None else {}).items():
            replace_resource(resources, name, value)
        if job is not None:
            return replace(job, resources=resources, state="Q", holds="", depend="")
        return JobFacts(
            id=BOOKING + HYPOTHETICAL if self.for_booking else HYPOTHETICAL,
            owner=self.owner,
            group=self.group,
            account=self.account,
            project=self.project,
            queue=self.queue,
            submitted=now,
            family=self.family or ("openpbs" if "select" in resources else "torque"),
            resources=resources,
            not_before=self.not_before,
            rerunnable=self.rerunnable,
            **self._array_fields(),
        )

    def _array_fields(self) -> dict[str, Any]:
        request = self.array_request
        if request is None or request.slot_limit is None:
            return {}
        return {"array": "what-if[]", "slot_limit": request.slot_limit}

    @property
    def array_request(self) -> ArrayRequest | None:
        """The job array; None: a single job."""
        return parse_array_request(self.array) if self.array else None
