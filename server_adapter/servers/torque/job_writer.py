"""Writes plans on TORQUE jobs, with the attributes that the server knows and permits."""

import logging
import time
from dataclasses import replace
from typing import Final

from schedd.wire import WriteAttributes
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import ManageRequest
from server_adapter.bridge.job_comments import is_ours
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.bridge.state import WrittenAttributes
from server_adapter.bridge.write_queue import AttributeWrite
from server_adapter.bridge.write_rights import WriteRights
from server_adapter.dis import Attribute
from server_adapter.servers.job_requests import modify_request
from server_adapter.servers.torque.link import TorqueLink
from server_adapter.servers.torque.requests import WritableAttributes, plan_request, unset
from server_adapter.torque.connection import TorqueConnection
from server_adapter.torque.errors import TorqueErrorCode

_log = logging.getLogger(__name__)

_UNKNOWN = frozenset({TorqueErrorCode.NOATTR, TorqueErrorCode.UNKRESC})
_OVERTAKEN = frozenset({TorqueErrorCode.UNKJOBID, TorqueErrorCode.BADSTATE, TorqueErrorCode.MODATRRUN})
COMMENTS: Final = "comments are"
START_TIMES: Final = "start_time is"
_NEEDED_RIGHTS: Final = {
    COMMENTS: "it takes an operator's rights",
    START_TIMES: "it takes a privileged port",
}
_NO_RIGHT = frozenset({TorqueErrorCode.ATTRRO, TorqueErrorCode.PERM})


class TorqueJobWriter:
    """Writes the enabled attributes of jobs (`offers`); `pace` records each write's time."""

    def __init__(self, link: TorqueLink, offers: WritableAttributes, pace: AdaptiveRateLimiter) -> None:
        self._link = link
        self._offers = offers
        self._pace = pace
        self._planned_known: bool | None = None if offers.planned else False
        parts = {COMMENTS: offers.comment, START_TIMES: offers.start_time}
        self.rights = WriteRights(*(part for part, enabled in parts.items() if enabled))

    @property
    def offers(self) -> WritableAttributes:
        """The attributes that are written at present."""
        return replace(
            self._offers,
            comment=self._offers.comment and self.rights.may_write(COMMENTS),
            start_time=self._offers.start_time and self.rights.may_write(START_TIMES),
        )

    async def comment(self, job: str, text: str) -> None:
        """Replace our comment, unless comments are refused at present."""
        if self.offers.comment:
            await self._send(modify_request(job, [Attribute("comment", text)]))

    async def clean(self, job: str, writing: WrittenAttributes) -> bool:
        """Remove the adapter's attributes from a job; return whether there were any."""
        gone = [unset("comment")] if is_ours(writing.comment) else []
        if writing.start_time is not None and self._offers.start_time:
            gone.append(unset("start_time"))
        if (writing.planned_start is not None or writing.planned_nodes) and self._offers.planned:
            gone += [unset("planned_start"), unset("planned_nodes")]
        if gone:
            await self._send(modify_request(job, gone))
        return bool(gone)

    async def write(self, write: AttributeWrite) -> bool:
        """Write a plan on a job; return False if it should be written again with fewer attributes."""
        async with self._link.borrow() as connection:
            if self._planned_known is None and write.decision.planned_start is not None:
                await self._probe_planned(connection, write.decision)
        offers = replace(self.offers, planned=self._planned_known is True)
        request = plan_request(write.decision, offers, comment_free=write.comment_free)
        return request is None or await self._send(request)

    async def _probe_planned(self, connection: TorqueConnection, decision: WriteAttributes) -> None:
        """Find out by a write whether the server knows planned_start and planned_nodes."""
        request = plan_request(decision, WritableAttributes(comment=False, planned=True))
        assert request is not None
        try:
            await connection.request(request)
        except ServerRefusedError as error:
            if error.code in _UNKNOWN | _NO_RIGHT:
                self._planned_known = False
                _log.info("planned_start and planned_nodes are not written: %s", error)
        else:
            self._planned_known = True

    async def _send(self, request: ManageRequest) -> bool:
        """Send a write; return False if it should be repeated with fewer attributes."""
        try:
            async with self._link.borrow() as connection:
                began = time.monotonic()
                try:
                    await connection.request(request)
                finally:
                    self._pace.record(began, time.monotonic())
        except ServerRefusedError as error:
            if error.code not in _NO_RIGHT:
                # Usually a job that has vanished or has just started.
                _log.log(
                    logging.DEBUG if error.code in _OVERTAKEN else logging.WARNING,
                    "nothing was written on %s: %s",
                    request.name,
                    error,
                )
                return True
            self._note_refused(request, error)
            return False
        for part in sorted(_parts(request)):
            if self.rights.grant(part):
                _log.info("%s written again", part)
        return True

    def _note_refused(self, request: ManageRequest, error: ServerRefusedError) -> None:
        """Leave out what was refused. The text does not name it: only a privileged port may set start_time,
        so that is left out first. A user without rights may write nothing on jobs of others.
        """
        parts = _parts(request)
        if error.code == TorqueErrorCode.ATTRRO and START_TIMES in parts:
            parts = {START_TIMES}
        for part in sorted(parts):
            text = f"{part} not written on jobs: {_NEEDED_RIGHTS[part]} ({error})"
            if self.rights.deny(part, text):
                _log.warning("%s", text)


def _parts(request: ManageRequest) -> set[str]:
    return {START_TIMES if one.name == "start_time" else COMMENTS for one in request.attributes}
