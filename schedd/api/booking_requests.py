"""Terms of a booking, at one cluster or of a federation."""

from collections.abc import Mapping
from typing import Annotated, Final

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, model_validator

from schedd.api.request_bodies import RequestText, Resources
from schedd.dialect import RequestError, format_walltime, resource_list
from schedd.dialect.moldable import lists_alternatives, read_alternatives
from schedd.wire.object_names import OBJECT_NAME

_TIME_END: Final = 1 << 36
_LEAST_S: Final = 60
_MOST_S: Final = 366 * 86_400
OptionalTime = Annotated[int | None, Field(ge=0, lt=_TIME_END)]
BookingKey = Annotated[
    str,
    Path(
        description="The booking's name. Operators add `~OWNER` if several users have a booking of "
        "this name.",
        pattern=rf"^{OBJECT_NAME.pattern}(~[^/~\s]{{1,255}})?$",
        examples=["review"],
    ),
]
BookingName = Annotated[
    str,
    Path(
        description="The booking's name, chosen by its creator: letters, digits, '.', '_' and '-'.",
        pattern=f"^{OBJECT_NAME.pattern}$",
        examples=["review"],
    ),
]


class BookingTerms(BaseModel):
    """Resources, duration and window. With a `start` it must begin then; with a `deadline` alone it may begin
    at any time that lets it end by then; with `ready` and `deadline`, within that window.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"request": "nodes=2:ppn=4", "duration": 7200, "deadline": 4_000_000_000},
                {"request": "procs=64", "duration": 3600, "start": 4_000_000_000},
                {"request": "trl=64@3600:32@7200", "deadline": 4_000_000_000},
            ]
        },
    )

    request: RequestText = None
    resources: Resources = None
    duration: Annotated[
        int | None,
        Field(
            description="Seconds. Left out if the request has alternatives, each with a length of its own "
            "(`trl=8@1800:4@3600`): the one that ends first is booked.",
            ge=_LEAST_S,
            le=_MOST_S,
        ),
    ] = None
    start: Annotated[OptionalTime, Field(description="It begins at this second, and no other.")] = None
    ready: Annotated[
        OptionalTime, Field(description="It begins then or later; without it, now or later.")
    ] = None
    deadline: Annotated[OptionalTime, Field(description="It is over by then.")] = None
    freeze: Annotated[
        int,
        Field(
            description="Percentage of its wait during which it may be moved within its window.",
            ge=0,
            le=100,
        ),
    ] = 50
    account: Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    owner: Annotated[
        str,
        Field(
            description="The owner. Only an operator, an admin or a federation may name another user.",
            max_length=200,
            pattern=r"^[^\x00-\x1f\x7f]*$",
        ),
    ] = ""

    @model_validator(mode="after")
    def _check_window(self) -> "BookingTerms":
        if (self.request is None) == (self.resources is None):
            raise ValueError("give either request or resources")
        if self.start is not None and (self.ready is not None or self.deadline is not None):
            raise ValueError("start excludes ready and deadline: give start alone, or ready and deadline")
        if self.start is None and self.deadline is None:
            raise ValueError("say when: start, or deadline (and ready)")
        try:
            resources = self.requested_resources
        except RequestError as error:
            raise ValueError(error.comment) from None
        if lists_alternatives(resources):
            self._check_alternatives(resources)
        elif self.duration is None:
            raise ValueError("say how long: duration")
        return self

    def _check_alternatives(self, resources: Mapping[str, str]) -> None:
        if self.duration is not None:
            raise ValueError("each alternative of trl has its own length: leave duration out")
        lengths = [int(one["walltime"]) for one in read_alternatives(resources)]
        if not lengths:
            raise ValueError("trl: write tasks@seconds, up to 16 of them: trl=8@1800:4@3600")
        if min(lengths) < _LEAST_S or max(lengths) > _MOST_S:
            raise ValueError(f"trl: each length must be between {_LEAST_S} and {_MOST_S} s")

    @property
    def longest(self) -> int:
        """Seconds: the duration, or the length of the longest alternative."""
        return max(self._lengths())

    @property
    def shortest(self) -> int:
        """Seconds: the duration, or the length of the shortest alternative."""
        return min(self._lengths())

    def _lengths(self) -> list[int]:
        if self.duration is not None:
            return [self.duration]
        return [int(one["walltime"]) for one in read_alternatives(self.requested_resources)]

    @property
    def requested_resources(self) -> dict[str, str]:
        """Amounts by resource; ``walltime`` is the duration, if there is one. Raises RequestError."""
        found = resource_list(self.request) if self.request is not None else dict(self.resources or {})
        found = {name: value for name, value in found.items() if name.lower() != "walltime"}
        return found | ({} if self.duration is None else {"walltime": format_walltime(self.duration)})


class OptionChoice(BaseModel):
    """Which counter-offer is taken."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"option": 1}]})

    option: Annotated[int, Field(description="Its number, from 1 on.", ge=1, le=100)]
