"""Takes jobs out of a TORQUE server's routing queues.

A server gives nobody the script of a job: it lies in a file of its own beside the job's record,
``server_priv/jobs/NAME.SC``, where NAME is the attribute ``hashname``, and by default the job's id.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from server_adapter.batch.errors import ServerRefusedError
from server_adapter.bridge.draining import Drained
from server_adapter.bridge.facts import Values
from server_adapter.dis import Attribute
from server_adapter.servers.torque.link import ServerLink
from server_adapter.servers.torque.requests import modify_request
from server_adapter.torque.codes import ManagerCommand, ObjectType, RequestCode
from server_adapter.torque.connection import Connection
from server_adapter.torque.errors import ServerCode
from server_adapter.torque.requests import ManageRequest, StatusRequest

__all__ = ["REQUESTS", "Router"]

REQUESTS: Final = frozenset({RequestCode.HOLD_JOB, RequestCode.RELEASE_JOB, RequestCode.DELETE_JOB})
"""What draining sends beside comments."""
_RESOURCE: Final = "Resource_List."
_DERIVED: Final = frozenset({"neednodes", "nodect"})
_HOLD: Final = "o"


class Router:
    """Looks at routing queues, and moves their jobs out."""

    def __init__(self, link: ServerLink) -> None:
        self._link = link

    async def routed(self, queues: Sequence[str]) -> list[Drained]:
        """The jobs of those of the queues that are routing queues."""
        found: list[Drained] = []
        async with self._link.talk() as connection:
            types = (Attribute("queue_type"),)
            asked = StatusRequest(code=RequestCode.STATUS_QUEUE, attributes=types)
            routing = {
                queue.name
                for queue in await connection.describe(asked)
                if queue.values.get("queue_type", "").lower().startswith("r")
            }
            for queue in queues:
                if queue in routing:
                    jobs = await connection.describe(StatusRequest(code=RequestCode.STATUS_JOB, name=queue))
                    found += (drained(job.name, job.values) for job in jobs)
        return found

    async def keep_back(self, job: str, comment: str) -> Drained | None:
        """See `Drainer`."""
        async with self._link.talk() as connection:
            try:
                await connection.request(modify_request(job, Attribute("comment", comment)))
                await connection.request(_hold(RequestCode.HOLD_JOB, job))
                found = await connection.describe(StatusRequest(code=RequestCode.STATUS_JOB, name=job))
            except ServerRefusedError as error:
                if error.code in (ServerCode.UNKJOBID, ServerCode.BADSTATE):
                    return None
                raise
        return drained(found[0].name, found[0].values) if found else None

    async def give_back(self, job: str, comment: str) -> None:
        """See `Drainer`."""
        async with self._link.talk() as connection:
            await _unless_gone(connection, modify_request(job, Attribute("comment", comment)))
            await _unless_gone(connection, _hold(RequestCode.RELEASE_JOB, job))

    async def remove(self, job: str, comment: str) -> None:
        """See `Drainer`."""
        async with self._link.talk() as connection:
            await _unless_gone(connection, modify_request(job, Attribute("comment", comment)))
            await _unless_gone(
                connection,
                ManageRequest(
                    code=RequestCode.DELETE_JOB,
                    command=ManagerCommand.DELETE,
                    object_type=ObjectType.JOB,
                    name=job,
                ),
            )


def drained(name: str, values: Values) -> Drained:
    """A job as the server describes it."""
    holds = values.get("Hold_Types", "n")
    return Drained(
        id=name,
        owner=values.get("Job_Owner", ""),
        state=values.get("job_state", ""),
        holds="" if holds == "n" else holds,
        comment=values.get("comment", ""),
        attributes={key: value for key, value in values.items() if "." not in key},
        resources={
            key.removeprefix(_RESOURCE): value
            for key, value in values.items()
            if key.startswith(_RESOURCE) and key.removeprefix(_RESOURCE) not in _DERIVED
        },
        variables=variables(values.get("Variable_List", "")),
        script=f"{values.get('hashname') or name}.SC",
    )


def variables(text: str) -> Mapping[str, str]:
    """A `Variable_List`: names and values between commas; a comma or a backslash in a value has a backslash
    before it.
    """
    found: dict[str, str] = {}
    word: list[str] = []
    letters = iter(text + ",")
    for letter in letters:
        if letter == "\\":
            word.append(next(letters, ""))
        elif letter == ",":
            name, equals, value = "".join(word).partition("=")
            if name and equals:
                found[name] = value
            word = []
        else:
            word.append(letter)
    return found


async def _unless_gone(connection: Connection, request: ManageRequest) -> None:
    try:
        await connection.request(request)
    except ServerRefusedError as error:
        if error.code not in (ServerCode.UNKJOBID, ServerCode.BADSTATE):
            raise


def _hold(code: RequestCode, job: str) -> ManageRequest:
    return ManageRequest(
        code=code,
        command=ManagerCommand.SET,
        object_type=ObjectType.JOB,
        name=job,
        attributes=(Attribute("Hold_Types", _HOLD),),
    )
